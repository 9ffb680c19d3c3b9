"""Putting a finished build in its place, in a way that a kill at any moment leaves a whole store."""

import shutil
from contextlib import suppress
from pathlib import Path

from nearmt.datastore import Manifest, exchange, fsync_folder, is_begun, partial_folder, storage_errors
from nearmt.errors import StoreError
from nearmt.retrieval.indexing import forget_collections


def publish(partial: Path, out: Path) -> None:
    """Put a finished build in its place; a store that stood there goes only now."""
    ready, old = _ready_folder(out), _old_folder(out)
    with storage_errors(out):
        if not out.exists():
            partial.rename(out)
        else:
            partial.rename(ready)
            if not exchange(ready, out):
                out.rename(old)
                ready.rename(out)
        fsync_folder(out.parent)
        for left in (ready, old):
            if left.exists():
                discard_store(left)


def take_up(out: Path) -> None:
    """Take up what a kill in the middle of `publish` left: go on with the new store, or throw the old one away."""
    ready, old = _ready_folder(out), _old_folder(out)
    with storage_errors(out):
        if is_begun(ready) and (not is_begun(out) or _made_at(ready) > _made_at(out)):
            ready.rename(partial_folder(out))
        for left in (ready, old):
            if left.exists():
                discard_store(left)


def discard_store(folder: Path) -> None:
    """Remove a store, and what it has in Milvus."""
    with suppress(StoreError):
        forget_collections(folder, Manifest.load(folder), None)
    shutil.rmtree(folder)


def _made_at(folder: Path) -> str:
    return Manifest.load(folder).created_at


def _ready_folder(out: Path) -> Path:
    """Where a finished build waits to take the place of an older store, which then stands there until it is gone."""
    return out.with_name(f".{out.name}.ready")


def _old_folder(out: Path) -> Path:
    """Where an older store stands for a moment, on systems that cannot swap names."""
    return out.with_name(f".{out.name}.old")
