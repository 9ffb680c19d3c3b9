"""Translated files that clients can download for a while."""

import secrets
import shutil
import tempfile
import time
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

_EXPIRY_SECONDS = 3600
_MAX_FILES = 100


@dataclass(frozen=True)
class Download:
    """A file on disk, the name that the client gave it, and when it expires."""

    path: Path
    name: str
    expires_at: float


class Downloads:
    """Files by random ids. Expired files are deleted, and the oldest if there are too many."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._files: OrderedDict[str, Download] = OrderedDict()

    def new_path(self, suffix: str) -> Path:
        """A path for a new file."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="nearmt-translated-"))
        return self._folder / f"{secrets.token_hex(16)}{suffix}"

    def add(self, path: Path, name: str) -> str:
        """Offer a file for download; returns its id."""
        self._delete_old()
        id = secrets.token_urlsafe(24)
        self._files[id] = Download(path, name, time.time() + _EXPIRY_SECONDS)
        return id

    def find(self, id: str) -> Download | None:
        self._delete_old()
        return self._files.get(id)

    def _delete_old(self) -> None:
        while self._files and (
            len(self._files) > _MAX_FILES or next(iter(self._files.values())).expires_at < time.time()
        ):
            _, old = self._files.popitem(last=False)
            old.path.unlink(missing_ok=True)

    def close(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
