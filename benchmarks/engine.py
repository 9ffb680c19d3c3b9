"""Speed of the decoding engines on one model, side by side in one run.

    python benchmarks/engine.py [--batches 1,16,32,64] [--rounds 5] [--threads 2] [--json] [--engines int8,torch,…]

A random model of opus-mt's size translates random sources of 25 tokens into 30 tokens with beam 4. Every round runs
every engine once; the table has medians over the rounds. CTranslate2 takes part if it is installed.
On a machine that is busy with other things, `--threads 1 --clock processor` still compares like with like.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

BEAMS, SOURCE_LENGTH, OUTPUT_LENGTH, VOCABULARY = 4, 25, 30, 58_101
Run = Callable[[list[list[int]]], object]


def make_model(folder: Path, layers: int = 6, width: int = 512) -> Path:
    """A Marian model of opus-mt's size with random weights that never ends a sentence early."""
    import sentencepiece
    from transformers import MarianConfig, MarianMTModel

    folder.mkdir(parents=True)
    for side in ("source", "target"):
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(["ein kleines Haus", "der Hund und das Wort"] * 20), model_prefix=str(folder / side),
            vocab_size=40, hard_vocab_limit=False, minloglevel=2,
        )  # fmt: skip
        (folder / f"{side}.model").rename(folder / f"{side}.spm")
    pieces = ["</s>", "<unk>", *(f"▁word{i}" for i in range(VOCABULARY - 3)), "<pad>"]
    (folder / "vocab.json").write_text(json.dumps({piece: i for i, piece in enumerate(pieces)}), encoding="utf-8")
    names = {"tokenizer_class": "MarianTokenizer", "source_lang": "de", "target_lang": "en"}
    (folder / "tokenizer_config.json").write_text(json.dumps(names), encoding="utf-8")
    torch.manual_seed(1)
    pad = VOCABULARY - 1
    model = MarianMTModel(
        MarianConfig(
            vocab_size=VOCABULARY, d_model=width, encoder_layers=layers, decoder_layers=layers,
            encoder_ffn_dim=4 * width, decoder_ffn_dim=4 * width, encoder_attention_heads=width // 64,
            decoder_attention_heads=width // 64, max_position_embeddings=512, activation_function="swish",
            scale_embedding=True, pad_token_id=pad, eos_token_id=0, decoder_start_token_id=pad, forced_eos_token_id=0,
        )
    )  # fmt: skip
    with torch.no_grad():
        model.final_logits_bias.normal_(0, 0.1)
        model.final_logits_bias[0, 0] = -100.0
    model.generation_config.bad_words_ids = [[pad]]
    model.save_pretrained(folder)
    return folder


def ours(folder: Path, engine: str) -> Run:
    from nearmt.decoder import Decoder, DecodingSettings
    from nearmt.seq2seq import Seq2Seq

    began = time.perf_counter()
    model = Seq2Seq.load(folder, engine=engine)
    print(f"{engine}: loaded in {time.perf_counter() - began:.1f} s", file=sys.stderr)

    def run(sources: list[list[int]]) -> object:
        settings = DecodingSettings(batch_size=len(sources), length_factor=0, length_extra=OUTPUT_LENGTH)
        found = Decoder(model, settings=settings).decode(sources)
        assert all(len(best[0].token_ids) == OUTPUT_LENGTH for best in found)
        return found

    return run


def huggingface(folder: Path) -> Run:
    from transformers import AutoModelForSeq2SeqLM

    model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    model.generation_config.max_length = None

    def run(sources: list[list[int]]) -> object:
        ids = torch.tensor(sources)
        options: dict[str, Any] = {"num_beams": BEAMS, "max_new_tokens": OUTPUT_LENGTH, "length_penalty": 0.6}
        with torch.inference_mode():
            return model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), **options)

    return run


def ctranslate2(folder: Path, threads: int) -> Run | None:
    try:
        import ctranslate2
    except ImportError:
        return None
    from transformers import AutoTokenizer

    converted = folder.with_name("ctranslate2")
    if not converted.exists():
        ctranslate2.converters.TransformersConverter(str(folder)).convert(str(converted), quantization="int8")
    translator = ctranslate2.Translator(str(converted), compute_type="int8", inter_threads=1, intra_threads=threads)
    tokenizer = AutoTokenizer.from_pretrained(folder)

    def run(sources: list[list[int]]) -> object:
        tokens = [tokenizer.convert_ids_to_tokens(ids) for ids in sources]
        found = translator.translate_batch(
            tokens, beam_size=BEAMS, length_penalty=0.6, max_batch_size=0,
            min_decoding_length=OUTPUT_LENGTH, max_decoding_length=OUTPUT_LENGTH,
        )  # fmt: skip
        assert all(len(result.hypotheses[0]) == OUTPUT_LENGTH for result in found)
        return found

    return run


def measure(runs: dict[str, Run], batch: int, rounds: int, clock: Callable[[], float]) -> dict[str, list[float]]:
    """Seconds of every round after one that warms up."""
    generator = torch.Generator().manual_seed(batch)
    shape = (batch, SOURCE_LENGTH - 1)
    sources = [[*ids, 0] for ids in torch.randint(2, VOCABULARY - 1, shape, generator=generator).tolist()]
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(rounds + 1):
        for name, run in runs.items():
            time.sleep(0.1)  # other engines' threads go to sleep
            began = clock()
            run(sources)
            if number:
                seconds[name].append(clock() - began)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", default="1,16,32,64")
    parser.add_argument("--engines", default="int8,torch,generate,ctranslate2")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--clock", choices=("wall", "processor"), default="wall")
    parser.add_argument("--folder", type=Path, help="keep the model here and use it again")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    base = options.folder or Path(tempfile.mkdtemp())
    folder = base / "model" if (base / "model").exists() else make_model(base / "model")
    makers: dict[str, Callable[[], Run | None]] = {
        "int8": lambda: ours(folder, "int8"),
        "torch": lambda: ours(folder, "torch"),
        "generate": lambda: huggingface(folder),
        "ctranslate2": lambda: ctranslate2(folder, options.threads),
    }
    made = {name: makers[name]() for name in options.engines.split(",")}
    runs = {name: run for name, run in made.items() if run is not None}
    clock = time.perf_counter if options.clock == "wall" else time.process_time
    results = {batch: measure(runs, batch, options.rounds, clock) for batch in map(int, options.batches.split(","))}
    medians = {batch: {name: statistics.median(s) for name, s in found.items()} for batch, found in results.items()}
    if options.json:
        print(json.dumps({"threads": options.threads, "clock": options.clock, "seconds": results, "medians": medians}))
        return
    first = next(iter(runs))
    print("batch  " + "".join(f"{name:>24}" for name in runs))
    for batch, found in medians.items():
        cells = [f"{s * 1000:9.0f} ms (×{found[first] / s:4.2f})" for s in found.values()]
        print(f"{batch:5}  " + "".join(f"{cell:>24}" for cell in cells))
    print(f"(×: the time of {first} over that of this engine)")


if __name__ == "__main__":
    main()
