"""Measurements of the core that are too long or too noisy for tests.

    python benchmarks/core.py metak [NETWORKS]          5,000 steps on 60,000 cached tokens
    python benchmarks/core.py build MODEL PAIRS.tsv     building against the bare forward passes over the same batches
    python benchmarks/core.py memory MODEL PAIRS.tsv    anonymous memory of a build, and of one ten times as large
    python benchmarks/core.py ray MODEL PAIRS.tsv [N]   rate of a build on Ray by two workers against one, over N pairs
    python benchmarks/core.py exact FAST.store FLOAT32.store MODEL PAIRS.tsv [N]
                                                        int8 and an index against float32 and exact search, in BLEU
    python benchmarks/core.py batches STORE MODEL PAIRS.tsv [N]
                                                        how many texts are the same in batches of 32 and one by one
    python benchmarks/core.py tmx                       reading a TMX of 1 GB

Each prints one JSON object.
"""

import json
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path


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
    own, rows = torch.rand(num_tokens), torch.arange(num_tokens)
    cache = NeighborCache(
        Neighbors(distances, tokens, torch.arange(num_tokens * max_k).view(num_tokens, max_k), found),
        torch.randint(0, 50, (num_tokens,)), rows // 25, rows % 25, own, torch.rand(num_tokens, max_k),
        own[:, None].expand(-1, 8), torch.zeros(num_tokens, 4),
    )  # fmt: skip
    train_part, held_out = cache.split(range(num_tokens // 25 // 5))
    checks: list[int] = []
    temperatures = [10.0 * (i + 1) for i in range(int(num_temperatures))]
    began = time.perf_counter()
    train_metak(
        train_part, held_out, max_k=max_k, temperatures=temperatures, settings=TrainingSettings(stop_after=10**6),
        on_check=lambda step, loss: checks.append(step),
    )  # fmt: skip
    return {
        "networks": len(temperatures),
        "tokens": num_tokens,
        "steps": checks[-1],
        "seconds": round(time.perf_counter() - began, 1),
    }


def measure_build(model_name: str, path: str, num_pairs: int = 4000, rounds: int = 3) -> dict[str, float]:
    """Interleaved rounds: whole forward passes of the bare model, then everything that building does but the index."""
    import torch

    from nearmt.building.builder import Builder, BuildSettings
    from nearmt.building.extract import batches_by_length
    from nearmt.corpus import DropCounts, read_pairs
    from nearmt.models import Seq2Seq

    model = Seq2Seq.load(model_name)
    pairs = list(read_pairs([path], source_lang=None, target_lang=None, drops=DropCounts()))[:num_pairs]
    sources = model.tokenize_sources([pair.source for pair in pairs])
    targets = model.tokenize_targets([pair.target for pair in pairs])
    bare, built = [], []
    with tempfile.TemporaryDirectory() as folder:
        memory = Path(folder) / "pairs.tsv"
        memory.write_text("".join(f"{p.source}\t{p.target}\n" for p in pairs), encoding="utf-8")
        for number in range(rounds):
            began = time.perf_counter()
            with torch.inference_mode():
                for batch in batches_by_length(sources, targets, BuildSettings().batch_tokens):
                    ids, mask = model._pad(batch.sources)
                    shifted, _ = model._pad([[model.start_token_id, *target[:-1]] for target in batch.targets])
                    model._model(input_ids=ids, attention_mask=mask, decoder_input_ids=shifted, use_cache=False)
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


def anonymous_megabytes() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024


def build_watched(model: str, path: str, out: str) -> dict[str, float]:
    """Build in this process, sampling its anonymous memory."""
    from nearmt.store import build

    highest, done = [0.0], threading.Event()

    def watch() -> None:
        while not done.wait(0.05):
            highest[0] = max(highest[0], anonymous_megabytes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    store = build(path, model=model, out=out, train=False)
    done.set()
    watcher.join()
    return {"entries": store.manifest.num_entries, "peak_anonymous_mb": round(highest[0], 1)}


def measure_memory(model: str, path: str, num_pairs: int = 4000) -> dict[str, object]:
    from nearmt.corpus import DropCounts, read_pairs

    results = []
    with tempfile.TemporaryDirectory() as folder:
        for factor in (1, 10):
            pairs = read_pairs([path], source_lang=None, target_lang=None, drops=DropCounts())
            part = Path(folder) / f"{factor}.tsv"
            with part.open("w", encoding="utf-8") as out:
                for number, pair in enumerate(pairs):
                    if number == num_pairs * factor:
                        break
                    out.write(f"{pair.source}\t{pair.target}\n")
            command = [sys.executable, __file__, "watched", model, str(part), str(Path(folder) / f"{factor}.store")]
            results.append(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
    growth = results[1]["peak_anonymous_mb"] / results[0]["peak_anonymous_mb"] - 1
    return {"small": results[0], "large": results[1], "growth": round(growth, 4)}


def rate_on_ray(model: object, memory: Path, out: Path, workers: int) -> float:
    """Pairs a second, from the moment that all workers have their model."""
    from nearmt.building.builder import BuildSettings
    from nearmt.building.ray import RaySettings
    from nearmt.store import build

    marks: list[tuple[float, int]] = []  # when, and how many pairs were committed by then
    done = 0

    def listen(stage: str, count: int, total: int | None) -> None:
        nonlocal done
        done = count if stage == "decoding" else done
        if stage == "decoding" or (stage == "workers" and count == total):
            if stage == "workers":
                marks.clear()
            marks.append((time.perf_counter(), done))

    build(memory, model=model, out=out, train=False, settings=BuildSettings(segment_entries=4096),
          cluster=RaySettings(workers=workers), progress=listen)  # fmt: skip
    (first, before), (last, after) = marks[0], marks[-1]
    return (after - before) / (last - first)


def measure_ray(model_name: str, path: str, num_pairs: str = "4000", rounds: int = 3) -> dict[str, object]:
    """Interleaved rounds, each with a cluster of its own; a worker has one thread."""
    from nearmt.corpus import DropCounts, read_pairs
    from nearmt.models import Seq2Seq

    model = Seq2Seq.load(model_name)
    pairs = list(read_pairs([path], source_lang=None, target_lang=None, drops=DropCounts()))[: int(num_pairs)]
    rates: dict[int, list[float]] = {1: [], 2: []}
    with tempfile.TemporaryDirectory() as folder:
        memory = Path(folder) / "pairs.tsv"
        memory.write_text("".join(f"{p.source}\t{p.target}\n" for p in pairs), encoding="utf-8")
        for number in range(rounds):
            for workers, found in rates.items():
                found.append(rate_on_ray(model, memory, Path(folder) / f"{number}-{workers}.store", workers))
    return {
        "pairs": len(pairs),
        "engine": model.engine,
        "pairs_per_second": {str(workers): [round(rate, 1) for rate in found] for workers, found in rates.items()},
        "ratio_of_medians": round(statistics.median(rates[2]) / statistics.median(rates[1]), 3),
    }


def measure_exact(fast: str, slow: str, model_name: str, path: str, num_pairs: str = "500") -> dict[str, object]:
    """The same networks on a store built by int8, with its index, and on one built by torch, with exact search."""
    from nearmt.datastore import Snapshot
    from nearmt.decoding.decoder import Decoder
    from nearmt.evaluation.scores import bleu
    from nearmt.models import Seq2Seq
    from nearmt.retrieval.index import build_index
    from nearmt.retrieval.search import Retriever
    from nearmt.training.devset import load_pairs
    from nearmt.translator import Translator

    plain, whole = Seq2Seq.load(model_name, engine="torch"), Snapshot.open(Path(slow))
    exact = Retriever(whole, build_index(whole, "Flat", 1))
    found: dict[str, object] = {}
    for method in ("base", "adaptive", "robust"):
        quick = Translator(fast, model=model_name, method=method)
        pairs = load_pairs(Path(path), quick.snapshot.manifest.languages).pairs[: int(num_pairs)]
        decoders = {
            quick.model.engine: quick.decoder(quick.method),
            "float32": Decoder(plain, exact if quick.method else None, quick.method, quick.decoding),
        }
        references, outputs = [pair.target for pair in pairs], {}
        for name, decoder in decoders.items():
            sources = decoder.model.tokenize_sources([pair.source for pair in pairs])
            outputs[name] = decoder.texts(decoder.decode(sources))
        one, other = outputs.values()
        found[method] = {
            **{name: round(bleu(texts, references), 2) for name, texts in outputs.items()},
            "same_texts": round(sum(map(str.__eq__, one, other)) / len(pairs), 3),
        }
    return {"sentences": len(references), **found}


def measure_batches(store: str, model_name: str, path: str, num_pairs: str = "500") -> dict[str, object]:
    """The same sentences side by side in batches, and each alone."""
    from nearmt.decoding.decoder import DecodingSettings
    from nearmt.training.devset import load_pairs
    from nearmt.translator import Translator

    found: dict[str, object] = {}
    for method in ("base", "adaptive", "robust"):
        outputs = []
        for size in (32, 1):
            translator = Translator(store, model=model_name, method=method, decoding=DecodingSettings(batch_size=size))
            pairs = load_pairs(Path(path), translator.snapshot.manifest.languages).pairs[: int(num_pairs)]
            outputs.append([one.text for one in translator.translate([pair.source for pair in pairs])])
        found[method] = round(sum(map(str.__eq__, *outputs)) / len(pairs), 4)
    return {"sentences": len(pairs), "same_texts": found}


def measure_tmx(size: int = 10**9) -> dict[str, float]:
    from nearmt.corpus import DropCounts, read_pairs

    words = [f"wort{i}" for i in range(5000)]
    rng = random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.tmx"
        units = 0
        with path.open("w", encoding="utf-8") as out:
            out.write('<?xml version="1.0" encoding="UTF-8"?>\n<tmx version="1.4"><header srclang="de"/><body>\n')
            while out.tell() < size:
                block = []
                for _ in range(1000):
                    text = " ".join(rng.choices(words, k=12))
                    block.append(f'<tu tuid="{units}" changedate="20240501T120000Z"><tuv xml:lang="de-DE"><seg>{text} '
                                 f'<ph x="1">&lt;br&gt;</ph> ende</seg></tuv><tuv xml:lang="en-US"><seg>{text}. end'
                                 "</seg></tuv></tu>\n")  # fmt: skip
                    units += 1
                out.write("".join(block))
            out.write("</body></tmx>\n")
        began = time.perf_counter()
        read = sum(1 for _ in read_pairs([path], source_lang="de", target_lang="en", drops=DropCounts()))
        seconds = time.perf_counter() - began
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return {"megabytes": round(path.stat().st_size / 1e6), "pairs": read, "seconds": round(seconds, 1),
                "peak_resident_mb": round(peak, 1)}  # fmt: skip


def main() -> None:
    commands = {"metak": measure_metak, "build": measure_build, "memory": measure_memory, "ray": measure_ray,
                "exact": measure_exact, "batches": measure_batches, "tmx": measure_tmx,
                "watched": build_watched}  # fmt: skip
    if len(sys.argv) < 2 or sys.argv[1] not in commands:
        sys.exit(__doc__)
    print(json.dumps(commands[sys.argv[1]](*sys.argv[2:])))


if __name__ == "__main__":
    main()
