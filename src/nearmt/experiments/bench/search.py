"""Times the search alone: by rows and K, and as the store grows."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from nearmt.datastore import Snapshot
from nearmt.experiments.bench.timing import Timing, interleaved, summarize
from nearmt.progress import Progress
from nearmt.retrieval.index import FaissIndex, build_index, choose_factory
from nearmt.retrieval.indexing import IndexSettings
from nearmt.retrieval.modes import TokenRetriever
from nearmt.retrieval.search import PROBES, Retriever

_SMALLEST = 100_000
_ROWS = 64


def search_by_k(
    retriever: Retriever, rows: Sequence[int], sizes: Sequence[int], rounds: int
) -> dict[str, dict[str, Timing]]:
    """Return rows → K → seconds of one search."""
    states = {count: torch.zeros(count, retriever.snapshot.manifest.key_dims) for count in rows}
    results = {}
    for count in rows:
        runs = {f"K={k}": searching(retriever, states[count], k) for k in sizes}
        results[str(count)] = interleaved(runs, 4 * rounds, pause=0.0)
    return results


def searching(retriever: TokenRetriever, states: torch.Tensor, k: int) -> Callable[[], object]:
    """Return a function that runs one search, for timing."""
    return lambda: retriever.search(states, k)


def growth(snapshot: Snapshot, queries: torch.Tensor, k: int, rounds: int, progress: Progress) -> dict[str, Any]:
    """Time one search of the first 100,000 entries and of larger parts, each with the default index for its size."""
    sizes = []
    size = _SMALLEST
    while size < len(snapshot):
        sizes.append(size)
        size = int(size * 10**0.5)
    sizes.append(len(snapshot))
    runs: dict[str, Callable[[], object]] = {}
    settings = IndexSettings.of(snapshot.manifest)
    for number, count in enumerate(sizes):
        progress("growth", number, len(sizes))
        part = first_entries(snapshot, count)
        factory = choose_factory(count, snapshot.manifest.key_dims)
        index: FaissIndex = build_index(part, factory, settings.num_probes or PROBES)
        retriever = Retriever(part, index, settings.reranked)
        runs[str(count)] = searching(retriever, queries[:_ROWS], k)
    timings = interleaved(runs, 4 * rounds, pause=0.0)
    progress("growth", len(sizes), len(sizes))
    return summarize(timings)


def first_entries(whole: Snapshot, count: int) -> Snapshot:
    """Return a snapshot of the first entries only."""
    extent = whole.manifest.extent
    shorter = replace(extent, counts=replace(extent.counts, entries=count))
    return Snapshot(whole.folder, replace(whole.manifest, extent=shorter, index=None))
