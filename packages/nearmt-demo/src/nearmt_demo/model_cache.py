"""Unpacks the model into a Hugging Face folder in the user's cache directory, once."""

import errno
import hashlib
import shutil
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import platformdirs
from safetensors.numpy import load, save_file

_PACKED = Path(__file__).parent / "model"
_PACKED_WEIGHTS = "weights.safetensors.gz"
_WEIGHTS = "model.safetensors"
_PACKED_SHA256 = "0a9dc7d6dd1fd9d7cd42e85c69ed312d0d5abb2a64ad2a405fa8d2dbee7959a7"
_STEP = ".step"
_CHUNK_BYTES = 1 << 21

Progress = Callable[[str, int, int | None], None]


def model_folder(progress: Progress = lambda stage, done, total: None) -> Path:
    """Return the model's folder; the first call unpacks it, which takes a few seconds and 152 MB.

    The folder appears in one step, so a killed process leaves no half of it, and processes can race for it.
    """
    folder = platformdirs.user_cache_path("nearmt") / f"opus-mt-fr-en-{_PACKED_SHA256[:8]}"
    if _is_complete(folder):
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as temporary:
        unpacked = Path(temporary, "model")
        _unpack(unpacked, progress)
        if not _is_complete(folder):
            shutil.rmtree(folder, ignore_errors=True)  # files are missing from it
            try:
                unpacked.rename(folder)
            except OSError:  # another process was faster
                if not _is_complete(folder):
                    raise
    return folder


def _is_complete(folder: Path) -> bool:
    names = {path.name for path in _PACKED.iterdir()} - {_PACKED_WEIGHTS} | {_WEIGHTS}
    return all((folder / name).is_file() for name in names)


def _unpack(folder: Path, progress: Progress) -> None:
    shutil.copytree(_PACKED, folder, ignore=shutil.ignore_patterns(_PACKED_WEIGHTS))
    tensors = _widen(_inflate(_PACKED / _PACKED_WEIGHTS, progress))
    save_file(tensors, folder / _WEIGHTS, metadata={"format": "pt"})


def _inflate(path: Path, progress: Progress) -> dict[str, np.ndarray]:
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != _PACKED_SHA256:
        raise OSError(errno.EIO, "The file is damaged; install nearmt-demo again", str(path))
    inflate = zlib.decompressobj(wbits=31)
    parts = []
    for start in range(0, len(content), _CHUNK_BYTES):
        parts.append(inflate.decompress(content[start : start + _CHUNK_BYTES]))
        progress("unpacking", min(start + _CHUNK_BYTES, len(content)), len(content))
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
