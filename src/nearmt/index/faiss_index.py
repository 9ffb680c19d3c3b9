"""The index that needs no server: faiss, exact for small stores, inverted lists of compressed keys above."""

import errno
import math
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import faiss
import numpy as np

from nearmt.errors import SettingError, StoreDamagedError
from nearmt.index.base import Allowed
from nearmt.index.selection import search_parameters
from nearmt.store import Snapshot, check_file, fsync_file, sha256_of

EXACT_UP_TO = 30_000
# Fixed, so that training a large index takes no more memory than training a middling one.
_TRAINING_ROWS = 65_536
_ADD_ROWS = 8_192


def choose_factory(num_entries: int, width: int) -> str:
    """The faiss factory string for a store of this size."""
    if num_entries <= EXACT_UP_TO:
        return "Flat"
    lists = 1 << round(math.log2(4 * math.sqrt(num_entries)))
    lists = max(64, min(lists, 4096))
    # One 4-bit code for each of the directions in which states vary most finds more of p_kNN's mass than the same
    # bytes spread over all of them, and is searched faster. (Learned rotations find no more and take minutes to train.)
    parts = 64 if width <= 512 else 128
    if width <= parts:
        return f"IVF{lists},PQ{width}x4fs"
    return f"PCA{parts},IVF{lists},PQ{parts}x4fs"


class FaissIndex:
    """A faiss index over the entries of one snapshot."""

    def __init__(self, index: Any, factory: str, num_probes: int) -> None:
        self._index, self.factory, self.num_probes = index, factory, num_probes
        self.lock = threading.Lock()  # faiss must not be searched while it grows
        inverted = faiss.try_extract_index_ivf(index)
        if inverted is not None:
            # The lists are probed by the number given, whatever number the file was saved with.
            inverted.nprobe = num_probes

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
            self._index.add(keys)


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
    index = check_factory(factory, snapshot.manifest.width)
    inverted = faiss.try_extract_index_ivf(index)
    if inverted is not None:
        if inverted.nlist > len(snapshot):
            raise SettingError(
                f"the index {factory} wants at least {inverted.nlist} entries and the store has {len(snapshot)}"
            )
        inverted.cp.min_points_per_centroid = 1  # else faiss prints a warning of its own
        inverted.cp.seed = seed
        if hasattr(inverted, "pq"):
            inverted.pq.cp.min_points_per_centroid = 1
    num_rows = min(len(snapshot), _TRAINING_ROWS)
    sample = np.sort(np.random.default_rng(seed).choice(len(snapshot), num_rows, replace=False))
    try:
        index.train(snapshot.float_keys(sample))
    except RuntimeError as error:
        raise SettingError(f"the index {factory} cannot be trained on {len(snapshot)} entries") from error
    for start in range(0, len(snapshot), _ADD_ROWS):
        index.add(snapshot.float_keys(slice(start, start + _ADD_ROWS)))
        on_progress(min(start + _ADD_ROWS, len(snapshot)))
    return FaissIndex(index, factory, num_probes)


def save_index(index: FaissIndex, path: Path) -> dict[str, Any]:
    """Write the index and say what the manifest should. An exact one is made from the keys when it is loaded."""
    description = {"kind": "faiss", "factory": index.factory, "num_probes": index.num_probes,
                   "num_entries": index.num_entries, "files": {}}  # fmt: skip
    if index.factory != "Flat":
        try:
            faiss.write_index(index._index, str(path))
        except RuntimeError as error:
            raise OSError(errno.EIO, "the index could not be written; is the disk full?", str(path)) from error
        fsync_file(path)
        description["files"] = {path.name: sha256_of(path)}
        description["bytes"] = path.stat().st_size
    return description


def load_faiss(snapshot: Snapshot) -> FaissIndex:
    """The index whose file the manifest names; exact search where it names none."""
    description = snapshot.manifest.index
    if description is None or description["factory"] == "Flat":
        return FaissIndex(_flat(snapshot, len(snapshot)), "Flat", 1)
    ((name, checksum),) = description["files"].items()
    path = snapshot.folder / name
    check_file(path, checksum)  # faiss trusts what it reads, down to numbers of entries that there are not
    try:
        index = faiss.read_index(str(path))
    except (RuntimeError, MemoryError) as error:
        raise StoreDamagedError(f"{path} is missing or damaged: run nearmt verify") from error
    if index.ntotal != description["num_entries"] or index.d != snapshot.manifest.width:
        raise StoreDamagedError(f"{path} does not fit the store: run nearmt verify")
    return FaissIndex(index, description["factory"], description["num_probes"])
