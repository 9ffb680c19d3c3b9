"""Unpacks the model into a Hugging Face folder in the user's cache directory, once."""

import errno
import hashlib
import json
import os
import shutil
import tempfile
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import platformdirs
from safetensors import SafetensorError
from safetensors.numpy import load, save_file

_PACKED = Path(__file__).parent / "model"
_PACKED_WEIGHTS = "weights.safetensors.gz"
_PACKED_SHA256 = "0a9dc7d6dd1fd9d7cd42e85c69ed312d0d5abb2a64ad2a405fa8d2dbee7959a7"
_WEIGHTS = "model.safetensors"
_CHECKSUMS = "checksums.json"  # file name → SHA-256
_STEP = ".step"
_CHUNK_BYTES = 1 << 21
_ABANDONED_SECONDS = 3600  # after which a temporary folder is that of a killed process

Progress = Callable[[str, int, int | None], None]


def model_folder(progress: Progress = lambda stage, done, total: None) -> Path:
    """Return the model's folder; the first call unpacks it, which takes a few seconds and 152 MB.

    The folder appears in one step, so a killed process leaves no half of it, and processes can race for it. A damaged
    folder is unpacked again.
    """
    folder = platformdirs.user_cache_path("nearmt") / f"opus-mt-fr-en-{_PACKED_SHA256[:8]}"
    if _is_intact(folder):
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(folder)
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as temporary:
            unpacked = Path(temporary, "model")
            _unpack(unpacked, progress)
            if not _is_intact(folder):
                shutil.rmtree(folder, ignore_errors=True)
                _rename(unpacked, folder)
    except SafetensorError as error:
        raise OSError(errno.ENOSPC, f"Cannot unpack the demo's model (152 MB) here: {error}", str(folder)) from error
    except OSError as error:
        if error.errno == errno.EIO:
            raise
        reason = f"Cannot unpack the demo's model (152 MB) here: {error.strerror}; set XDG_CACHE_HOME"
        raise OSError(error.errno, reason, str(folder)) from error
    return folder


def _is_intact(folder: Path) -> bool:
    try:
        checksums: dict[str, str] = json.loads((folder / _CHECKSUMS).read_text(encoding="utf-8"))
        return all(_sha256(folder / name) == checksum for name, checksum in checksums.items())
    except (OSError, ValueError, AttributeError):
        return False


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _remove_abandoned(folder: Path) -> None:
    for left in folder.parent.glob(f".{folder.name}-*"):
        with suppress(FileNotFoundError):  # its owner finished
            if time.time() - left.stat().st_mtime > _ABANDONED_SECONDS:
                shutil.rmtree(left, ignore_errors=True)


def _rename(unpacked: Path, folder: Path) -> None:
    try:
        unpacked.rename(folder)
    except OSError:  # another process was faster, or something else has this name
        if not _is_intact(folder):
            raise


def _unpack(folder: Path, progress: Progress) -> None:
    shutil.copytree(_PACKED, folder, ignore=shutil.ignore_patterns(_PACKED_WEIGHTS))
    tensors = _widen(_inflate(_PACKED / _PACKED_WEIGHTS, progress))
    save_file(tensors, folder / _WEIGHTS, metadata={"format": "pt"})
    (folder / _WEIGHTS).chmod(0o644)
    checksums = {path.name: _sha256(path) for path in sorted(folder.iterdir())}
    (folder / _CHECKSUMS).write_text(json.dumps(checksums, indent=1), encoding="utf-8")
    for path in folder.iterdir():
        _sync(path)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _inflate(path: Path, progress: Progress) -> dict[str, np.ndarray]:
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != _PACKED_SHA256:
        raise OSError(errno.EIO, "The file is damaged; install nearmt-demo again", str(path))
    inflate = zlib.decompressobj(wbits=31)
    parts = []
    for start in range(0, len(content), _CHUNK_BYTES):
        parts.append(inflate.decompress(content[start : start + _CHUNK_BYTES]))
        progress("unpacking", min(start + _CHUNK_BYTES, len(content)) // 10**6, len(content) // 10**6)
    return load(b"".join(parts))


def _widen(packed: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Multiply the integers of every matrix by the steps of its rows."""
    tensors = {}
    for name, tensor in packed.items():
        if name + _STEP in packed:
            tensor = (tensor * packed[name + _STEP].astype(np.float32)).astype(np.float16)
        if not name.endswith(_STEP):
            tensors[name] = tensor
    return tensors
