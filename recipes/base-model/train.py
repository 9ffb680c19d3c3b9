#!/usr/bin/env python3
"""Train nearmt's small German→English demo model on a few CPU cores. Training can be resumed.

    train.py WORK FILE.tsv.gz… --minutes 150             train, or continue from WORK/checkpoint.pt if it exists
    train.py WORK FILE.tsv.gz… --start FOLDER            without a checkpoint: start from the weights of a model folder
    train.py WORK FILE.tsv.gz… --minutes 40 --cooldown   the final phase: learning rates fall to zero
    train.py WORK --export FOLDER                        export the averaged weights as a Hugging Face folder

Each line of a file is `german<TAB>english`. `FILE:N` samples N lines per epoch; `FILE*2` uses the file twice per
epoch. The first run holds out dev and test pairs (`heldout.py`), trains the vocabulary on the rest and stores the
tokenised corpora in WORK; later runs reuse them.

The settings suit a budget of a few CPU hours: one process with one thread per core, with averaged gradients; Muon
(orthogonalised momentum) for the matrices inside the layers, which learns more per token than Adam at this
size, and AdamW for embeddings, norms and biases; constant learning rates, so that training can stop and resume at any
time; and an exponential average of the weights that is usable at any time.
"""

import argparse
import json
import os
import random
import shutil
import sys
import time
from pathlib import Path

import numpy as np
import sentencepiece as spm
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from heldout import Specification, read_pairs, split
from transformers import MarianConfig, MarianMTModel

EOS, UNK, PAD, VOCABULARY, LONGEST = 0, 1, 2, 8000, 100
WARMUP, MUON_RATE, ADAM_RATE, MOMENTUM = 60, 0.012, 1.5e-3, 0.95
# Characters that must be in the vocabulary even if rare, for software texts and typography.
REQUIRED = "".join(map(chr, range(33, 127))) + "äöüÄÖÜß„“”‚‘’«»–—…·•→←↑↓×÷±°§©®™€£µ²³½éèêàáçñ"


def configuration() -> MarianConfig:
    return MarianConfig(
        vocab_size=VOCABULARY,
        decoder_vocab_size=VOCABULARY,
        d_model=256,
        encoder_layers=4,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=1024,
        decoder_ffn_dim=1024,
        max_position_embeddings=512,
        dropout=0.0,
        attention_dropout=0.0,
        activation_dropout=0.0,
        activation_function="swish",
        pad_token_id=PAD,
        eos_token_id=EOS,
        decoder_start_token_id=PAD,
        forced_eos_token_id=EOS,
        scale_embedding=True,
        share_encoder_decoder_embeddings=True,
        tie_word_embeddings=True,
        static_position_embeddings=True,
        init_std=0.02,
    )


def train_vocabulary(work: Path, pairs: list[tuple[str, str]]) -> None:
    text = work / "spm.txt"
    with text.open("w", encoding="utf-8") as out:
        out.writelines(f"{source}\n{target}\n" for source, target in pairs)
    spm.SentencePieceTrainer.train(
        input=str(text),
        model_prefix=str(work / "spm"),
        vocab_size=VOCABULARY,
        model_type="unigram",
        character_coverage=0.9998,
        required_chars=REQUIRED,
        eos_id=EOS,
        unk_id=UNK,
        pad_id=PAD,
        bos_id=-1,
        pad_piece="<pad>",
        num_threads=2,
        minloglevel=2,
    )
    text.unlink()


def prepare(work: Path, specifications: list[Specification]) -> None:
    """Hold out dev and test pairs, train the vocabulary, and store the tokenised corpora in WORK."""
    rng = random.Random(1)
    kept = split(work, specifications)
    if not (work / "spm.model").exists():
        sample = [
            p for s, pairs in zip(specifications, kept, strict=True) for p in rng.sample(pairs, min(len(pairs), 80000))
        ]
        train_vocabulary(work, sample)
    pieces = spm.SentencePieceProcessor(model_file=str(work / "spm.model"))
    sets = [(s.path.name.split(".")[0], pairs) for s, pairs in zip(specifications, kept, strict=True)]
    sets.append(("dev", read_pairs(work / "dev.tsv")))
    for name, pairs in sets:
        arrays = {}
        for side, texts in (("source", [p[0] for p in pairs]), ("target", [p[1] for p in pairs])):
            rows = [[*ids[:LONGEST], EOS] for ids in pieces.encode(texts, num_threads=2)]
            arrays[side] = np.concatenate([np.array(r, dtype=np.int16) for r in rows])
            arrays[f"{side}_ends"] = np.cumsum([len(r) for r in rows])
        np.savez(work / f"{name}.part.npz", **arrays)
        (work / f"{name}.part.npz").replace(work / f"{name}.npz")
        print(f"{name}: {len(pairs)} pairs, {len(arrays['target'])} target tokens", flush=True)


class Corpus:
    """The tokenised pairs of one file, in flat arrays to save memory."""

    def __init__(self, path: Path) -> None:
        data = np.load(path)
        self.flat = {side: data[side] for side in ("source", "target")}
        self.ends = {side: data[f"{side}_ends"] for side in ("source", "target")}

    def __len__(self) -> int:
        return len(self.ends["source"])

    def row(self, side: str, i: int) -> np.ndarray:
        ends = self.ends[side]
        return self.flat[side][(ends[i - 1] if i else 0) : ends[i]]

    def length(self, side: str, i: int) -> int:
        ends = self.ends[side]
        return int(ends[i] - (ends[i - 1] if i else 0))


def padded(rows: list[np.ndarray]) -> torch.Tensor:
    out = torch.full((len(rows), max(map(len, rows))), PAD)
    for i, row in enumerate(rows):
        out[i, : len(row)] = torch.from_numpy(row.astype(np.int64))
    return out


def orthogonalised(matrix: torch.Tensor) -> torch.Tensor:
    """Approximate the nearest semi-orthogonal matrix by five Newton–Schulz steps with Muon's quintic polynomial."""
    x = matrix.T if matrix.shape[0] > matrix.shape[1] else matrix
    x = x / (x.norm() + 1e-7)
    for _ in range(5):
        gram = x @ x.T
        x = 3.4445 * x + (-4.775 * gram + 2.0315 * gram @ gram) @ x
    return x.T if matrix.shape[0] > matrix.shape[1] else x


class Muon:
    """Momentum, orthogonalised per matrix. Each process handles a share of the matrices; an all-reduce merges them."""

    def __init__(self, matrices: list[torch.nn.Parameter], rank: int, world: int) -> None:
        self.matrices, self.rank, self.world = matrices, rank, world
        self.momenta = [torch.zeros_like(p) for p in matrices]

    @torch.no_grad()
    def step(self, rate: float) -> None:
        updates = [torch.zeros_like(p) for p in self.matrices]
        for i, (p, momentum) in enumerate(zip(self.matrices, self.momenta, strict=True)):
            momentum.lerp_(p.grad, 1 - MOMENTUM)
            if i % self.world == self.rank:
                scale = max(1.0, p.shape[0] / p.shape[1]) ** 0.5
                updates[i] = scale * orthogonalised(p.grad.lerp(momentum, MOMENTUM))
        if self.world > 1:
            flat = torch.cat([u.reshape(-1) for u in updates])
            dist.all_reduce(flat)
            updates = [
                part.view_as(u) for part, u in zip(flat.split([u.numel() for u in updates]), updates, strict=True)
            ]
        for p, update in zip(self.matrices, updates, strict=True):
            p.mul_(1 - 0.01 * rate).sub_(update, alpha=rate)


class Trainer:
    def __init__(self, args: argparse.Namespace, rank: int) -> None:
        self.args, self.rank, self.world = args, rank, args.processes
        self.work = Path(args.work)
        self.corpora = [(s, Corpus(self.work / f"{s.path.name.split('.')[0]}.npz")) for s in args.specifications]
        self.dev = Corpus(self.work / "dev.npz")
        self.model = MarianMTModel(configuration())
        inside = {n: p for n, p in self.model.named_parameters() if p.ndim == 2 and "layers." in n}
        self.muon = Muon(list(inside.values()), rank, self.world)
        rest = [p for n, p in self.model.named_parameters() if n not in inside and p.requires_grad]
        self.adam = torch.optim.AdamW(rest, lr=1.0, betas=(0.9, 0.98), eps=1e-9, weight_decay=0.01, fused=True)
        self.average = {k: v.clone() for k, v in self.model.state_dict().items()}
        self.step = self.tokens = 0
        path = self.work / "checkpoint.pt"
        if path.exists():
            state = torch.load(path)
            self.model.load_state_dict(state["model"])
            self.adam.load_state_dict(state["adam"])
            self.muon.momenta = state["momenta"]
            self.average, self.step, self.tokens = state["average"], state["step"], state["tokens"]
            self.say(f"resumed at step {self.step}, {self.tokens} tokens")
        elif args.start:
            weights = MarianMTModel.from_pretrained(args.start, dtype=torch.float32).state_dict()
            self.model.load_state_dict(weights)
            self.average = {k: v.clone() for k, v in weights.items()}
            self.say(f"weights of {args.start}")
        self.rng = random.Random(1000003 * self.step + 1)  # otherwise every run would start with the same batches

    def say(self, *words: object) -> None:
        if self.rank == 0:
            print(*words, flush=True)

    def save(self) -> None:
        if self.rank == 0:
            state = {
                "model": self.model.state_dict(),
                "adam": self.adam.state_dict(),
                "momenta": self.muon.momenta,
                "average": self.average,
                "step": self.step,
                "tokens": self.tokens,
            }
            torch.save(state, self.work / "checkpoint.tmp")
            (self.work / "checkpoint.tmp").replace(self.work / "checkpoint.pt")

    def loss(self, corpus_rows: list[tuple[Corpus, int]]) -> tuple[torch.Tensor, int]:
        source = padded([c.row("source", i) for c, i in corpus_rows])
        target = padded([c.row("target", i) for c, i in corpus_rows])
        shifted = torch.cat([torch.full((len(target), 1), PAD), target[:, :-1]], 1)
        states = self.model.model(
            input_ids=source, attention_mask=(source != PAD).long(), decoder_input_ids=shifted, use_cache=False
        ).last_hidden_state
        real = target != PAD
        logits = self.model.lm_head(states[real]) + self.model.final_logits_bias
        return torch.nn.functional.cross_entropy(logits, target[real], reduction="sum"), int(real.sum())

    def dev_loss(self) -> float:
        current = {k: v.clone() for k, v in self.model.state_dict().items()}
        self.model.load_state_dict(self.average)
        self.model.eval()
        order = sorted(range(len(self.dev)), key=lambda i: self.dev.length("target", i))
        total = count = 0.0
        with torch.inference_mode():
            for at in range(0, len(order), 50):
                loss, n = self.loss([(self.dev, i) for i in order[at : at + 50]])
                total, count = total + loss.item(), count + n
        self.model.load_state_dict(current)
        self.model.train()
        return total / count

    def epoch(self):
        """Yield batches of rows for this process, of similar length within chunks of 30,000 rows."""
        rows = []
        for specification, corpus in self.corpora:
            for _ in range(specification.times):
                take = min(specification.take or len(corpus), len(corpus))
                rows += [(corpus, i) for i in self.rng.sample(range(len(corpus)), take)]
        self.rng.shuffle(rows)
        for start in range(0, len(rows), 30000):
            chunk = [(c.length("target", i), c.length("source", i), c, i) for c, i in rows[start : start + 30000]]
            chunk.sort(key=lambda row: row[:2])
            groups, group, width = [], [], 0
            for target, source, corpus, i in chunk:
                wider = max(width, source, target)
                if group and wider * (len(group) + 1) > self.args.max_tokens:
                    groups.append(group)
                    group, wider = [], max(source, target)
                group.append((corpus, i))
                width = wider
            groups.append(group)
            self.rng.shuffle(groups)
            usable = len(groups) - len(groups) % self.world
            yield from groups[self.rank : usable : self.world]

    def average_gradients(self, count: int) -> int:
        """Divide the gradients summed over processes by their number of tokens, and return that number."""
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        flat = torch.cat([g.view(-1) for g in gradients] + [torch.tensor([float(count)])])
        if self.world > 1:
            dist.all_reduce(flat)
        total, at = flat[-1].item(), 0
        for g in gradients:
            g.copy_(flat[at : at + g.numel()].view_as(g)).div_(total)
            at += g.numel()
        return int(total)

    def share_done(self, begin: float) -> float:
        """Return the fraction of the time that has passed, by the first process's clock."""
        done = torch.tensor([(time.time() - begin) / (self.args.minutes * 60)])
        if self.world > 1:
            dist.broadcast(done, 0)
        return done.item()

    def run(self) -> None:
        self.model.train()
        begin, seen, total, count = time.time(), self.tokens, 0.0, 0
        saved = begin
        while True:
            for group in self.epoch():
                done = self.share_done(begin)
                if (self.world > 1 and os.getppid() == 1) or done >= 1:  # the parent has ended, or the time is up
                    self.say("dev nll", round(self.dev_loss(), 4), "tokens", self.tokens)
                    return self.save()
                self.step += 1
                factor = min(1.0, self.step / WARMUP) * (1 - done if self.args.cooldown else 1.0)
                loss, n = self.loss(group)
                loss.backward()
                everyone = self.average_gradients(n)
                for g in self.adam.param_groups:
                    g["lr"] = ADAM_RATE * factor
                self.adam.step()
                self.muon.step(MUON_RATE * factor)
                self.model.zero_grad(set_to_none=True)
                if self.step % 5 == 0:
                    keep = 0.98 if self.args.cooldown else min(0.99, 1 - 10 / (self.step + 10))
                    for k, v in self.model.state_dict().items():
                        if v.is_floating_point():
                            self.average[k].lerp_(v, 1 - keep)
                self.tokens, total, count = self.tokens + everyone, total + loss.item(), count + n
                if self.step % 50 == 0:
                    rate = (self.tokens - seen) / (time.time() - begin)
                    self.say(f"step {self.step} loss {total / count:.3f} tokens {self.tokens} tok/s {rate:.0f}")
                    total = count = 0
                if time.time() - saved > 480 and self.rank == 0:
                    self.say("dev nll", round(self.dev_loss(), 4), "tokens", self.tokens)
                    self.save()
                    saved = time.time()


def work_process(rank: int, args: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(1)
    if args.processes > 1:
        meeting = f"file://{Path(args.work).absolute()}/rendezvous"
        dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=args.processes)
    Trainer(args, rank).run()


def export(work: Path, folder: Path) -> None:
    model = MarianMTModel(configuration())
    model.load_state_dict(torch.load(work / "checkpoint.pt")["average"])
    model.generation_config.update(max_length=512, num_beams=4, bad_words_ids=[[PAD]])
    model.half().save_pretrained(folder)
    pieces = spm.SentencePieceProcessor(model_file=str(work / "spm.model"))
    for side in ("source", "target"):
        shutil.copy(work / "spm.model", folder / f"{side}.spm")
    vocabulary = {pieces.id_to_piece(i): i for i in range(pieces.vocab_size())}
    (folder / "vocab.json").write_text(json.dumps(vocabulary, ensure_ascii=False), encoding="utf-8")
    settings = {
        "source_lang": "de",
        "target_lang": "en",
        "tokenizer_class": "MarianTokenizer",
        "model_max_length": 512,
        "separate_vocabs": False,
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "pad_token": "<pad>",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=1) + "\n")
    print("exported to", folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work")
    parser.add_argument("files", nargs="*")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--cooldown", action="store_true")
    parser.add_argument("--export", metavar="FOLDER")
    parser.add_argument("--start", metavar="FOLDER")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--max-tokens", type=int, default=2500, help="padded tokens per batch and process")
    args = parser.parse_args()
    work = Path(args.work)
    if args.export:
        return export(work, Path(args.export))
    if not args.files:
        sys.exit("give at least one corpus to train on")
    work.mkdir(parents=True, exist_ok=True)
    (work / "rendezvous").unlink(missing_ok=True)
    args.specifications = [Specification.parse(f) for f in args.files]
    if args.start and not (work / "spm.model").exists():
        shutil.copy(Path(args.start) / "source.spm", work / "spm.model")
    if not (work / "dev.npz").exists():
        if (work / "checkpoint.pt").exists():
            sys.exit("the checkpoint's tokenised corpora are missing: a new vocabulary would not match its weights")
        prepare(work, args.specifications)
    if args.processes > 1:
        mp.spawn(work_process, (args,), nprocs=args.processes)
    else:
        work_process(0, args)
    return None


if __name__ == "__main__":
    main()
