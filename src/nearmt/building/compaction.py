"""Compaction: rewriting the live data of a store with a new index, while the store is in use.

The long part runs in a work folder, without the store's lock. At the end, under the lock, the commits made meanwhile
are copied too, and one new manifest commits the result.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from nearmt.datastore import (
    Copier,
    Manifest,
    Snapshot,
    compaction_lock,
    describe_problems,
    folder_bytes,
    fsync_folder,
    inspect,
    remove_unfinished_quarantine,
    storage_errors,
    write_lock,
)
from nearmt.errors import StoreDamagedError, StoreError, StoreLockedError
from nearmt.outputs import UNFINISHED
from nearmt.progress import Progress, silent
from nearmt.retrieval.indexing import Indexes, IndexSettings, forget_collections, index_snapshot
from nearmt.retrieval.lists.building import can_be_in_lists, is_lists

_WORK = "compacting"  # the folder of a running compaction
LOCK_TIMEOUT = 120.0  # seconds to wait for another writer


@dataclass(frozen=True)
class Compacted:
    """The result of a compaction."""

    sentences: int
    entries: int
    removed_sentences: int
    bytes_before: int
    bytes_after: int

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def compact(folder: Path, progress: Progress = silent) -> Compacted:
    """Rewrite the live data with a new index. Removed data is in no file afterwards."""
    with compaction_lock(folder):
        start = Snapshot.open(folder)
        _refuse_damaged(start, progress)
        before = folder_bytes(folder)
        with work_folder(folder) as work:
            copier = Copier(work, folder, start.manifest)
            total = len(start.sentences)
            copier.copy(start, on_copied=lambda done: progress("copying", done, total))
            copied = Snapshot(work, copier.manifest)
            indexes = index_snapshot(copied, index_settings_for(copied, start.manifest), progress, folder)
            with write_lock(folder, wait=LOCK_TIMEOUT):
                current = _current_manifest(start, "compacted")
                latest = Snapshot(folder, current)
                copier.copy(latest)
                manifest = commit_rewrite(folder, work, current, copier.manifest, indexes)
                sentences = int(Snapshot(folder, manifest).live_sentences.sum())
                remove_unused_files(folder, manifest)
                forget_collections(folder, current, manifest)
    return Compacted(
        sentences,
        manifest.num_entries,
        len(latest.sentences) - manifest.num_sentences,
        before,
        folder_bytes(folder),
    )


def reindex(folder: Path, settings: IndexSettings, progress: Progress = silent) -> Indexes:
    """Rebuild the indexes of a store with these settings while it is in use. Trained networks are kept."""
    with compaction_lock(folder):
        start = Snapshot.open(folder)
        settings.check(start.manifest.key_dims)
        indexes = index_snapshot(start, settings, progress)
        with write_lock(folder, wait=LOCK_TIMEOUT):
            current = _current_manifest(start, "indexed")
            manifest = indexes.added_to(current)
            manifest.save(folder)
            remove_unused_files(folder, manifest)
            forget_collections(folder, current, manifest)
    return indexes


def _current_manifest(start: Snapshot, activity: str) -> Manifest:
    """The latest manifest of a store, which must not have been rebuilt since the snapshot."""
    current, before = Manifest.load(start.folder), start.manifest
    if (current.created_at, current.generation) != (before.created_at, before.generation):
        raise StoreError(f"{start.folder} was rebuilt while it was being {activity}")
    return current


@contextmanager
def work_folder(folder: Path) -> Iterator[Path]:
    """An empty folder inside the store that is deleted afterwards."""
    work = folder / _WORK
    with storage_errors(folder):
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def commit_rewrite(folder: Path, work: Path, current: Manifest, new: Manifest, indexes: Indexes | None) -> Manifest:
    """Move the finished files of the work folder into the store and commit the new manifest."""
    names = () if new.generation == current.generation else (new.data_folder,)
    with storage_errors(folder):
        for name in (*names, *(indexes.files if indexes is not None else ())):
            target = folder / name
            if target.is_dir():  # from a compaction that was killed before its commit
                shutil.rmtree(target)
            if (work / name).exists():
                (work / name).rename(target)
        fsync_folder(folder)
    key_range = current.key_range or new.key_range
    rewritten = {"generation": new.generation, "extent": new.extent, "key_range": key_range}
    manifest = indexes.added_to(current, **rewritten) if indexes is not None else current.changed(**rewritten)
    manifest.save(folder)
    return manifest


def remove_unused_files(folder: Path, manifest: Manifest) -> None:
    """Delete data and index files that the manifest does not name. Damaged files kept by a repair stay.

    The caller holds the store's lock.
    """
    remove_unfinished_quarantine(folder, manifest)
    named = {manifest.data_folder, *manifest.index_files}
    for path in (*folder.glob("data-*"), *folder.glob("index-*"), *folder.glob(f".*{UNFINISHED}")):
        if path.name not in named:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def remove_leftovers(folder: Path, manifest: Manifest) -> None:
    """Delete unused files, and the work folder of a killed compaction unless one is running."""
    remove_unused_files(folder, manifest)
    if (folder / _WORK).exists():
        try:
            with compaction_lock(folder):
                shutil.rmtree(folder / _WORK, ignore_errors=True)
        except StoreLockedError:
            pass  # it is running


def _refuse_damaged(snapshot: Snapshot, progress: Progress) -> None:
    """Refuse a damaged store: the copy of damaged bytes would get matching checksums."""
    total = snapshot.manifest.extent.segments
    findings = inspect(snapshot.folder, snapshot.manifest, lambda number: progress("checking", number, total))
    problems = describe_problems(replace(findings, files={}))
    if problems:
        raise StoreDamagedError(
            f"{snapshot.folder}: {problems[0]}: repair the store before compacting it, see nearmt verify"
        )


def index_settings_for(copied: Snapshot, original: Manifest) -> IndexSettings:
    """The index settings of the original; if the copy has too few entries for them, the index is chosen by size."""
    settings = IndexSettings.of(original)
    is_impossible = is_lists(settings.factory) and not can_be_in_lists(copied)
    if is_impossible or settings.fewest_entries(original.key_dims) > len(copied):
        return replace(settings, factory=None)
    return settings
