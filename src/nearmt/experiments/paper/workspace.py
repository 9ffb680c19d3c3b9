"""Caches results by everything they depend on, so that a run continues where the last one stopped."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nearmt.corpus import SentencePair
from nearmt.datastore import replace_file, storage_errors

_FORMAT = 1  # increase it when results change their meaning


def digest(content: Any) -> str:
    """Return a short hash of a JSON value."""
    text = json.dumps(content, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def digest_pairs(pairs: Sequence[SentencePair]) -> str:
    """Return a short hash of the texts of a dev or test set."""
    return digest([[pair.source, pair.target] for pair in pairs])


class Workspace:
    """A folder of results, each named after its kind and a hash of everything it depends on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with storage_errors(folder):
            for name in ("cells", "networks", "stores"):
                (folder / name).mkdir(parents=True, exist_ok=True)

    def find(self, kind: str, key: dict[str, Any]) -> Any:
        """Return a stored result, or None if it is missing or its file is damaged."""
        try:
            content = json.loads(self._cell(kind, key).read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return None
        return content["value"] if isinstance(content, dict) and "value" in content else None

    def keep(self, kind: str, key: dict[str, Any], value: Any) -> Any:
        """Store a result and return it."""
        content = json.dumps({"key": key, "value": value}, ensure_ascii=False, indent=1)
        with storage_errors(self.folder):
            replace_file(self._cell(kind, key), content.encode("utf-8", "surrogatepass"))
        return value

    def get(self, kind: str, key: dict[str, Any], compute: Callable[[], Any]) -> Any:
        """Return a stored result, or compute and store it."""
        found = self.find(kind, key)
        return self.keep(kind, key, compute()) if found is None else found

    def count(self, kind: str) -> int:
        """Return the number of stored results of a kind."""
        return sum(1 for _ in (self.folder / "cells").glob(f"{kind}-*.json"))

    def network_file(self, key: dict[str, Any]) -> Path:
        """Return the path for the network trained with this key."""
        return self.folder / "networks" / f"{digest([_FORMAT, key])}.safetensors"

    def store_folder(self, name: str, key: dict[str, Any]) -> Path:
        """Return the path for the store built with this key."""
        plain = "".join(char if char.isalnum() else "-" for char in name.lower())
        return self.folder / "stores" / f"{plain}-{digest([_FORMAT, key])}.store"

    def _cell(self, kind: str, key: dict[str, Any]) -> Path:
        return self.folder / "cells" / f"{kind}-{digest([_FORMAT, key])}.json"


def as_key(value: Any) -> dict[str, Any]:
    """Return a settings object as part of a key."""
    return json.loads(json.dumps(asdict(value), default=str))  # type: ignore[no-any-return]
