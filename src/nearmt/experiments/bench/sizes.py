"""Measures retrieval from stores of several sizes: building, opening, look-ups, memory and translation."""

import os
import resource
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nearmt.datastore import SENTENCES, TOKENS, Snapshot
from nearmt.decoding.decoder import Decoder
from nearmt.experiments.bench.grown import grown_store
from nearmt.experiments.bench.materials import build_costs, describe_store
from nearmt.experiments.bench.own import num_tokens, real_sources, real_texts
from nearmt.experiments.bench.peak_memory import anonymous_bytes, mapped_bytes
from nearmt.experiments.bench.settings import BenchSettings
from nearmt.experiments.bench.timing import Timing, interleaved, summarize
from nearmt.methods.damping import STAGES, Damping
from nearmt.methods.metak import MetaK
from nearmt.progress import Progress
from nearmt.retrieval.modes import StoreRetriever, open_retriever
from nearmt.retrieval.sentences.retriever import SentenceRetriever
from nearmt.translator import Translator

_DIVISORS = (20, 5, 1)  # of the number of entries: the sizes to compare
_LOOKED_UP, _COLD = 512, 64  # sources; with few of them, the files stay out of memory
_CERTAIN = 30.0  # a score so high that the other sizes get a share of less than 1e-12


def measure_sizes(
    source: Snapshot, translator: Callable[[], Translator], out: Path, settings: BenchSettings, progress: Progress
) -> dict[str, Any]:
    """Grow a store to several sizes in the folder `out`, and measure each; `translator` has the store's own model."""
    assert settings.text is not None
    real_texts(settings.text)  # fails now rather than after hours
    stores = {}
    for divisor in _DIVISORS:
        size = settings.entries // divisor
        stores[str(size)] = grown_store(out / f"grown-{size}.store", source, size, progress).folder
    found = {size: measure_store(folder, settings.text) for size, folder in stores.items()}
    return {"stores": found, "translation": translation_times(translator(), stores, settings, progress)}


def unused_network(max_k: int) -> MetaK:
    """A network that computes everything and then trusts the model alone, so that every store gives the same output."""
    network = MetaK(max_k, 10.0)
    network.damping = Damping(1.0, (9.0,) * len(STAGES), (10.0,) * len(STAGES), 4.0)
    with torch.no_grad():
        *_, biases = network.parameters()  # of the layer that scores the sizes
        biases[0] += _CERTAIN
    return network.eval()


def measure_store(folder: Path, text: Path) -> dict[str, Any]:
    """What a store costs to build, to open and to look sources up in, with its files in memory and not."""
    texts, snapshot = real_texts(text), Snapshot.open(folder)
    found = {"sentences": len(snapshot.sentences), "store": describe_store(snapshot), "made": build_costs(folder)}
    del snapshot
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        found["tokens"] = process.submit(open_tokens_index, folder).result()
    for name, count in (("warm", _LOOKED_UP), ("cold", _COLD)):
        # A process of its own: its memory is that of the store, and files that it does not map can leave the cache.
        with ProcessPoolExecutor(1, get_context("spawn")) as process:
            found[name] = process.submit(look_up, folder, texts[: count + 1], name == "cold").result()
    return found


def open_tokens_index(folder: Path) -> dict[str, Any]:
    """Open the index of tokens, whose files are in memory, as a process that translates does."""
    anonymous, mapped = anonymous_bytes(), mapped_bytes()
    opened, opening = _opened(folder, TOKENS)
    found = {
        "opening": opening,
        "anonymous_bytes": anonymous_bytes() - anonymous,
        "mapped_bytes": mapped_bytes() - mapped,
    }
    del opened
    return found


def _opened(folder: Path, retrieval: str) -> tuple[StoreRetriever, dict[str, float]]:
    """A retriever, and the seconds that opening it took."""
    began, began_processor = time.perf_counter(), time.process_time()
    retriever = open_retriever(Snapshot.open(folder), retrieval)
    return retriever, {"seconds": time.perf_counter() - began, "processor": time.process_time() - began_processor}


def look_up(folder: Path, texts: Sequence[str], is_cold: bool) -> dict[str, Any]:
    """Open a store and look up every source but the first; `is_cold` removes its files from memory before."""
    torch.set_num_threads(1)
    if is_cold:
        drop_from_cache(folder)
    anonymous, mapped = anonymous_bytes(), mapped_bytes()
    retriever, opening = _opened(folder, SENTENCES)
    assert isinstance(retriever, SentenceRetriever)
    retriever.start(texts[:1])  # loads the compiled code
    if is_cold:
        drop_from_cache(folder)  # opening has read the sentence index to check it
    else:
        for source in texts[1:]:
            retriever.start([source])
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_majflt
    choosing, copying, both = [], [], []  # processor time, which other processes hardly change; and time
    for source in texts[1:]:
        began, began_processor = time.perf_counter(), time.thread_time()
        chosen = retriever.choose([source])
        chose = time.thread_time()
        retriever.among(chosen)
        copying.append(time.thread_time() - chose)
        choosing.append(chose - began_processor)
        both.append(time.perf_counter() - began)
    reads = resource.getrusage(resource.RUSAGE_SELF).ru_majflt - faults
    return {
        "opening": opening,
        "choosing": _quantiles(choosing),
        "copying": _quantiles(copying),
        "both": _quantiles(both),
        "reads": reads / max(1, len(choosing)),
        "anonymous_bytes": anonymous_bytes() - anonymous,
        "mapped_bytes": mapped_bytes() - mapped,
        "sources": len(choosing),
    }


def _quantiles(seconds: Sequence[float]) -> dict[str, float]:
    return {"median": float(np.median(seconds)), "95 %": float(np.quantile(seconds, 0.95))} if seconds else {}


def drop_from_cache(folder: Path) -> None:
    """Remove the files of a folder from the system's cache, where it offers that; what a process maps stays."""
    if not hasattr(os, "posix_fadvise"):
        return
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def translation_times(
    translator: Translator, stores: Mapping[str, Path], settings: BenchSettings, progress: Progress
) -> dict[str, Any]:
    """Return batch size → the model alone or retrieval and size → seconds and ratios, in interleaved rounds."""
    assert settings.text is not None
    model, method, rounds = translator.model, unused_network(max(settings.k)), settings.rounds
    texts, sources = real_sources(settings.text, model)
    retrievers = {
        f"{retrieval} {size}": open_retriever(Snapshot.open(folder), retrieval)
        for retrieval in (SENTENCES, TOKENS)
        for size, folder in stores.items()
    }
    results = {}
    total = len(settings.batches) * (1 + len(retrievers)) * (rounds + 1)
    done = 0

    def report() -> None:
        nonlocal done
        done += 1
        progress("real text", done, total)

    for batch in settings.batches:
        decoding = replace(translator.decoding, batch_size=batch)
        decoders = {"base": Decoder(model, None, None, decoding)} | {
            name: Decoder(model, retriever, method, decoding) for name, retriever in retrievers.items()
        }
        runs = {name: partial(num_tokens, decoder, sources, texts) for name, decoder in decoders.items()}
        timings = interleaved(runs, rounds, on_run=report)
        found = {name: _compared(timings, name, next(iter(stores))) for name in runs}
        times = summarize(timings)
        results[str(batch)] = {
            name: {**times[name], **found[name], "sentences": len(sources), "tokens": runs[name]()} for name in runs
        }
    return results


def _compared(timings: Mapping[str, Timing], name: str, smallest: str) -> dict[str, float]:
    """Ratios of a timing to the model alone, and to the same retrieval from the smallest store."""
    timing, retrieval = timings[name], name.partition(" ")[0]
    first = timings.get(f"{retrieval} {smallest}", timing)
    return {
        "processor_ratio": timing.processor_over(timings["base"]),
        "of_smallest": timing.over(first),
        "processor_of_smallest": timing.processor_over(first),
    }
