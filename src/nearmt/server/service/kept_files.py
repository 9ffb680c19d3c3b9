"""Files that were made for clients and wait to be fetched."""

import secrets
import shutil
import tempfile
import time
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

_KEPT_SECONDS = 3600
_MAX_KEPT = 100


@dataclass(frozen=True)
class KeptFile:
    """Where a file is, what its client calls it, and how long it is kept."""

    path: Path
    shown: str
    until: float


class KeptFiles:
    """Translated files by secret names; the oldest go first."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._files: OrderedDict[str, KeptFile] = OrderedDict()

    def folder(self) -> Path:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="nearmt-translated-"))
        return self._folder

    def keep(self, path: Path, shown: str) -> str:
        self._forget_old()
        id = secrets.token_urlsafe(24)
        self._files[id] = KeptFile(path, shown, time.time() + _KEPT_SECONDS)
        return id

    def find(self, id: str) -> KeptFile | None:
        self._forget_old()
        return self._files.get(id)

    def _forget_old(self) -> None:
        while self._files and (len(self._files) > _MAX_KEPT or next(iter(self._files.values())).until < time.time()):
            _, old = self._files.popitem(last=False)
            old.path.unlink(missing_ok=True)

    def close(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
