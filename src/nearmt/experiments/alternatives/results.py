"""The folder of a comparison: one JSON file for each finished step, and the processor time of unfinished ones."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nearmt.datastore import replace_file
from nearmt.errors import SettingError
from nearmt.outputs import claim_folder

_WRITE_EVERY = 5.0  # seconds


class Results:
    """Finished steps by name."""

    def __init__(self, folder: Path) -> None:
        claim_folder(folder, "alternatives")
        self.folder = folder

    def check(self, made_from: dict[str, Any]) -> None:
        """Refuse to continue a comparison of other files or settings."""
        kept = self.get("made-from", lambda: made_from)
        if kept != json.loads(json.dumps(made_from)):
            raise SettingError(f"{self.folder} has the results of other files or settings: choose another folder")

    def find(self, name: str) -> Any:
        """The result of a step, or None."""
        path = self._path(name)
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

    def get(self, name: str, compute: Callable[[], Any]) -> Any:
        """The result of a step, computed and kept if it is missing."""
        if self.find(name) is None:
            self.keep(name, compute())
        return self.find(name)

    def keep(self, name: str, value: Any) -> None:
        """Store a result."""
        replace_file(self._path(name), json.dumps(value, ensure_ascii=False, indent=1).encode())

    def names(self) -> list[str]:
        """The names of all finished steps."""
        return sorted(path.name.removesuffix(".json") for path in self.folder.glob("*.json"))

    def clock(self, name: str) -> "Clock":
        """The clock of a step that continues after an interruption."""
        return Clock(self._path(f"{name}.seconds"))

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.json"


class Clock:
    """Processor seconds of this process since it was made, and those that the file has of earlier processes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._before = float(json.loads(path.read_text())) if path.exists() else 0.0
        self._began, self._written = time.process_time(), time.monotonic()

    @property
    def seconds(self) -> float:
        return self._before + time.process_time() - self._began

    def tick(self) -> None:
        """Note the time now and then."""
        if time.monotonic() - self._written > _WRITE_EVERY:
            replace_file(self._path, json.dumps(self.seconds).encode())
            self._written = time.monotonic()
