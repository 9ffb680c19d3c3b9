"""Moving a finished build into place. A kill at any moment leaves a complete store."""

import shutil
from contextlib import suppress
from pathlib import Path

from nearmt.datastore import Manifest, exchange, fsync_folder, has_manifest, partial_folder, storage_errors
from nearmt.errors import StoreError
from nearmt.retrieval.indexing import forget_collections


def publish(partial: Path, out: Path) -> None:
    """Move a finished build to `out`. Only now is an older store there deleted."""
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


def resume_publish(out: Path) -> None:
    """Clean up after a `publish` that was killed: make the new store a partial build again, or delete the old one."""
    ready, old = _ready_folder(out), _old_folder(out)
    with storage_errors(out):
        if has_manifest(ready) and (not has_manifest(out) or _made_at(ready) > _made_at(out)):
            ready.rename(partial_folder(out))
        for left in (ready, old):
            if left.exists():
                discard_store(left)


def discard_store(folder: Path) -> None:
    """Delete a store and its Milvus collections."""
    with suppress(StoreError):
        forget_collections(folder, Manifest.load(folder), None)
    shutil.rmtree(folder)


def _made_at(folder: Path) -> str:
    return Manifest.load(folder).created_at


def _ready_folder(out: Path) -> Path:
    """The folder from which a finished build is swapped with an older store, which is then deleted there."""
    return out.with_name(f".{out.name}.ready")


def _old_folder(out: Path) -> Path:
    """The folder of an older store for a moment, on systems that cannot swap names."""
    return out.with_name(f".{out.name}.old")
