"""Folders of a store while it is being built, and opening a store whose build is complete."""

from pathlib import Path

from nearmt.datastore.manifest import NAME
from nearmt.datastore.snapshot import Snapshot
from nearmt.errors import StoreError


def partial_folder(out: Path) -> Path:
    """The folder of an unfinished build."""
    return out.with_name(f"{out.name}.partial")


def has_manifest(folder: Path) -> bool:
    """True if a store or an unfinished build is in the folder."""
    return (folder / NAME).is_file()


def check_output_folder(out: Path, *, resume: bool, force: bool) -> None:
    """Refuse to overwrite a store or an unfinished build unless asked to, and anything else in any case."""
    partial = partial_folder(out)
    if out.exists() and not has_manifest(out):
        raise StoreError(f"{out} exists and is not a nearmt store: choose another folder")
    if out.exists() and not force:
        raise StoreError(f"{out} exists: choose another folder, or replace it with `force`")
    if has_manifest(partial) and not resume and not force:
        raise StoreError(f"{partial} is an unfinished build: continue it with `resume`, or start over with `force`")


def open_finished(folder: Path) -> Snapshot:
    """Open a store whose build is complete."""
    unfinished = StoreError(f"{folder} is not finished: resume its build with nearmt build")
    if not folder.exists() and partial_folder(folder).exists():
        raise unfinished
    snapshot = Snapshot.open(folder)
    if not snapshot.manifest.build.is_complete:
        raise unfinished
    return snapshot
