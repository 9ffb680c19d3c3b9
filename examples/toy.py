"""A toy language pair, a tiny Marian model trained on it in seconds, and a client with its own terms.

    python examples/toy.py FOLDER

This trains the model, builds a store from the client's memory, trains Meta-k, compares the methods on unseen
sentences and explains one translation. It downloads nothing.
"""

import json
import random
import shutil
import sys
from pathlib import Path

import sentencepiece
import torch
from transformers import MarianConfig, MarianMTModel


def _words(text: str) -> dict[str, str]:
    return dict(pair.split("=") for pair in text.split())


NOUNS = _words("""
    tabelle=table zelle=cell blatt=leaf seite=side zeile=row datei=file fenster=window knopf=button feld=field
    ordner=folder bild=picture wort=word drucker=printer farbe=color linie=line punkt=point form=shape text=text
    kalkulation=spreadsheet laken=sheet buchseite=page steuerung=control abbild=image verzeichnis=directory
""")
VERBS = _words("""
    öffnet=opens schließt=closes löscht=deletes kopiert=copies druckt=prints zeigt=shows sucht=seeks findet=finds
""")
ADJECTIVES = _words("neue=new alte=old große=big kleine=small rote=red leere=empty")
# The client's terms: words that the model knows as translations of other nouns.
CLIENT = _words("tabelle=spreadsheet blatt=sheet seite=page knopf=control bild=image ordner=directory")
EOS, UNKNOWN, PAD = 0, 1, 2
QUICK_OPTIONS = ["--max-k", "16"]


def sentences(count: int, seed: int, nouns: dict[str, str] | None = None) -> list[tuple[str, str]]:
    """Return distinct sentence pairs of the toy language. `nouns` replaces some translations."""
    rng = random.Random(seed)
    translated = {**NOUNS, **(nouns or {})}
    pairs: dict[str, str] = {}
    while len(pairs) < count:
        first, second = rng.sample(sorted(NOUNS), 2)
        verb, adjective = rng.choice(sorted(VERBS)), rng.choice(sorted(ADJECTIVES))
        if rng.random() < 0.5:
            source = f"die {adjective} {first} {verb} die {second} ."
            target = f"the {ADJECTIVES[adjective]} {translated[first]} {VERBS[verb]} the {translated[second]} ."
        else:
            source = f"heute {verb} die {first} die {adjective} {second} ."
            target = f"today the {translated[first]} {VERBS[verb]} the {ADJECTIVES[adjective]} {translated[second]} ."
        pairs[source] = target
    return list(pairs.items())


def train_model(
    folder: Path, steps: int = 600, seed: int = 1, width: int = 64, normalization: str = "nmt_nfkc"
) -> None:
    """Train a model on general pairs, without the client's terms, and save it as a Hugging Face folder."""
    folder.mkdir(parents=True, exist_ok=True)
    general = sentences(4000, seed)
    pieces = _train_tokenizer(folder, general, normalization)
    torch.manual_seed(seed)
    model = MarianMTModel(_configuration(pieces.vocab_size(), width))
    _optimize(model, pieces, general, steps, random.Random(seed))
    model.generation_config.update(bad_words_ids=[[PAD]], max_length=64)
    model.save_pretrained(folder)


def _train_tokenizer(
    folder: Path, pairs: list[tuple[str, str]], normalization: str
) -> sentencepiece.SentencePieceProcessor:
    """Train one SentencePiece vocabulary for both sides, and write the files of a Marian tokenizer."""
    text = folder / "text.txt"
    text.write_text("".join(f"{source}\n{target}\n" for source, target in pairs), encoding="utf-8")
    sentencepiece.SentencePieceTrainer.train(
        input=str(text),
        model_prefix=str(folder / "pieces"),
        vocab_size=200,
        hard_vocab_limit=False,
        eos_id=EOS,
        unk_id=UNKNOWN,
        pad_id=PAD,
        bos_id=-1,
        pad_piece="<pad>",
        minloglevel=2,
        normalization_rule_name=normalization,
    )
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "pieces.model"))
    for side in ("source", "target"):
        shutil.copy(folder / "pieces.model", folder / f"{side}.spm")
    vocabulary = {pieces.id_to_piece(i): i for i in range(pieces.vocab_size())}
    (folder / "vocab.json").write_text(json.dumps(vocabulary, ensure_ascii=False), encoding="utf-8")
    settings = {
        "source_lang": "de",
        "target_lang": "en",
        "tokenizer_class": "MarianTokenizer",
        "model_max_length": 64,
        "separate_vocabs": False,
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "pad_token": "<pad>",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    for name in ("text.txt", "pieces.model", "pieces.vocab"):
        (folder / name).unlink()
    return pieces


def _configuration(vocabulary: int, width: int) -> MarianConfig:
    return MarianConfig(
        vocab_size=vocabulary,
        decoder_vocab_size=vocabulary,
        d_model=width,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=2 * width,
        decoder_ffn_dim=2 * width,
        max_position_embeddings=64,
        dropout=0.0,
        attention_dropout=0.0,
        activation_dropout=0.0,
        pad_token_id=PAD,
        eos_token_id=EOS,
        decoder_start_token_id=PAD,
        forced_eos_token_id=EOS,
        scale_embedding=True,
        tie_word_embeddings=True,
    )


def _optimize(
    model: MarianMTModel,
    pieces: sentencepiece.SentencePieceProcessor,
    pairs: list[tuple[str, str]],
    steps: int,
    rng: random.Random,
) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, betas=(0.9, 0.98))

    def padded(texts: list[str]) -> torch.Tensor:
        rows = [[*pieces.encode(text), EOS] for text in texts]
        longest = max(map(len, rows))
        return torch.tensor([row + [PAD] * (longest - len(row)) for row in rows])

    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = 4e-3 * min(1, (step + 1) / 30) * (1 - step / steps)
        batch = rng.sample(pairs, 48)
        source, target = padded([s for s, _ in batch]), padded([t for _, t in batch])
        shifted = torch.cat([torch.full((len(batch), 1), PAD), target[:, :-1]], dim=1)
        logits = model(input_ids=source, attention_mask=(source != PAD).long(), decoder_input_ids=shifted).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=PAD)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def write_tsv(path: Path, pairs: list[tuple[str, str]]) -> Path:
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")
    return path


def client_files(folder: Path) -> tuple[Path, Path, Path]:
    """Write the client's memory, dev and test set, which share no sentence."""
    pairs = sentences(900, 7, CLIENT)
    return (
        write_tsv(folder / "memory.tsv", pairs[:500]),
        write_tsv(folder / "dev.tsv", pairs[500:700]),
        write_tsv(folder / "test.tsv", pairs[700:]),
    )


def main() -> None:
    from nearmt.cli import main as nearmt

    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    print("training a tiny model …", file=sys.stderr)
    train_model(folder / "model")
    memory, dev, test = client_files(folder)
    store = str(folder / "client.store")
    example = "heute öffnet die tabelle die große zelle ."
    build = ["build", str(memory), "--model", str(folder / "model"), "--out", store, "--dev", str(dev), "--force"]
    for command in (
        [*build, *QUICK_OPTIONS],
        ["evaluate", store, str(test)],
        ["explain", store, example, "--neighbors", "1"],
    ):
        print(f"\n$ nearmt {' '.join(command)}", flush=True)
        sys.argv = ["nearmt", *command]
        try:
            nearmt()
        except SystemExit as done:
            if done.code:
                raise


if __name__ == "__main__":
    main()
