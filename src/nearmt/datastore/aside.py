"""Damaged files that a repair sets aside: a folder of the store that nobody but the user deletes.

The files are linked into it before the repair is committed, so they take no room twice and a kill loses neither them
nor the store. Where the file system has no links they are moved there right after the commit.
"""

import contextlib
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nearmt.datastore.files import fsync_folder
from nearmt.datastore.manifest import COPY, NAME, Manifest, now

_PREFIX = "damaged-"


@dataclass(frozen=True)
class SetAside:
    """A folder with damaged files that an earlier repair kept."""

    folder: str
    bytes: int


class Keeper:
    """Sets files and folders of a store aside: `prepare` before the commit, `finish` right after it."""

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self.folder, self.names = folder, [name for name in names if (folder / name).exists()]
        time = now().replace("-", "").replace(":", "")
        taken = {path.name for path in folder.glob(f"{_PREFIX}*")}
        choices = (f"{_PREFIX}{time}{f'-{number}' if number > 1 else ''}" for number in range(1, len(taken) + 2))
        self.place = folder / next(name for name in choices if name not in taken)
        self._is_moved_later: list[str] = []

    def prepare(self) -> None:
        """Link everything into its new place. The store stays as it is."""
        self.place.mkdir()
        for name in self.names:
            old, new = self.folder / name, self.place / name
            try:
                if old.is_dir():
                    new.mkdir()
                    for path in old.iterdir():
                        os.link(path, new / path.name)
                    fsync_folder(new)
                else:
                    os.link(old, new)
            except OSError:
                if not _has_no_links(self.place):
                    raise
                shutil.rmtree(new, ignore_errors=True)
                if name in (NAME, COPY):
                    shutil.copy2(old, new)  # the commit replaces them
                else:
                    self._is_moved_later.append(name)
        fsync_folder(self.place)
        fsync_folder(self.folder)

    def finish(self) -> None:
        """Move what could not be linked."""
        for name in self._is_moved_later:
            (self.folder / name).rename(self.place / name)


def _has_no_links(folder: Path) -> bool:
    """Whether the file system cannot link at all."""
    one, other = folder / ".one", folder / ".other"
    try:
        one.touch()
        os.link(one, other)
    except OSError:
        return True
    finally:
        for path in (one, other):
            path.unlink(missing_ok=True)
    return False


def set_aside_before(folder: Path, manifest: Manifest) -> list[SetAside]:
    """What repairs have set aside and nobody has deleted yet, oldest first."""
    finished = [path for path in sorted(folder.glob(f"{_PREFIX}*")) if not _is_unfinished(path, folder, manifest)]
    return [SetAside(str(path), _bytes_of(path)) for path in finished]


def sweep_unfinished(folder: Path, manifest: Manifest) -> None:
    """Take away what a repair linked that was killed before its commit: the store itself still holds the files."""
    for path in folder.glob(f"{_PREFIX}*"):
        if _is_unfinished(path, folder, manifest):
            shutil.rmtree(path, ignore_errors=True)


def _is_unfinished(place: Path, folder: Path, manifest: Manifest) -> bool:
    """Whether every file there is one that the store still uses, so that nothing is lost without it."""
    used = {manifest.data_folder, NAME, COPY, *manifest.index_files, *manifest.network_files}
    kept = {path.relative_to(place) for path in place.rglob("*") if path.is_file()}
    others = {path for path in kept if path.name not in (NAME, COPY)} or kept  # a later commit replaces the manifest
    return all(path.parts[0] in used and _is_same(place / path, folder / path) for path in others)


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except FileNotFoundError:
        return False


def _bytes_of(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_size if path.is_file() else 0
    return total
