"""Where a store stands while it is being built, and opening one whose build is complete."""

from pathlib import Path

from nearmt.datastore.snapshot import Snapshot
from nearmt.errors import StoreError


def partial_folder(out: Path) -> Path:
    """Where a build stands until it is finished."""
    return out.with_name(f"{out.name}.partial")


def is_begun(partial: Path) -> bool:
    """Whether a build stands there; one that was killed before its first commit has not begun."""
    return (partial / "manifest.json").is_file()


def refuse_foreign(out: Path) -> None:
    """Never overwrite what is not a store."""
    if out.exists() and not (out / "manifest.json").is_file():
        raise StoreError(f"{out} exists and is not a nearmt store: choose another place")


def open_finished(folder: Path) -> Snapshot:
    """A store whose build is complete."""
    partial = partial_folder(folder)
    if not folder.exists() and partial.exists():
        raise StoreError(f"{folder} is not finished: run the same nearmt build again with --resume")
    snapshot = Snapshot.open(folder)
    if not snapshot.manifest.build.is_complete:
        raise StoreError(f"{folder} is not finished: run the same nearmt build again with --resume")
    return snapshot
