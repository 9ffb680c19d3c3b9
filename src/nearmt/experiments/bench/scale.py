"""Measures a large store: time and RAM to build it, recall, and search time compared with smaller parts of it."""

from typing import Any

import torch

from nearmt.datastore import Snapshot
from nearmt.experiments.bench.peak_memory import anonymous_bytes
from nearmt.experiments.bench.search import first_entries, searching
from nearmt.experiments.bench.timing import interleaved, summarize
from nearmt.retrieval.index import build_index, choose_factory
from nearmt.retrieval.search import PROBES, Retriever

_ROWS = 128
_DIVISORS = (20, 10, 2)  # smaller parts of the store to compare with, each with the default index for its size


def scale(snapshot: Snapshot, queries: torch.Tensor, costs: dict[str, Any], k: int, rounds: int) -> dict[str, Any]:
    """Return what a store costs to build, to hold in memory and to search, compared with smaller parts of it."""
    before = anonymous_bytes()
    whole = Retriever(snapshot)
    whole.search(queries[:_ROWS], k)
    held = anonymous_bytes() - before
    index = snapshot.manifest.index
    num_probes = index.num_probes if index is not None else PROBES
    runs = {}
    for divisor in _DIVISORS:
        part = first_entries(snapshot, len(snapshot) // divisor)
        factory = choose_factory(len(part), snapshot.manifest.key_dims)
        smaller = Retriever(part, build_index(part, factory, num_probes), whole.reranked)
        runs[str(len(part))] = searching(smaller, queries[:_ROWS], k)
    runs[str(len(snapshot))] = searching(whole, queries[:_ROWS], k)
    timings = interleaved(runs, 4 * rounds, pause=0.0)
    return {
        "entries": len(snapshot),
        "made": costs,
        "held_bytes": held,
        "recall": index.recall.as_dict() if index is not None and index.recall is not None else None,
        "rows": _ROWS,
        "search": summarize(timings),
    }
