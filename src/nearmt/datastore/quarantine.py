"""The folder of a store where a repair keeps the damaged files. Only the user deletes it.

The files are hard-linked into it before the repair is committed, so they need no extra space, and a kill loses neither
them nor the store. On a file system without hard links they are moved there right after the commit.
"""

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nearmt.datastore.files import folder_bytes, fsync_folder
from nearmt.datastore.manifest import COPY, NAME, Manifest, now

_PREFIX = "damaged-"


@dataclass(frozen=True)
class QuarantinedFiles:
    """A folder with the damaged files of an earlier repair."""

    folder: str
    bytes: int


class Quarantine:
    """Keeps damaged files and folders of a store: `prepare` runs before the commit, `finish` right after it."""

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self.folder, self.names = folder, [name for name in names if (folder / name).exists()]
        time = now().replace("-", "").replace(":", "")
        taken = {path.name for path in folder.glob(f"{_PREFIX}*")}
        choices = (f"{_PREFIX}{time}{f'-{number}' if number > 1 else ''}" for number in range(1, len(taken) + 2))
        self.path = folder / next(name for name in choices if name not in taken)
        self._moved_later: list[str] = []

    def prepare(self) -> None:
        """Link the files into the new folder. The store does not change."""
        self.path.mkdir()
        for name in self.names:
            old, new = self.folder / name, self.path / name
            try:
                if old.is_dir():
                    new.mkdir()
                    for path in old.iterdir():
                        os.link(path, new / path.name)
                    fsync_folder(new)
                else:
                    os.link(old, new)
            except OSError:
                if not _has_no_links(self.path):
                    raise
                shutil.rmtree(new, ignore_errors=True)
                if name in (NAME, COPY):
                    shutil.copy2(old, new)  # the commit replaces them
                else:
                    self._moved_later.append(name)
        fsync_folder(self.path)
        fsync_folder(self.folder)

    def finish(self) -> None:
        """Move the files that could not be linked."""
        for name in self._moved_later:
            (self.folder / name).rename(self.path / name)


def _has_no_links(folder: Path) -> bool:
    """True if the file system has no hard links."""
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


def quarantined_files(folder: Path, manifest: Manifest) -> list[QuarantinedFiles]:
    """The damaged files that repairs have kept, oldest first."""
    finished = [path for path in sorted(folder.glob(f"{_PREFIX}*")) if not _is_unfinished(path, folder, manifest)]
    return [QuarantinedFiles(str(path), folder_bytes(path)) for path in finished]


def remove_unfinished_quarantine(folder: Path, manifest: Manifest) -> None:
    """Delete the folder of a repair that was killed before its commit. The store itself still has the files."""
    for path in folder.glob(f"{_PREFIX}*"):
        if _is_unfinished(path, folder, manifest):
            shutil.rmtree(path, ignore_errors=True)


def _is_unfinished(quarantine: Path, folder: Path, manifest: Manifest) -> bool:
    """True if the store still uses every file there, so nothing is lost without the folder."""
    used = {manifest.data_folder, NAME, COPY, *manifest.index_files, *manifest.network_files}
    kept = {path.relative_to(quarantine) for path in quarantine.rglob("*") if path.is_file()}
    others = {path for path in kept if path.name not in (NAME, COPY)} or kept  # a later commit replaces the manifest
    return all(path.parts[0] in used and _is_same(quarantine / path, folder / path) for path in others)


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except FileNotFoundError:
        return False
