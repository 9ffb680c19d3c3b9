"""Measurements of the core that take too long or are too noisy for tests.

    python benchmarks/core.py metak [NETWORKS]          train Meta-k: 5,000 steps on 60,000 cached tokens
    python benchmarks/core.py build MODEL PAIRS.tsv     build time against bare forward passes over the same batches
    python benchmarks/core.py memory MODEL PAIRS.tsv    anonymous memory of a build, and of one ten times as large
    python benchmarks/core.py ray MODEL PAIRS.tsv [N]   build rate on Ray with two workers against one, over N pairs
    python benchmarks/core.py exact FAST.store FLOAT32.store MODEL PAIRS.tsv [N]
                                                        BLEU of int8 with an index against float32 with exact search
    python benchmarks/core.py batches STORE MODEL PAIRS.tsv [N]
                                                        share of equal outputs in batches of 32 and one by one
    python benchmarks/core.py matches STORE [N]         time of a look-up of matches, compared with all sentences
    python benchmarks/core.py tmx                       read a TMX file of 1 GB

Each command prints one JSON object.
"""

import json
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any


def first_pairs(path: str, count: int) -> list[Any]:
    from nearmt.corpus import DropCounts, read_pairs

    return list(islice(read_pairs([path], source_lang=None, target_lang=None, drops=DropCounts()), count))


def write_tsv(path: Path, pairs: list[Any]) -> Path:
    path.write_text("".join(f"{pair.source}\t{pair.target}\n" for pair in pairs), encoding="utf-8")
    return path


def measure_metak(num_temperatures: str = "1", num_tokens: int = 60_000, max_k: int = 32) -> dict[str, float]:
    import torch

    from nearmt.retrieval.neighbors import Neighbors
    from nearmt.training.cache import NeighborCache
    from nearmt.training.schedule import TrainingSettings
    from nearmt.training.train_metak import train_metak

    torch.manual_seed(1)
    distances = torch.rand(num_tokens, max_k).sort(1).values * 200
    tokens = torch.randint(0, 50, (num_tokens, max_k))
    found = torch.ones(num_tokens, max_k, dtype=torch.bool)
    entry_ids = torch.arange(num_tokens * max_k).view(num_tokens, max_k)
    model_probabilities, rows = torch.rand(num_tokens), torch.arange(num_tokens)
    cache = NeighborCache(
        Neighbors(distances, tokens, entry_ids, found),
        torch.randint(0, 50, (num_tokens,)),
        rows // 25,
        rows % 25,
        model_probabilities,
        torch.rand(num_tokens, max_k),
        model_probabilities[:, None].expand(-1, 8),
        torch.zeros(num_tokens, 4),
    )
    train_part, held_out = cache.split(range(num_tokens // 25 // 5))
    checks: list[int] = []
    temperatures = [10.0 * (i + 1) for i in range(int(num_temperatures))]
    began = time.perf_counter()
    train_metak(
        train_part,
        held_out,
        max_k=max_k,
        temperatures=temperatures,
        settings=TrainingSettings(stop_after=10**6),
        on_check=lambda step, loss: checks.append(step),
    )
    return {
        "networks": len(temperatures),
        "tokens": num_tokens,
        "steps": checks[-1],
        "seconds": round(time.perf_counter() - began, 1),
    }


def measure_build(model_name: str, path: str, num_pairs: int = 4000, rounds: int = 3) -> dict[str, float]:
    """Compare, in interleaved rounds, bare forward passes of the model with a build without its index."""
    import torch

    from nearmt.building.builder import Builder, BuildSettings
    from nearmt.building.extract import batches_by_length
    from nearmt.models import Seq2Seq
    from nearmt.models.reference import load_for_generate

    model, bare_model = Seq2Seq.load(model_name, engine="torch"), load_for_generate(Path(model_name))
    pairs = first_pairs(path, num_pairs)
    sources = model.tokenize_sources([pair.source for pair in pairs])
    targets = model.tokenize_targets([pair.target for pair in pairs])
    bare, built = [], []
    with tempfile.TemporaryDirectory() as folder:
        memory = write_tsv(Path(folder) / "pairs.tsv", pairs)
        for number in range(rounds):
            began = time.perf_counter()
            with torch.inference_mode():
                for batch in batches_by_length(sources, targets, BuildSettings().batch_tokens):
                    ids, mask = model._pad(batch.sources)
                    shifted, _ = model._pad([[model.start_token_id, *target[:-1]] for target in batch.targets])
                    bare_model(input_ids=ids, attention_mask=mask, decoder_input_ids=shifted, use_cache=False)
            bare.append(time.perf_counter() - began)
            began = time.perf_counter()
            builder = Builder(Path(folder) / f"{number}.store", model, BuildSettings())
            builder.start([memory])
            manifest = builder.decode([memory])
            built.append(time.perf_counter() - began)
    best_bare, best_built = min(bare), min(built)
    return {
        "entries": manifest.num_entries,
        "bare_seconds": round(best_bare, 2),
        "build_seconds": round(best_built, 2),
        "build_over_bare": round(best_built / best_bare, 3),
        "entries_per_second": round(manifest.num_entries / best_built),
    }


def build_and_track_memory(model: str, path: str, out: str) -> dict[str, float]:
    """Build in this process and measure its peak anonymous memory."""
    from nearmt.experiments.bench.peak_memory import anonymous_bytes, track_memory
    from nearmt.store import build

    costs: dict[str, Any] = {}
    before = anonymous_bytes()
    with track_memory(costs, "build"):
        store = build(path, model=model, out=out, train=False)
    peak = before + costs["build"]["peak_bytes"]
    return {"entries": store.manifest.num_entries, "peak_anonymous_mb": round(peak / 2**20, 1)}


def measure_memory(model: str, path: str, num_pairs: int = 4000) -> dict[str, object]:
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for factor in (1, 10):
            part = write_tsv(Path(folder) / f"{factor}.tsv", first_pairs(path, num_pairs * factor))
            command = [sys.executable, __file__, "tracked", model, str(part), str(Path(folder) / f"{factor}.store")]
            results.append(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
    growth = results[1]["peak_anonymous_mb"] / results[0]["peak_anonymous_mb"] - 1
    return {"small": results[0], "large": results[1], "growth": round(growth, 4)}


def rate_on_ray(model: Any, memory: Path, out: Path, workers: int) -> float:
    """Return pairs per second, counted from the moment when all workers have loaded the model."""
    from nearmt.building.builder import BuildSettings
    from nearmt.building.ray import RaySettings
    from nearmt.store import build

    marks: list[tuple[float, int]] = []  # time and number of pairs committed by then
    decoded = 0

    def listen(stage: str, done: int, total: int | None) -> None:
        nonlocal decoded
        decoded = done if stage == "decoding" else decoded
        if stage == "decoding" or (stage == "workers" and done == total):
            if stage == "workers":
                marks.clear()
            marks.append((time.perf_counter(), decoded))

    build(
        memory,
        model=model,
        out=out,
        train=False,
        settings=BuildSettings(segment_entries=4096),
        cluster=RaySettings(workers=workers),
        progress=listen,
    )
    (first, before), (last, after) = marks[0], marks[-1]
    return (after - before) / (last - first)


def measure_ray(model_name: str, path: str, num_pairs: str = "4000", rounds: int = 3) -> dict[str, object]:
    """Compare one and two workers in interleaved rounds, each with its own cluster. A worker has one thread."""
    from nearmt.models import Seq2Seq

    model = Seq2Seq.load(model_name)
    pairs = first_pairs(path, int(num_pairs))
    rates: dict[int, list[float]] = {1: [], 2: []}
    with tempfile.TemporaryDirectory() as folder:
        memory = write_tsv(Path(folder) / "pairs.tsv", pairs)
        for number in range(rounds):
            for workers, measured in rates.items():
                measured.append(rate_on_ray(model, memory, Path(folder) / f"{number}-{workers}.store", workers))
    return {
        "pairs": len(pairs),
        "engine": model.engine,
        "pairs_per_second": {str(workers): [round(rate, 1) for rate in r] for workers, r in rates.items()},
        "ratio_of_medians": round(statistics.median(rates[2]) / statistics.median(rates[1]), 3),
    }


def measure_exact(fast: str, slow: str, model_name: str, path: str, num_pairs: str = "500") -> dict[str, object]:
    """Compare a store built with int8 and searched with its index to one built with torch and searched exactly."""
    from nearmt.datastore import Snapshot
    from nearmt.decoding.decoder import Decoder
    from nearmt.evaluation.scores import bleu
    from nearmt.models import Seq2Seq
    from nearmt.retrieval.index import build_index
    from nearmt.retrieval.search import Retriever
    from nearmt.training.devset import load_pairs
    from nearmt.translator import Translator

    float32, whole = Seq2Seq.load(model_name, engine="torch"), Snapshot.open(Path(slow))
    exact = Retriever(whole, build_index(whole, "Flat", 1))
    results: dict[str, object] = {}
    for method in ("base", "adaptive", "robust"):
        quick = Translator(fast, model=model_name, method=method)
        pairs = load_pairs(Path(path), quick.snapshot.manifest.languages).pairs[: int(num_pairs)]
        decoders = {
            quick.model.engine: quick.decoder(quick.method),
            "float32": Decoder(float32, exact if quick.method else None, quick.method, quick.decoding),
        }
        references, outputs = [pair.target for pair in pairs], {}
        for name, decoder in decoders.items():
            sources = decoder.model.tokenize_sources([pair.source for pair in pairs])
            outputs[name] = decoder.texts(decoder.decode(sources))
        first, second = outputs.values()
        results[method] = {
            **{name: round(bleu(texts, references), 2) for name, texts in outputs.items()},
            "same_texts": round(sum(map(str.__eq__, first, second)) / len(pairs), 3),
        }
    return {"sentences": len(references), **results}


def measure_batches(store: str, model_name: str, path: str, num_pairs: str = "500") -> dict[str, object]:
    """Translate the same sentences in batches and one by one."""
    from nearmt.decoding.decoder import DecodingSettings
    from nearmt.training.devset import load_pairs
    from nearmt.translator import Translator

    results: dict[str, object] = {}
    for method in ("base", "adaptive", "robust"):
        outputs = []
        for size in (32, 1):
            translator = Translator(store, model=model_name, method=method, decoding=DecodingSettings(batch_size=size))
            pairs = load_pairs(Path(path), translator.snapshot.manifest.languages).pairs[: int(num_pairs)]
            outputs.append([translation.text for translation in translator.translate([pair.source for pair in pairs])])
        results[method] = round(sum(map(str.__eq__, *outputs)) / len(pairs), 4)
    return {"sentences": len(pairs), "same_texts": results}


def measure_matches(store: str, num_texts: str = "300") -> dict[str, object]:
    """Look up stored sources with a tenth of their words changed; times are CPU time, as other processes may run."""
    from nearmt.datastore import Snapshot
    from nearmt.evaluation.matches import best_matches
    from nearmt.retrieval.sentences.matches import MINIMUM, MatchFinder

    snapshot, rng = Snapshot.open(Path(store)), random.Random(1)
    finder = MatchFinder(snapshot)
    chosen = rng.sample(snapshot.live_sentence_ids.tolist(), int(num_texts))
    stored = [snapshot.sides(sentence_id)[0] for sentence_id in chosen]
    words = [word for text in stored for word in text.split()]
    changed = [" ".join(rng.choice(words) if rng.random() < 0.1 else w for w in text.split()) for text in stored]
    began = time.process_time()
    finder.matches(stored[0])
    opening = time.process_time() - began
    found, seconds, exact_seconds = [], [], []
    for text, same in zip(changed, stored, strict=True):
        began = time.process_time()
        found.append(finder.matches(text, limit=1))
        seconds.append(time.process_time() - began)
        began = time.process_time()
        assert finder.exact(same) is not None
        exact_seconds.append(time.process_time() - began)
    best = best_matches(changed, [pair.source for pair in snapshot.texts()])
    similar = [(row, match.percent) for row, match in enumerate(best) if match.percent >= MINIMUM]
    num_found = sum(bool(found[row]) and found[row][0].percent == percent for row, percent in similar)
    return {
        "sentences": len(snapshot.sentences),
        "opening_ms": round(1e3 * opening, 1),
        "matches_ms": {"mean": round(1e3 * statistics.mean(seconds), 2), "max": round(1e3 * max(seconds), 2)},
        "exact_us": round(1e6 * statistics.mean(exact_seconds), 1),
        "best_found": f"{num_found} of {len(similar)}",
    }


def write_large_tmx(path: Path, size: int) -> None:
    words = [f"wort{i}" for i in range(5000)]
    rng = random.Random(1)
    number = 0
    with path.open("w", encoding="utf-8") as out:
        out.write('<?xml version="1.0" encoding="UTF-8"?>\n<tmx version="1.4"><header srclang="de"/><body>\n')
        while number % 1000 or out.tell() < size:  # tell() is slow
            text = " ".join(rng.choices(words, k=12))
            out.write(f'<tu tuid="{number}" changedate="20240501T120000Z">')
            out.write(f'<tuv xml:lang="de-DE"><seg>{text} <ph x="1">&lt;br&gt;</ph> ende</seg></tuv>')
            out.write(f'<tuv xml:lang="en-US"><seg>{text}. end</seg></tuv></tu>\n')
            number += 1
        out.write("</body></tmx>\n")


def measure_tmx(size: int = 10**9) -> dict[str, float]:
    from nearmt.corpus import DropCounts, read_pairs

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.tmx"
        write_large_tmx(path, size)
        began = time.perf_counter()
        num_pairs = sum(1 for _ in read_pairs([path], source_lang="de", target_lang="en", drops=DropCounts()))
        seconds = time.perf_counter() - began
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return {
            "megabytes": round(path.stat().st_size / 1e6),
            "pairs": num_pairs,
            "seconds": round(seconds, 1),
            "peak_resident_mb": round(peak, 1),
        }


COMMANDS: dict[str, Callable[..., object]] = {
    "metak": measure_metak,
    "build": measure_build,
    "memory": measure_memory,
    "ray": measure_ray,
    "exact": measure_exact,
    "batches": measure_batches,
    "matches": measure_matches,
    "tmx": measure_tmx,
    "tracked": build_and_track_memory,  # what "memory" runs in a process of its own
}


def main() -> None:
    if len(sys.argv) < 2 or sys.argv[1] not in COMMANDS:
        sys.exit(__doc__)
    print(json.dumps(COMMANDS[sys.argv[1]](*sys.argv[2:])))


if __name__ == "__main__":
    main()
