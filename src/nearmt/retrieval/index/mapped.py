"""An index larger than memory, in several parts with memory-mapped inverted lists.

Each part is an ordinary faiss file that was built in bounded memory. Later entries go into another part in memory.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import faiss
import numpy as np

from nearmt.datastore import IndexRecord, Snapshot, fsync_file, sha256_of
from nearmt.errors import SettingError, StoreDamagedError
from nearmt.retrieval.index.base import Allowed
from nearmt.retrieval.index.faiss_index import count_lists, trained_index, write_index
from nearmt.retrieval.index.selection import search_parameters

_ID_BYTES = 8
_GROWTH = 2  # lists double when they are full
_ADD_ROWS = 8_192
_TRAINED_BYTES = 16  # per number of a training vector, including the copies that faiss makes
_MIN_ENTRIES = 4_096  # of a part, however small the memory


def bytes_in_memory(factory: str, width: int, num_entries: int) -> int:
    """The memory that building an index takes."""
    index = faiss.index_factory(width, factory, faiss.METRIC_L2)
    inverted = faiss.try_extract_index_ivf(index)
    code_size = inverted.code_size + _ID_BYTES if inverted is not None else index.sa_code_size()
    return int(num_entries * code_size * _GROWTH)


def choose_mapped_factory(num_entries: int, width: int) -> str:
    """The factory string for an index whose lists stay on disk: faiss can memory-map its codes."""
    lists = count_lists(num_entries)
    return f"PCA64,IVF{lists},SQ8" if width > 64 else f"IVF{lists},SQ8"


def check_mapped(factory: str, width: int) -> None:
    """Refuse an index whose lists cannot stay on disk."""
    index = faiss.index_factory(width, factory, faiss.METRIC_L2)  # keeps what is extracted from it alive
    inverted: Any = faiss.try_extract_index_ivf(index)
    is_plain = inverted is not None and isinstance(
        faiss.downcast_InvertedLists(inverted.invlists), faiss.ArrayInvertedLists
    )
    if not is_plain:
        raise SettingError(
            f"the lists of {factory} cannot stay on disk: leave out `index`, or choose one such as "
            f"{choose_mapped_factory(1_000_000, width)}"
        )


def build_parts(
    snapshot: Snapshot,
    factory: str,
    num_probes: int,
    memory: int,
    path: Path,
    on_progress: Callable[[int], None] = lambda entries: None,
) -> IndexRecord:
    """Build the parts one after another, in files next to `path`."""
    width, total = snapshot.manifest.key_dims, len(snapshot)
    check_mapped(factory, width)
    max_rows = max(_MIN_ENTRIES, memory // (_TRAINED_BYTES * width))
    trained = faiss.serialize_index(trained_index(snapshot, factory, max_rows=max_rows))
    per_part = max(_MIN_ENTRIES, int(memory / bytes_in_memory(factory, width, 1)))
    files, sizes = {}, []
    for number, first in enumerate(range(0, total, per_part)):
        part = faiss.deserialize_index(trained)
        for start in range(first, min(first + per_part, total), _ADD_ROWS):
            end = min(start + _ADD_ROWS, first + per_part, total)
            part.add_with_ids(snapshot.float_keys(slice(start, end)), np.arange(start, end))
            on_progress(end)
        part_path = path.with_name(f"{path.stem}-{number:04d}{path.suffix}")
        write_index(part, part_path)
        fsync_file(part_path)
        del part
        files[part_path.name] = sha256_of(part_path)
        sizes.append(part_path.stat().st_size)
    record = IndexRecord("faiss", factory, num_probes, total, files)
    return replace(record, bytes=sum(sizes), mapped_bytes=tuple(sizes))


class MappedIndex:
    """Parts on disk, and one in memory once entries were added."""

    is_exact = False

    def __init__(self, parts: Sequence[Any], factory: str, num_probes: int) -> None:
        self._parts = list(parts)
        self._recent: Any = None
        self.factory, self.num_probes = factory, num_probes
        self.lock = threading.Lock()
        for part in self._parts:
            faiss.extract_index_ivf(part).nprobe = num_probes

    @property
    def num_entries(self) -> int:
        return sum(int(part.ntotal) for part in self._all)

    @property
    def _all(self) -> list[Any]:
        return self._parts if self._recent is None else [*self._parts, self._recent]

    def search(self, queries: np.ndarray, k: int, allowed: Allowed | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The candidates of all parts, nearest first."""
        rows = np.ascontiguousarray(queries, np.float32)
        with self.lock:
            found = [part.search(rows, k, params=search_parameters(part, allowed)) for part in self._all]
        distances, entry_ids = (np.hstack([each[i] for each in found]) for i in (0, 1))
        if len(found) > 1:
            nearest = np.argsort(np.where(entry_ids < 0, np.inf, distances), axis=1, kind="stable")[:, :k]
            distances, entry_ids = (np.take_along_axis(array, nearest, 1) for array in (distances, entry_ids))
        return distances, entry_ids

    def add(self, keys: np.ndarray) -> None:
        """Add the keys of the next entries, in memory."""
        with self.lock:
            if self._recent is None:
                self._recent = _emptied(self._parts[0])
                faiss.extract_index_ivf(self._recent).nprobe = self.num_probes
            first = self.num_entries
            self._recent.add_with_ids(keys, np.arange(first, first + len(keys)))


def _emptied(part: Any) -> Any:
    """A trained index without entries, with its lists in memory."""
    inverted = faiss.extract_index_ivf(part)
    lists, total = inverted.invlists, part.ntotal
    empty = faiss.ArrayInvertedLists(inverted.nlist, inverted.code_size)
    inverted.invlists = empty
    try:
        copy = faiss.clone_index(part)
    finally:
        inverted.invlists = lists
    copy.reset()
    assert part.ntotal == total
    return copy


def load_parts(snapshot: Snapshot, record: IndexRecord, sizes: Sequence[int]) -> MappedIndex:
    """Map the files of an index, which have these sizes; `nearmt verify` compares their checksums."""
    parts = []
    for name, size in zip(record.files, sizes, strict=True):
        path = snapshot.folder / name
        try:
            is_whole = path.stat().st_size == size
            part = faiss.read_index(str(path), faiss.IO_FLAG_MMAP) if is_whole else None
        except (OSError, RuntimeError, MemoryError):
            part = None
        if part is None or part.d != snapshot.manifest.key_dims:
            raise StoreDamagedError(f"{path} is missing or damaged: run nearmt verify")
        parts.append(part)
    index = MappedIndex(parts, record.factory, record.num_probes)
    if index.num_entries != record.num_entries:
        raise StoreDamagedError(f"the index of {snapshot.folder} does not match the store: run nearmt verify")
    return index
