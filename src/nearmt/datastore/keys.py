"""Encodings of keys: 16-bit floats, 32-bit floats, or one byte per dimension, scaled to the range of that dimension."""

from dataclasses import dataclass
from typing import Any

import numpy as np

KEY_TYPES: dict[str, np.dtype[Any]] = {
    "float16": np.dtype("<f2"),
    "float32": np.dtype("<f4"),
    "int8": np.dtype("u1"),
}
_LEVELS = 255
_MARGIN = 0.1  # added to the range on both sides, as a share of it: later keys may exceed the first


@dataclass(frozen=True)
class KeyCode:
    """Key type and, for int8 keys, the range of each dimension. Rounding is that of faiss's QT_8bit."""

    key_type: str
    lowest: np.ndarray | None = None  # (width,) float32
    extent: np.ndarray | None = None  # (width,) float32

    @classmethod
    def of(cls, key_type: str, key_range: dict[str, list[float]] | None) -> "KeyCode":
        """From the fields of a manifest."""
        if key_range is None:
            return cls(key_type)
        return cls(key_type, np.array(key_range["lowest"], np.float32), np.array(key_range["extent"], np.float32))

    @property
    def dtype(self) -> np.dtype[Any]:
        return KEY_TYPES[self.key_type]

    def encode(self, keys: np.ndarray) -> np.ndarray:
        """Encode keys; keys that are already encoded are returned unchanged."""
        if self.key_type != "int8" or keys.dtype == np.uint8 or not len(keys):
            return np.ascontiguousarray(keys, self.dtype)
        assert self.lowest is not None
        assert self.extent is not None
        levels = (keys.astype(np.float32) - self.lowest) / self.extent * _LEVELS
        written: np.ndarray = np.clip(levels, 0, _LEVELS).astype(np.uint8)
        return written

    def decode(self, written: np.ndarray) -> np.ndarray:
        """(…, width) float32."""
        if self.key_type != "int8":
            return np.ascontiguousarray(written, np.float32)
        if self.lowest is None or self.extent is None:  # no key was written yet
            return np.zeros(written.shape, np.float32)
        decoded: np.ndarray = self.lowest + (written.astype(np.float32) + np.float32(0.5)) / _LEVELS * self.extent
        return decoded


def key_range(keys: np.ndarray) -> dict[str, list[float]]:
    """The range for int8 keys, from the first keys of a store, as the manifest stores it."""
    numbers = keys.astype(np.float32)
    lowest, highest = numbers.min(axis=0), numbers.max(axis=0)
    extent = np.maximum(highest - lowest, 1e-6)
    lowest, extent = lowest - _MARGIN * extent, (1 + 2 * _MARGIN) * extent
    return {"lowest": [float(x) for x in lowest], "extent": [float(x) for x in extent]}
