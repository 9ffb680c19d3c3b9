"""Compares indexes of one store: the recall of each on the same queries, and the time of one search."""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from nearmt.datastore import LISTS, Snapshot
from nearmt.errors import SettingError
from nearmt.experiments.bench.search import searching
from nearmt.experiments.bench.timing import interleaved
from nearmt.experiments.report import Table
from nearmt.progress import Progress, silent
from nearmt.retrieval.index import build_index
from nearmt.retrieval.index.milvus import drop_collection, make_collection
from nearmt.retrieval.indexing import IndexSettings
from nearmt.retrieval.lists.building import LIST_PROBES, build_lists, load_lists
from nearmt.retrieval.lists.retriever import ListRetriever
from nearmt.retrieval.modes import TokenRetriever
from nearmt.retrieval.recall import held_out_states, measure_recall
from nearmt.retrieval.search import PROBES, Retriever


def compare_indexes(
    snapshot: Snapshot,
    candidates: Sequence[IndexSettings],
    *,
    num_queries: int = 2000,
    rows: int = 128,
    k: int = 32,
    rounds: int = 10,
    progress: Progress = silent,
) -> list[dict[str, Any]]:
    """Build every index, measure their recall on the same held-out states, and time searches of `rows` rows.

    The store does not change. Milvus collections created for the comparison are dropped afterwards.
    """
    if not len(snapshot):
        raise SettingError(f"{snapshot.folder} is empty: it has no states to search for")
    states, excluded = held_out_states(snapshot, num_queries)
    names = [_name(snapshot, settings) for settings in candidates]
    results: list[dict[str, Any]] = []
    with ExitStack() as cleanup:
        retrievers = {}
        for name, settings in zip(names, candidates, strict=True):
            settings.check(snapshot.manifest.key_dims)
            began = time.perf_counter()
            retrievers[name] = _retriever(snapshot, settings, cleanup, progress)
            seconds = time.perf_counter() - began
            progress("comparing", len(results), len(candidates))
            recall = measure_recall(retrievers[name], states, excluded, min(k, len(snapshot)))
            results.append({"index": name, "making_seconds": seconds, "recall": recall.as_dict()})
        runs = {name: searching(retriever, states[:rows], k) for name, retriever in retrievers.items()}
        timings = interleaved(runs, rounds)
    progress("comparing", len(candidates), len(candidates))
    return [
        {**result, "rows": min(rows, len(states)), "median": timings[name].median, "spread": timings[name].spread}
        for name, result in zip(names, results, strict=True)
    ]


def _name(snapshot: Snapshot, settings: IndexSettings) -> str:
    if settings.uses_lists(snapshot):
        return settings.factory or LISTS
    factory = settings.factory_for(len(snapshot), snapshot.manifest.key_dims)
    return f"{factory} at {settings.uri}" if settings.uri is not None else f"faiss {factory}"


def _retriever(snapshot: Snapshot, settings: IndexSettings, cleanup: ExitStack, progress: Progress) -> TokenRetriever:
    total, probes = len(snapshot), settings.num_probes or PROBES
    if settings.milvus is None and settings.uses_lists(snapshot):
        folder = Path(cleanup.enter_context(TemporaryDirectory()))
        record = build_lists(snapshot, settings.factory, settings.num_probes or LIST_PROBES, folder / LISTS, progress)
        return ListRetriever(snapshot, load_lists(snapshot, record, folder))
    if settings.milvus is None:
        factory = settings.factory_for(total, snapshot.manifest.key_dims)
        index = build_index(snapshot, factory, probes, lambda done: progress("indexing", done, total))
        return Retriever(snapshot, index, settings.reranked)
    assert settings.uri is not None
    record = make_collection(
        snapshot.folder,
        snapshot,
        settings.uri,
        settings.milvus,
        probes,
        lambda done: progress("indexing", done, total),
    )
    own = snapshot.manifest.index
    assert record.collection is not None
    if own is None or record.collection != own.collection:
        cleanup.callback(drop_collection, settings.uri, record.collection)
    return Retriever(Snapshot(snapshot.folder, replace(snapshot.manifest, index=record)), reranked=settings.reranked)


def as_table(results: Sequence[dict[str, Any]]) -> Table:
    """Return the comparison as a table."""
    k, rows = results[0]["recall"]["k"], results[0]["rows"]
    return Table(
        ("index", "build time", f"recall of the {k} nearest", "recalled mass", f"search of {rows} rows", "spread"),
        tuple(
            (
                result["index"],
                f"{result['making_seconds']:,.0f} s",
                f"{result['recall']['recall']:.2%}",
                f"{result['recall']['mass']:.2%}",
                f"{1000 * result['median']:,.1f} ms",
                f"{result['spread']:.0%}",
            )
            for result in results
        ),
    )
