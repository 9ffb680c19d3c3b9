"""Identifies the model that made a state: its name, and fingerprints of its files."""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

# Keys of tokenizer_config.json for the path or the version of the files, which do not affect tokenisation.
_VOLATILE_KEYS = frozenset({"name_or_path", "transformers_version", "special_tokens_map_file", "tokenizer_file"})
_CHUNK_BYTES = 1 << 22


@dataclass(frozen=True)
class ModelIdentity:
    """What must agree between a store and the model that reads it."""

    name: str
    revision: str | None
    architecture: str
    weights: str
    tokenizer: str
    key_layer: str
    width: int

    def as_dict(self) -> dict[str, Any]:
        """The identity as plain JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "ModelIdentity":
        """The identity from what `as_dict` returned."""
        return cls(
            name=str(values["name"]),
            revision=None if values["revision"] is None else str(values["revision"]),
            architecture=str(values["architecture"]),
            weights=str(values["weights"]),
            tokenizer=str(values["tokenizer"]),
            key_layer=str(values["key_layer"]),
            width=int(values["width"]),
        )


def fingerprint_weights(files: Iterable[Path]) -> str:
    """One sha256 over the names and contents of the weight files."""
    return _combine((path.name, _hash_file(path)) for path in files)


def fingerprint_tokenizer(files: Iterable[Path]) -> str:
    """One sha256 over the tokenizer's files; spaces and the order of keys in JSON files do not matter."""
    return _combine((path.name, hashlib.sha256(_canonical_bytes(path)).hexdigest()) for path in files)


def _combine(hashes: Iterable[tuple[str, str]]) -> str:
    lines = "".join(f"{name} {digest}\n" for name, digest in sorted(hashes))
    return hashlib.sha256(lines.encode()).hexdigest()


def _hash_file(path: Path) -> str:
    resolved = path.resolve()
    # The Hugging Face cache names a large file by its sha256.
    if resolved.parent.name == "blobs" and re.fullmatch(r"[0-9a-f]{64}", resolved.name):
        return resolved.name
    digest = hashlib.sha256()
    with resolved.open("rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _canonical_bytes(path: Path) -> bytes:
    content = path.read_bytes()
    if path.suffix != ".json":
        return content
    try:
        value = json.loads(content)
    except ValueError:
        return content
    if path.name == "tokenizer_config.json" and isinstance(value, dict):
        value = {key: item for key, item in value.items() if key not in _VOLATILE_KEYS}
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
