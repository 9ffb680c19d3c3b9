"""Arrays in files of their own: written piece by piece, and mapped once their checksums are known to be right."""

import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from nearmt.datastore import check_file
from nearmt.errors import StoreDamagedError


class ArrayFile:
    """A .npy file of one dimension that is written piece by piece, and flushed to disk when the block is left.

    np.save does not notice a disk that is full at the end of a file.
    """

    def __init__(self, path: Path, dtype: str) -> None:
        self.path, self._dtype, self._count = path, np.dtype(dtype), 0

    def __enter__(self) -> Self:
        self._out = self.path.open("wb")
        self._write_header()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._out:
            if error is None:
                self._out.seek(0)
                self._write_header()  # as long as the first one: NumPy leaves room for any length
                self._out.flush()
                os.fsync(self._out.fileno())

    def _write_header(self) -> None:
        described: dict[str, Any] = {"descr": self._dtype.str, "fortran_order": False, "shape": (self._count,)}
        np.lib.format.write_array_header_1_0(self._out, described)

    def append(self, array: np.ndarray) -> None:
        self._out.write(np.ascontiguousarray(array, self._dtype).data)
        self._count += len(array)


def map_arrays(folder: Path, files: Mapping[str, str]) -> list[np.ndarray]:
    """Map files, name → SHA-256, after checking them: compiled code does not validate what it reads."""
    arrays = []
    for name, checksum in files.items():
        path = folder / name
        try:
            found = path.stat()
        except OSError as error:
            raise StoreDamagedError(f"{path} is missing or cannot be read: run nearmt verify") from error
        _check_once(path, checksum, found.st_dev, found.st_ino, found.st_size, found.st_ctime_ns)
        # "c" maps copy-on-write, so that arrays in files and in memory have one type in compiled code.
        arrays.append(np.load(path, mmap_mode="c"))
    return arrays


@lru_cache(maxsize=256)
def _check_once(path: Path, checksum: str, *_identity: int) -> None:
    """Compare a file with its checksum, once in a process as long as it stays the same file and is not written to."""
    check_file(path, checksum)
