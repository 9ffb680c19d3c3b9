"""Encodings of keys: how many dimensions of a decoder state are stored, and in which type.

Reduced keys are the first principal components of the states. They keep squared distances nearly as they are, in a
fraction of the space. A key of type int8 has one byte per dimension, scaled to a range.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from nearmt.compiled.projection import project_rows
from nearmt.datastore.files import replace_file
from nearmt.datastore.manifest import Manifest
from nearmt.errors import StoreDamagedError

KEY_TYPES: dict[str, np.dtype[Any]] = {
    "float16": np.dtype("<f2"),
    "float32": np.dtype("<f4"),
    "int8": np.dtype("u1"),
}
PROJECTION = "projection.float32"
DIMS = 96  # of reduced keys
_LEVELS = 255
_MARGIN = 0.1  # added to the range on both sides, as a share of it: later keys may exceed the first
_OUTLIERS = 1e-4  # share of the first keys beyond each end of the range of reduced keys
_KEYS_PER_DIM = 8  # fewer keys than this do not tell the principal components; they are stored whole
_MAX_FITTED = 65_536


@dataclass(frozen=True)
class KeyCode:
    """How keys are stored. The rounding of int8 is that of faiss's QT_8bit."""

    key_type: str
    dims: int
    lowest: np.ndarray | None = None  # (dims,) float32, for int8
    extent: np.ndarray | None = None  # (dims,) float32, for int8
    projection: np.ndarray | None = None  # (width, dims) float32: orthonormal columns; None stores states whole

    @classmethod
    def of(cls, folder: Path, manifest: Manifest) -> "KeyCode":
        """The code of a store's keys."""
        described: Mapping[str, Any] = manifest.key_range or {}
        lowest, extent = (
            np.array(described[name], np.float32) if name in described else None for name in ("lowest", "extent")
        )
        checksum = described.get("projection")
        projection = None if checksum is None else _read_projection(folder, manifest, checksum)
        return cls(manifest.key_type, manifest.key_dims, lowest, extent, projection)

    @property
    def dtype(self) -> np.dtype[Any]:
        return KEY_TYPES[self.key_type]

    @cached_property
    def level(self) -> float | None:
        """The squared distance of two neighbouring values of a dimension, if it is the same in all dimensions."""
        if self.extent is None or not (self.extent == self.extent[0]).all():
            return None
        return float(self.extent[0] / _LEVELS) ** 2

    def project(self, states: np.ndarray) -> np.ndarray:
        """States (n, width) as points in the space of the keys, (n, dims) float32."""
        points = states.astype(np.float32, copy=False)
        if self.projection is None or states.shape[1] == self.dims:  # stored keys are in that space already
            return points
        projected = np.empty((len(points), self.dims), np.float32)
        unchanged = np.zeros(self.dims, np.float32), np.ones(self.dims, np.float32)
        # Not a library's product, whose rounding would depend on the other rows.
        project_rows(np.ascontiguousarray(points), 0, len(points), self.projection, *unchanged, projected)
        return projected

    def lift(self, points: np.ndarray) -> np.ndarray:
        """Points (n, dims) as states (n, width): what a projection left out is 0."""
        if self.projection is None:
            return points
        lifted: np.ndarray = points @ self.projection.T
        return lifted

    @cached_property
    def levels_line(self) -> tuple[np.ndarray, np.ndarray]:
        """(dims,) each: points minus the first, times the second, are in units of int8 values, not rounded."""
        assert self.lowest is not None
        assert self.extent is not None
        factors = (_LEVELS / self.extent).astype(np.float32)
        return (self.lowest + np.float32(0.5) / factors).astype(np.float32), factors

    def levels(self, points: np.ndarray) -> np.ndarray:
        """Points (n, dims) in units of int8 values, not rounded."""
        lowest, factors = self.levels_line
        found: np.ndarray = (points - lowest) * factors
        return found

    def encode(self, keys: np.ndarray) -> np.ndarray:
        """Encode states; keys that are already encoded are returned unchanged."""
        if keys.dtype == np.uint8 or not len(keys):
            return np.ascontiguousarray(keys, self.dtype).reshape(len(keys), self.dims)
        points = self.project(keys)
        if self.key_type != "int8":
            return np.ascontiguousarray(points, self.dtype)
        assert self.lowest is not None
        assert self.extent is not None
        levels = (points.astype(np.float32) - self.lowest) / self.extent * _LEVELS
        written: np.ndarray = np.clip(levels, 0, _LEVELS).astype(np.uint8)
        return written

    def decode(self, written: np.ndarray) -> np.ndarray:
        """(…, dims) float32."""
        if self.key_type != "int8":
            return np.ascontiguousarray(written, np.float32)
        if self.lowest is None or self.extent is None:  # no key was written yet
            return np.zeros(written.shape, np.float32)
        decoded: np.ndarray = self.lowest + (written.astype(np.float32) + np.float32(0.5)) / _LEVELS * self.extent
        return decoded


def _read_projection(folder: Path, manifest: Manifest, checksum: str) -> np.ndarray:
    path = folder / manifest.data_folder / PROJECTION
    try:
        content = path.read_bytes()
    except OSError as error:
        raise StoreDamagedError(f"{path} is missing: run nearmt verify") from error
    if hashlib.sha256(content).hexdigest() != checksum:
        raise StoreDamagedError(f"{path} is damaged: run nearmt verify")
    return np.frombuffer(content, np.dtype("<f4")).reshape(manifest.width, manifest.key_dims)


def fit_key_code(folder: Path, manifest: Manifest, keys: np.ndarray) -> dict[str, Any]:
    """How the keys of a store are coded, from its first keys, as the manifest stores it.

    The principal components are written to the store's data folder.
    """
    numbers = keys[:_MAX_FITTED].astype(np.float32)
    dims = manifest.dims
    if dims is None or dims >= manifest.width or len(keys) < _KEYS_PER_DIM * dims:
        return _full_range(keys.astype(np.float32)) if manifest.key_type == "int8" else {"dims": manifest.width}
    projection = _principal_components(numbers, dims)
    content = np.ascontiguousarray(projection, "<f4").tobytes()
    data_folder = folder / manifest.data_folder
    data_folder.mkdir(exist_ok=True)
    replace_file(data_folder / PROJECTION, content)
    described: dict[str, Any] = {"dims": dims, "projection": hashlib.sha256(content).hexdigest()}
    return described | (_even_range(numbers @ projection) if manifest.key_type == "int8" else {})


def _principal_components(keys: np.ndarray, dims: int) -> np.ndarray:
    """(width, dims): the directions of greatest variance, greatest first."""
    centred = (keys - keys.mean(axis=0)).astype(np.float64)
    _, directions = np.linalg.eigh(centred.T @ centred)
    found: np.ndarray = directions[:, ::-1][:, :dims].astype(np.float32)
    return found


def _full_range(keys: np.ndarray) -> dict[str, Any]:
    """The range of each dimension."""
    lowest, highest = keys.min(axis=0), keys.max(axis=0)
    extent = np.maximum(highest - lowest, 1e-6)
    return _as_lists(lowest - _MARGIN * extent, (1 + 2 * _MARGIN) * extent)


def _even_range(points: np.ndarray) -> dict[str, Any]:
    """One extent for all dimensions, so that sums of squared differences of bytes are distances."""
    lowest, highest = np.quantile(points, [_OUTLIERS, 1 - _OUTLIERS], axis=0)
    extent = max(float((highest - lowest).max()) * (1 + 2 * _MARGIN), 1e-6)
    return _as_lists((lowest + highest - extent) / 2, np.full(points.shape[1], extent))


def _as_lists(lowest: np.ndarray, extent: np.ndarray) -> dict[str, Any]:
    return {"lowest": [float(x) for x in lowest], "extent": [float(x) for x in extent]}
