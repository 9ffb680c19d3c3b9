"""Measures what changes cost a search: a store with recent additions and removals against the same store compacted."""

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nearmt.building.builder import Builder, BuildSettings
from nearmt.building.compaction import compact
from nearmt.datastore import CommitData, Snapshot, append_commit
from nearmt.experiments.bench.materials import empty_store, fill, matching_manifest, timing_states
from nearmt.experiments.bench.search import searching
from nearmt.experiments.bench.timing import Timing, interleaved
from nearmt.models import Seq2Seq
from nearmt.progress import Progress
from nearmt.retrieval.search import Retriever

_RECENT, _REMOVED = 0.1, 0.1  # of all entries


def living_stores(
    folder: Path, model: Seq2Seq, source: Snapshot, entries: int, settings: BuildSettings, progress: Progress
) -> dict[str, Snapshot]:
    """Return a store that has changed since it was indexed, and a compacted copy. Later runs reuse both."""
    compacted = folder.with_name(f"{folder.stem}-compacted.store")
    described = {"living": entries, "source": source.manifest.created_at, "index": str(settings.indexing)}
    manifests = [matching_manifest(path, described) for path in (folder, compacted)]
    if [manifest and manifest.generation for manifest in manifests] != [1, 2]:
        for old in (folder, compacted):
            shutil.rmtree(old, ignore_errors=True)
        _change(folder, model, source, entries, settings, described, progress)
        # Hard links are safe: compaction writes new files only.
        shutil.copytree(folder, compacted, copy_function=_link_or_copy)
        compact(compacted, progress)
    return {"as it stands": Snapshot.open(folder), "compacted": Snapshot.open(compacted)}


def _link_or_copy(source: str, target: str) -> str:
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
    return target


def _change(
    folder: Path,
    model: Seq2Seq,
    source: Snapshot,
    entries: int,
    settings: BuildSettings,
    described: dict[str, Any],
    progress: Progress,
) -> None:
    """Index most of the entries, then add the rest and remove a random part of all."""
    pieces = timing_states(source, model.width, entries)
    next(pieces)  # the queries
    first, recent = _split(pieces, entries - int(_RECENT * entries))
    folder.mkdir(parents=True)
    manifest = empty_store(model, settings.key_type, described)
    fill(folder, manifest, first, model.vocabulary_size, lambda done: progress("storing", done, entries)).save(folder)
    manifest = Builder(folder, model, settings, progress).build_index()
    manifest = fill(folder, manifest, recent, model.vocabulary_size, lambda done: progress("storing", done, entries))
    count = manifest.extent.counts.units
    removed = np.random.default_rng(3).choice(count, int(_REMOVED * count), replace=False)
    data = CommitData.without_entries(manifest.width, removed_units=removed.tolist())
    append_commit(folder, manifest, data).changed().save(folder)


def _split(pieces: Iterator[np.ndarray], num_first: int) -> tuple[Iterator[np.ndarray], Iterator[np.ndarray]]:
    """Split pieces after a number of rows. Read the first iterator to its end before the second."""
    rest: list[np.ndarray] = []

    def first() -> Iterator[np.ndarray]:
        left = num_first
        while left:
            piece = next(pieces)
            yield piece[:left]
            if len(piece) > left:
                rest.append(piece[left:])
            left -= min(left, len(piece))

    def second() -> Iterator[np.ndarray]:
        yield from rest
        yield from pieces

    return first(), second()


def search_living(
    stores: Mapping[str, Snapshot], queries: torch.Tensor, rows: Sequence[int], k: int, rounds: int
) -> dict[str, dict[str, Timing]]:
    """Return rows → store → seconds of one search."""
    retrievers = {name: Retriever(snapshot) for name, snapshot in stores.items()}
    return {
        str(count): interleaved(
            {name: searching(retriever, queries[:count], k) for name, retriever in retrievers.items()},
            8 * rounds,
            pause=0.0,
        )
        for count in rows
    }
