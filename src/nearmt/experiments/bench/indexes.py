"""Indexes of one memory side by side: what each finds of the same queries, and how long one search takes."""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from nearmt.datastore import Snapshot
from nearmt.errors import SettingError
from nearmt.experiments.bench.search import searching
from nearmt.experiments.bench.timing import interleaved
from nearmt.experiments.report import Table
from nearmt.progress import Progress, silent
from nearmt.retrieval.index import build_index
from nearmt.retrieval.index.milvus import drop_collection, make_collection
from nearmt.retrieval.indexing import IndexSettings
from nearmt.retrieval.recall import held_out_states, measure_recall
from nearmt.retrieval.search import Retriever


def compare_indexes(
    snapshot: Snapshot,
    asked: Sequence[IndexSettings],
    *,
    num_queries: int = 2000,
    rows: int = 128,
    k: int = 32,
    rounds: int = 10,
    progress: Progress = silent,
) -> list[dict[str, Any]]:
    """Make every index, ask all the same states of held-out sentences, and time searches of `rows` in turn.

    The store stays as it is. What is made in Milvus for this is dropped afterwards.
    """
    if not len(snapshot):
        raise SettingError(f"{snapshot.folder} is empty: there is nothing to compare on")
    states, excluded = held_out_states(snapshot, num_queries)
    names = [_name(snapshot, settings) for settings in asked]
    found: list[dict[str, Any]] = []
    with ExitStack() as made:
        retrievers = {}
        for name, settings in zip(names, asked, strict=True):
            settings.check(snapshot.manifest.width)
            began = time.perf_counter()
            retrievers[name] = _retriever(snapshot, settings, made, progress)
            seconds = time.perf_counter() - began
            progress("comparing", len(found), len(asked))
            recall = measure_recall(retrievers[name], states, excluded, min(k, len(snapshot)))
            found.append({"index": name, "making_seconds": seconds, "recall": recall.as_dict()})
        runs = {name: searching(retriever, states[:rows], k) for name, retriever in retrievers.items()}
        timings = interleaved(runs, rounds)
    progress("comparing", len(asked), len(asked))
    return [
        {**one, "rows": min(rows, len(states)), "median": timings[name].median, "spread": timings[name].spread}
        for name, one in zip(names, found, strict=True)
    ]


def _name(snapshot: Snapshot, settings: IndexSettings) -> str:
    factory = settings.factory_for(len(snapshot), snapshot.manifest.width)
    return f"{factory} at {settings.uri}" if settings.uri is not None else f"faiss {factory}"


def _retriever(snapshot: Snapshot, settings: IndexSettings, made: ExitStack, progress: Progress) -> Retriever:
    total = len(snapshot)
    if settings.milvus is None:
        factory = settings.factory_for(total, snapshot.manifest.width)
        index = build_index(snapshot, factory, settings.num_probes, lambda done: progress("indexing", done, total))
        return Retriever(snapshot, index, settings.reranked)
    assert settings.uri is not None
    record = make_collection(
        snapshot.folder, snapshot, settings.uri, settings.milvus, settings.num_probes,
        lambda done: progress("indexing", done, total),
    )  # fmt: skip
    own = snapshot.manifest.index
    assert record.collection is not None
    if own is None or record.collection != own.collection:
        made.callback(drop_collection, settings.uri, record.collection)
    return Retriever(Snapshot(snapshot.folder, replace(snapshot.manifest, index=record)), reranked=settings.reranked)


def as_table(found: Sequence[dict[str, Any]]) -> Table:
    """The comparison for people."""
    first = found[0]
    headings = ("index", "made in", f"of the {first['recall']['k']} nearest", "of their weight",
                f"{first['rows']} rows", "spread")  # fmt: skip
    return Table(
        headings,
        tuple(
            (
                one["index"],
                f"{one['making_seconds']:,.0f} s",
                f"{one['recall']['recall']:.2%}",
                f"{one['recall']['mass']:.2%}",
                f"{1000 * one['median']:,.1f} ms",
                f"{one['spread']:.0%}",
            )
            for one in found
        ),
    )
