"""The index that needs no server: faiss, exact for small stores, inverted lists of compressed keys above."""

import errno
import math
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import faiss
import numpy as np

from nearmt.datastore import IndexRecord, Snapshot, check_file, fsync_file, sha256_of
from nearmt.errors import SettingError, StoreDamagedError
from nearmt.retrieval.index.base import Allowed
from nearmt.retrieval.index.selection import search_parameters

EXACT_UP_TO = 30_000
# States that an index is trained on: enough for its lists, and never more than fit into memory easily.
_FEWEST_TRAINED, _TRAINED_PER_LIST, _MOST_TRAINED = 65_536, 32, 262_144
_MOST_LISTS = 16_384
# From so many lists on, the nearest are found by codes of their centres first, and the best of those are measured:
# twice as many as are probed where it is searched, and enough to be exact where an entry is put into its list.
_CODED_LISTS = 1_024
_SEARCHED, _ASSIGNED = 2.0, 16.0
_ADD_ROWS = 8_192


def choose_factory(num_entries: int, width: int) -> str:
    """The faiss factory string for a store of this size."""
    if num_entries <= EXACT_UP_TO:
        return "Flat"
    lists = count_lists(num_entries)
    # One 4-bit code for each of the directions in which states vary most finds more of p_kNN's mass than the same
    # bytes spread over all of them, and is searched faster. (Learned rotations find no more and take minutes to train.)
    parts = min(width, 96 if width <= 512 else 128)
    coarse = f"(PQ{parts // 2}x4fs,RFlat)" if lists >= _CODED_LISTS and parts % 2 == 0 else ""
    return f"{f'PCA{parts},' if parts < width else ''}IVF{lists}{coarse},PQ{parts}x4fs"


def count_lists(num_entries: int) -> int:
    """How many inverted lists an index of this size has."""
    return max(64, min(1 << round(math.log2(4 * math.sqrt(max(num_entries, 1)))), _MOST_LISTS))


def _coded_centres(index: Any) -> Any:
    """What finds the lists of an index by codes first; None where all centres are measured."""
    inverted = faiss.try_extract_index_ivf(index)
    coarse = faiss.downcast_index(inverted.quantizer) if inverted is not None else None
    return coarse if isinstance(coarse, faiss.IndexRefine) else None


class FaissIndex:
    """A faiss index over the entries of one snapshot."""

    def __init__(self, index: Any, factory: str, num_probes: int) -> None:
        self._index, self.factory, self.num_probes = index, factory, num_probes
        self.lock = threading.Lock()  # faiss must not be searched while it grows
        inverted = faiss.try_extract_index_ivf(index)
        if inverted is not None:
            # The lists are probed by the number given, whatever number the file was saved with.
            inverted.nprobe = num_probes
        self._coarse = _coded_centres(index)
        if self._coarse is not None:
            self._coarse.k_factor = _SEARCHED

    @property
    def handle(self) -> Any:
        """faiss's own object."""
        return self._index

    @property
    def num_entries(self) -> int:
        return int(self._index.ntotal)

    @property
    def is_exact(self) -> bool:
        return self.factory == "Flat"

    def search(self, queries: np.ndarray, k: int, allowed: Allowed | None = None) -> tuple[np.ndarray, np.ndarray]:
        with self.lock:
            parameters = search_parameters(self._index, allowed)
            distances, entry_ids = self._index.search(np.ascontiguousarray(queries, np.float32), k, params=parameters)
        return distances, entry_ids

    def add(self, keys: np.ndarray) -> None:
        """Take in the next entries."""
        with self.lock:
            if self._coarse is None:
                self._index.add(keys)
                return
            self._coarse.k_factor = _ASSIGNED
            try:
                self._index.add(keys)
            finally:
                self._coarse.k_factor = _SEARCHED


def check_factory(factory: str, width: int) -> Any:
    """The empty index of a factory string, or one sentence if there is none."""
    try:
        return faiss.index_factory(width, factory, faiss.METRIC_L2)
    except (RuntimeError, AssertionError) as error:
        raise SettingError(f"faiss does not understand the index {factory!r} for width {width}") from error


def fewest_entries(factory: str, width: int) -> int:
    """How many entries an index needs at least."""
    inverted = faiss.try_extract_index_ivf(check_factory(factory, width))
    return 1 if inverted is None else int(inverted.nlist)


def _flat(snapshot: Snapshot, num_entries: int) -> Any:
    index = faiss.IndexFlatL2(snapshot.manifest.width)
    for start in range(0, num_entries, _ADD_ROWS):
        index.add(snapshot.float_keys(slice(start, start + _ADD_ROWS)))
    return index


def build_index(
    snapshot: Snapshot,
    factory: str,
    num_probes: int,
    on_progress: Callable[[int], None] = lambda entries: None,
    seed: int = 1,
) -> FaissIndex:
    """Train an index on a sample of the keys and add them all, in pieces."""
    if factory == "Flat":
        return FaissIndex(_flat(snapshot, len(snapshot)), factory, num_probes)
    index = trained_index(snapshot, factory, seed)
    for start in range(0, len(snapshot), _ADD_ROWS):
        index.add(snapshot.float_keys(slice(start, start + _ADD_ROWS)))
        on_progress(min(start + _ADD_ROWS, len(snapshot)))
    return FaissIndex(index, factory, num_probes)


def trained_index(snapshot: Snapshot, factory: str, seed: int = 1, most_rows: int = _MOST_TRAINED) -> Any:
    """faiss's index, trained on a sample of the keys and still empty; ready to be added to."""
    index = check_factory(factory, snapshot.manifest.width)
    inverted: Any = faiss.try_extract_index_ivf(index)
    num_lists = inverted.nlist if inverted is not None else 0
    if num_lists > len(snapshot):
        raise SettingError(f"the index {factory} wants at least {num_lists} entries and the store has {len(snapshot)}")
    if inverted is not None:
        inverted.cp.min_points_per_centroid = 1  # else faiss prints a warning of its own
        inverted.cp.seed = seed
        if hasattr(inverted, "pq"):
            inverted.pq.cp.min_points_per_centroid = 1
    coarse = _coded_centres(index)
    if coarse is not None:
        # Centres are made by measuring, and coded when they are there. faiss does not hold what measures them.
        measuring = faiss.IndexFlatL2(inverted.d)
        inverted.quantizer_trains_alone, inverted.clustering_index = chr(2), measuring
        codes: Any = faiss.downcast_index(coarse.base_index)
        if hasattr(codes, "pq"):
            codes.pq.cp.min_points_per_centroid = 1
        coarse.k_factor = _ASSIGNED
    num_rows = max(min(_TRAINED_PER_LIST * num_lists, most_rows), min(_FEWEST_TRAINED, most_rows), num_lists)
    num_rows = min(num_rows, len(snapshot))
    sample = np.sort(np.random.default_rng(seed).choice(len(snapshot), num_rows, replace=False))
    try:
        index.train(snapshot.float_keys(sample))
    except RuntimeError as error:
        raise SettingError(f"the index {factory} cannot be trained on {len(snapshot)} entries") from error
    if coarse is not None:
        inverted.clustering_index = None
    return index


def write_index(index: Any, path: Path) -> None:
    """faiss's own file."""
    try:
        faiss.write_index(index, str(path))
    except RuntimeError as error:
        raise OSError(errno.EIO, "the index could not be written; is the disk full?", str(path)) from error


def save_index(index: FaissIndex, path: Path) -> IndexRecord:
    """Write the index and return its record. An exact index has no file: it is made from the keys when it is loaded."""
    record = IndexRecord("faiss", index.factory, index.num_probes, index.num_entries)
    if record.is_flat:
        return record
    write_index(index.handle, path)
    fsync_file(path)
    return replace(record, files={path.name: sha256_of(path)}, bytes=path.stat().st_size)


def load_faiss_index(snapshot: Snapshot, record: IndexRecord | None) -> FaissIndex:
    """The index that the manifest describes; exact search where there is none."""
    if record is None or record.is_flat:
        return FaissIndex(_flat(snapshot, len(snapshot)), "Flat", 1)
    ((name, checksum),) = record.files.items()
    path = snapshot.folder / name
    check_file(path, checksum)  # faiss trusts what it reads, down to numbers of entries that there are not
    try:
        index = faiss.read_index(str(path))
    except (RuntimeError, MemoryError) as error:
        raise StoreDamagedError(f"{path} is missing or damaged: run nearmt verify") from error
    if index.ntotal != record.num_entries or index.d != snapshot.manifest.width:
        raise StoreDamagedError(f"{path} does not fit the store: run nearmt verify")
    return FaissIndex(index, record.factory, record.num_probes)
