"""What changes cost a search: a memory with recent additions and removals, beside the same memory compacted."""

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nearmt.building.builder import Builder, BuildSettings
from nearmt.building.compaction import compact
from nearmt.datastore import Manifest, SegmentData, Snapshot, append_segment
from nearmt.errors import StoreError
from nearmt.experiments.bench.materials import empty_store, fill, timing_states
from nearmt.experiments.bench.search import searching
from nearmt.experiments.bench.timing import Timing, interleaved
from nearmt.models import Seq2Seq
from nearmt.progress import Progress
from nearmt.retrieval.search import Retriever

_RECENT, _REMOVED = 0.1, 0.1  # of all entries


def living_stores(
    folder: Path, model: Seq2Seq, source: Snapshot, entries: int, settings: BuildSettings, progress: Progress
) -> dict[str, Snapshot]:
    """A store of real states that has changed since it was indexed, and its compacted twin. Kept and used again."""
    twin = folder.with_name(f"{folder.stem}-compacted.store")
    described = {"living": entries, "source": source.manifest.created_at, "index": str(settings.indexing)}
    if not (_is_made(folder, described, 1) and _is_made(twin, described, 2)):
        for place in (folder, twin):
            shutil.rmtree(place, ignore_errors=True)
        _change(folder, model, source, entries, settings, described, progress)
        # Neither store writes into files that the other one reads.
        shutil.copytree(folder, twin, copy_function=_linked)
        compact(twin, progress)
    return {"as it stands": Snapshot.open(folder), "compacted": Snapshot.open(twin)}


def _is_made(folder: Path, described: dict[str, Any], generation: int) -> bool:
    try:
        manifest = Manifest.load(folder)
    except StoreError:
        return False
    return manifest.build.inputs == [described] and manifest.generation == generation


def _linked(one: str, other: str) -> str:
    try:
        os.link(one, other)
    except OSError:
        shutil.copyfile(one, other)
    return other


def _change(
    folder: Path,
    model: Seq2Seq,
    source: Snapshot,
    entries: int,
    settings: BuildSettings,
    described: dict[str, Any],
    progress: Progress,
) -> None:
    """Index the greater part, then add the rest and remove some of all."""
    pieces = timing_states(source, model.width, entries)
    next(pieces)  # to ask with
    first, recent = _split(pieces, entries - int(_RECENT * entries))
    folder.mkdir(parents=True)
    manifest = empty_store(model, settings.key_type, described)
    fill(folder, manifest, first, model.vocabulary_size, lambda done: progress("storing", done, entries)).save(folder)
    manifest = Builder(folder, model, settings, progress).build_index()
    manifest = fill(folder, manifest, recent, model.vocabulary_size, lambda done: progress("storing", done, entries))
    count = manifest.extent.counts.units
    removed = np.random.default_rng(3).choice(count, int(_REMOVED * count), replace=False)
    data = SegmentData.without_entries(manifest.width, removed_units=removed.tolist())
    append_segment(folder, manifest, data).changed().save(folder)


def _split(pieces: Iterator[np.ndarray], at: int) -> tuple[Iterator[np.ndarray], Iterator[np.ndarray]]:
    """The first rows of some pieces, and the rest, to be taken in this order."""
    rest: list[np.ndarray] = []

    def first() -> Iterator[np.ndarray]:
        left = at
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
    """Seconds of one search; rows → store → timing."""
    retrievers = {name: Retriever(snapshot) for name, snapshot in stores.items()}
    return {
        str(count): interleaved(
            {name: searching(retriever, queries[:count], k) for name, retriever in retrievers.items()},
            8 * rounds,
            pause=0.0,
        )
        for count in rows
    }
