"""Compaction: what counts of a store is written anew, with a new index, while readers go on.

The long work of a compaction is done beside the store and without its lock; only at the end, under the lock, it is
brought up to date with what was committed meanwhile and put in place by one manifest.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from nearmt.datastore import (
    Copier,
    IndexRecord,
    Manifest,
    Snapshot,
    compaction_lock,
    describe_problems,
    fsync_folder,
    inspect,
    storage_errors,
    sweep_unfinished,
    write_lock,
)
from nearmt.errors import StoreDamagedError, StoreError, StoreLockedError
from nearmt.outputs import UNFINISHED
from nearmt.progress import Progress, silent
from nearmt.retrieval.indexing import IndexSettings, forget_collections, index_snapshot

_WORK = "compacting"  # the folder of a compaction under way
PATIENCE = 120.0  # seconds to wait for another writer


@dataclass(frozen=True)
class Compacted:
    """What a compaction did."""

    sentences: int
    entries: int
    removed_sentences: int
    bytes_before: int
    bytes_after: int

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def compact(folder: Path, progress: Progress = silent) -> Compacted:
    """Fold additions into the index and leave out what was removed. Afterwards it is in no file any more."""
    with compaction_lock(folder):
        start = Snapshot.open(folder)
        _refuse_damaged(start, progress)
        before = _bytes_of(folder)
        with work_folder(folder) as work:
            copier = Copier(work, start.manifest)
            total = len(start.sentences)
            copier.copy(start, on_copied=lambda done: progress("copying", done, total))
            copied = Snapshot(work, copier.manifest)
            index = index_snapshot(copied, settings_for(copied, start.manifest), progress, folder)
            with write_lock(folder, wait=PATIENCE):
                current = Manifest.load(folder)
                if (current.created_at, current.generation) != (start.manifest.created_at, start.manifest.generation):
                    raise StoreError(f"{folder} was built anew while it was being compacted")
                latest = Snapshot(folder, current)
                copier.copy(latest)
                manifest = put_in_place(folder, work, current, copier.manifest, index)
                sentences = int(Snapshot(folder, manifest).live_sentences.sum())
                sweep(folder, manifest)
                forget_collections(folder, current, manifest)
    return Compacted(
        sentences,
        manifest.num_entries,
        len(latest.sentences) - manifest.num_sentences,
        before,
        _bytes_of(folder),
    )


def reindex(folder: Path, settings: IndexSettings, progress: Progress = silent) -> IndexRecord:
    """Rebuild the index of a store with these settings while it is in use. Trained networks stay."""
    with compaction_lock(folder):
        start = Snapshot.open(folder)
        settings.check(start.manifest.width)
        index = index_snapshot(start, settings, progress)
        with write_lock(folder, wait=PATIENCE):
            current = Manifest.load(folder)
            if (current.created_at, current.generation) != (start.manifest.created_at, start.manifest.generation):
                raise StoreError(f"{folder} was built anew while it was being indexed")
            manifest = current.changed(index=index)
            manifest.save(folder)
            sweep(folder, manifest)
            forget_collections(folder, current, manifest)
    return index


@contextmanager
def work_folder(folder: Path) -> Iterator[Path]:
    """An empty folder of the store that is gone afterwards."""
    work = folder / _WORK
    with storage_errors(folder):
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def put_in_place(folder: Path, work: Path, current: Manifest, new: Manifest, index: IndexRecord | None) -> Manifest:
    """Move finished files of the work folder to where a manifest can name them, and commit it."""
    names = () if new.generation == current.generation else (new.data_folder,)
    with storage_errors(folder):
        for name in (*names, *(index.files if index is not None else ())):
            target = folder / name
            if target.is_dir():  # left behind by one that was killed before its commit
                shutil.rmtree(target)
            if (work / name).exists():
                (work / name).rename(target)
        fsync_folder(folder)
    key_range = current.key_range or new.key_range
    manifest = current.changed(generation=new.generation, extent=new.extent, index=index, key_range=key_range)
    manifest.save(folder)
    return manifest


def sweep(folder: Path, manifest: Manifest) -> None:
    """Take away what no manifest names any more, damaged files that were set aside excepted.

    The caller holds the store's lock.
    """
    sweep_unfinished(folder, manifest)
    named = {manifest.data_folder, *manifest.index_files}
    for path in (*folder.glob("data-*"), *folder.glob("index-*"), *folder.glob(f".*{UNFINISHED}")):
        if path.name not in named:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def sweep_all(folder: Path, manifest: Manifest) -> None:
    """The same, and what a killed compaction left, if none is under way."""
    sweep(folder, manifest)
    if (folder / _WORK).exists():
        try:
            with compaction_lock(folder):
                shutil.rmtree(folder / _WORK, ignore_errors=True)
        except StoreLockedError:
            pass  # it is under way


def _refuse_damaged(snapshot: Snapshot, progress: Progress) -> None:
    """A copy of damaged bytes would have checksums that fit."""
    total = snapshot.manifest.extent.segments
    findings = inspect(snapshot.folder, snapshot.manifest, lambda number: progress("checking", number, total))
    problems = describe_problems(replace(findings, files={}))
    if problems:
        raise StoreDamagedError(
            f"{snapshot.folder}: {problems[0]}: repair it first (run nearmt verify {snapshot.folder})"
        )


def settings_for(copied: Snapshot, original: Manifest) -> IndexSettings:
    """How the original was indexed; of too few entries for that, the index is chosen by size."""
    settings = IndexSettings.of(original)
    if settings.fewest_entries(original.width) <= len(copied):
        return settings
    return replace(settings, factory=None)


def _bytes_of(folder: Path) -> int:
    """What a folder takes, while others may be writing in it."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                total += (Path(parent) / name).stat().st_size
    return total
