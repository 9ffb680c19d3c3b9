"""faiss indexes: exact search for small stores, inverted lists of compressed keys for larger ones."""

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
# Number of keys that an index is trained on: enough for its lists, but few enough to fit into memory.
_MIN_TRAINED, _TRAINED_PER_LIST, _MAX_TRAINED = 65_536, 32, 262_144
_MAX_LISTS = 16_384
# Iterations of k-means and keys per dimension for the PCA: faiss's defaults, 25 and 1,000, find no more but take longer
_ITERATIONS, _PCA_KEYS_PER_DIMENSION = 8, 32
# From this many lists on, the nearest centroids are found by compressed codes first, and the best of those are compared
# exactly: twice the number of probes in a search, and enough to be practically exact when an entry gets its list.
_CODED_LISTS = 1_024
_SEARCH_FACTOR, _ADD_FACTOR = 2.0, 16.0
_ADD_ROWS = 8_192


def choose_factory(num_entries: int, width: int) -> str:
    """The faiss factory string for a store of this size."""
    if num_entries <= EXACT_UP_TO:
        return "Flat"
    lists = count_lists(num_entries)
    # One 4-bit code for each of the first principal components finds more of p_kNN's mass than the same number of bytes
    # spread over all dimensions, and is faster. (Learned rotations find no more and take minutes to train.)
    parts = min(width, 96 if width <= 512 else 128)
    coarse = f"(PQ{parts // 2}x4fs,RFlat)" if lists >= _CODED_LISTS and parts % 2 == 0 else ""
    return f"{f'PCA{parts},' if parts < width else ''}IVF{lists}{coarse},PQ{parts}x4fs"


def count_lists(num_entries: int) -> int:
    """The number of inverted lists for this many entries."""
    return max(64, min(1 << round(math.log2(4 * math.sqrt(max(num_entries, 1)))), _MAX_LISTS))


def _coded_quantizer(index: Any) -> Any:
    """The coarse quantizer, if it finds the nearest lists by compressed codes first; otherwise None."""
    inverted = faiss.try_extract_index_ivf(index)
    coarse = faiss.downcast_index(inverted.quantizer) if inverted is not None else None
    return coarse if isinstance(coarse, faiss.IndexRefine) else None


class FaissIndex:
    """A faiss index over the entries of one snapshot."""

    def __init__(self, index: Any, factory: str, num_probes: int) -> None:
        self._index, self.factory, self.num_probes = index, factory, num_probes
        self.lock = threading.Lock()  # faiss must not be searched while entries are added
        inverted = faiss.try_extract_index_ivf(index)
        if inverted is not None:
            # The number of probes in the file does not matter.
            inverted.nprobe = num_probes
        self._coarse = _coded_quantizer(index)
        if self._coarse is not None:
            self._coarse.k_factor = _SEARCH_FACTOR

    @property
    def handle(self) -> Any:
        """The faiss object."""
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
        """Add the keys of the next entries."""
        with self.lock:
            if self._coarse is None:
                self._index.add(keys)
                return
            self._coarse.k_factor = _ADD_FACTOR
            try:
                self._index.add(keys)
            finally:
                self._coarse.k_factor = _SEARCH_FACTOR


def check_factory(factory: str, width: int) -> Any:
    """The empty index of a factory string."""
    try:
        return faiss.index_factory(width, factory, faiss.METRIC_L2)
    except (RuntimeError, AssertionError) as error:
        raise SettingError(f"`index` {factory!r} is not a valid faiss index for vectors of width {width}") from error


def fewest_entries(factory: str, width: int) -> int:
    """The minimum number of entries of an index."""
    inverted = faiss.try_extract_index_ivf(check_factory(factory, width))
    return 1 if inverted is None else int(inverted.nlist)


def _flat(snapshot: Snapshot, num_entries: int) -> Any:
    index = faiss.IndexFlatL2(snapshot.manifest.key_dims)
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
    """Train an index on a sample of the keys and add all keys, block by block."""
    if factory == "Flat":
        return FaissIndex(_flat(snapshot, len(snapshot)), factory, num_probes)
    index = trained_index(snapshot, factory, seed)
    for start in range(0, len(snapshot), _ADD_ROWS):
        index.add(snapshot.float_keys(slice(start, start + _ADD_ROWS)))
        on_progress(min(start + _ADD_ROWS, len(snapshot)))
    return FaissIndex(index, factory, num_probes)


def trained_index(snapshot: Snapshot, factory: str, seed: int = 1, max_rows: int = _MAX_TRAINED) -> Any:
    """A faiss index that is trained on a sample of the keys and still empty."""
    index = check_factory(factory, snapshot.manifest.key_dims)
    inverted: Any = faiss.try_extract_index_ivf(index)
    num_lists = inverted.nlist if inverted is not None else 0
    if num_lists > len(snapshot):
        raise SettingError(f"`index` {factory} needs at least {num_lists} entries, and the store has {len(snapshot)}")
    if inverted is not None:
        _shorten(inverted.cp)
        inverted.cp.seed = seed
        if hasattr(inverted, "pq"):
            _shorten(inverted.pq.cp)
    coarse = _coded_quantizer(index)
    if coarse is not None:
        # Centroids are trained with exact distances and then encoded. faiss does not own the index it trains with.
        exact = faiss.IndexFlatL2(inverted.d)
        inverted.quantizer_trains_alone, inverted.clustering_index = chr(2), exact
        codes: Any = faiss.downcast_index(coarse.base_index)
        if hasattr(codes, "pq"):
            _shorten(codes.pq.cp)
        coarse.k_factor = _ADD_FACTOR
    if isinstance(index, faiss.IndexPreTransform):
        chain: Any = index.chain
        for number in range(chain.size()):
            transform: Any = faiss.downcast_VectorTransform(chain.at(number))
            if isinstance(transform, faiss.PCAMatrix):
                transform.max_points_per_d = _PCA_KEYS_PER_DIMENSION
    num_rows = max(min(_TRAINED_PER_LIST * num_lists, max_rows), min(_MIN_TRAINED, max_rows), num_lists)
    num_rows = min(num_rows, len(snapshot))
    sample = np.sort(np.random.default_rng(seed).choice(len(snapshot), num_rows, replace=False))
    try:
        index.train(snapshot.float_keys(sample))
    except RuntimeError as error:
        raise SettingError(f"`index` {factory} cannot be trained on {len(snapshot)} entries") from error
    if coarse is not None:
        inverted.clustering_index = None
    return index


def _shorten(clustering: Any) -> None:
    """Set how k-means is run; the smallest number of points avoids a warning on standard error."""
    clustering.niter, clustering.min_points_per_centroid = _ITERATIONS, 1


def write_index(index: Any, path: Path) -> None:
    """Write a faiss index file."""
    try:
        faiss.write_index(index, str(path))
    except RuntimeError as error:
        raise OSError(errno.EIO, "the index could not be written; is the disk full?", str(path)) from error


def save_index(index: FaissIndex, path: Path) -> IndexRecord:
    """Write the index and return its record. An exact index has no file: loading it reads the keys."""
    record = IndexRecord("faiss", index.factory, index.num_probes, index.num_entries)
    if record.is_flat:
        return record
    write_index(index.handle, path)
    fsync_file(path)
    return replace(record, files={path.name: sha256_of(path)}, bytes=path.stat().st_size)


def load_faiss_index(snapshot: Snapshot, record: IndexRecord | None) -> FaissIndex:
    """Load the index of a record; exact search without one."""
    if record is None or record.is_flat:
        return FaissIndex(_flat(snapshot, len(snapshot)), "Flat", 1)
    ((name, checksum),) = record.files.items()
    path = snapshot.folder / name
    check_file(path, checksum)  # faiss does not validate what it reads
    try:
        index = faiss.read_index(str(path))
    except (RuntimeError, MemoryError) as error:
        raise StoreDamagedError(f"{path} is missing or damaged: run nearmt verify") from error
    if index.ntotal != record.num_entries or index.d != snapshot.manifest.key_dims:
        raise StoreDamagedError(f"{path} does not match the store: run nearmt verify")
    return FaissIndex(index, record.factory, record.num_probes)
