"""What was computed is kept by what it was computed from, so that a run goes on where the last one stopped."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nearmt.corpus import SentencePair
from nearmt.datastore import replace_file, storage_errors

_FORMAT = 1  # raised when what is computed changes its meaning


def digest(content: Any) -> str:
    """A short name for a JSON value."""
    text = json.dumps(content, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def digest_pairs(pairs: Sequence[SentencePair]) -> str:
    """A short name for a dev or test set: its texts, not where they came from."""
    return digest([[pair.source, pair.target] for pair in pairs])


class Workspace:
    """A folder of results, each named by its kind and the digest of everything it depends on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with storage_errors(folder):
            for name in ("cells", "networks", "stores"):
                (folder / name).mkdir(parents=True, exist_ok=True)

    def find(self, kind: str, key: dict[str, Any]) -> Any:
        """What is known of this, or None. A file that a crash or a hand damaged counts as unknown."""
        try:
            found = json.loads(self._cell(kind, key).read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return None
        return found["value"] if isinstance(found, dict) and "value" in found else None

    def keep(self, kind: str, key: dict[str, Any], value: Any) -> Any:
        """Write a result down."""
        content = json.dumps({"key": key, "value": value}, ensure_ascii=False, indent=1)
        with storage_errors(self.folder):
            replace_file(self._cell(kind, key), content.encode("utf-8", "surrogatepass"))
        return value

    def network_file(self, key: dict[str, Any]) -> Path:
        """Where the network trained with this key lies, or will."""
        return self.folder / "networks" / f"{digest([_FORMAT, key])}.safetensors"

    def store_folder(self, name: str, key: dict[str, Any]) -> Path:
        """Where the store built with this key lies, or will."""
        plain = "".join(char if char.isalnum() else "-" for char in name.lower())
        return self.folder / "stores" / f"{plain}-{digest([_FORMAT, key])}.store"

    def _cell(self, kind: str, key: dict[str, Any]) -> Path:
        return self.folder / "cells" / f"{kind}-{digest([_FORMAT, key])}.json"


def as_key(value: Any) -> dict[str, Any]:
    """A settings object as part of a key."""
    return json.loads(json.dumps(asdict(value), default=str))  # type: ignore[no-any-return]
