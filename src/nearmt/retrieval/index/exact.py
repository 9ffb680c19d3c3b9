"""Exact search of a store of any size, block by block: slow, and the reference for every faster index."""

import faiss
import numpy as np

from nearmt.datastore import Snapshot
from nearmt.retrieval.index.base import Allowed

_BLOCK = 16_384


class StreamedIndex:
    """Compares queries with every key, with one block of keys in memory at a time."""

    is_exact = True

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    @property
    def num_entries(self) -> int:
        return len(self._snapshot)

    def search(self, queries: np.ndarray, k: int, allowed: Allowed | None = None) -> tuple[np.ndarray, np.ndarray]:
        best = np.full((len(queries), k), np.inf, np.float32)
        ids = np.full((len(queries), k), -1, np.int64)
        for start in range(0, self.num_entries, _BLOCK):
            entries = np.arange(start, min(start + _BLOCK, self.num_entries))
            if allowed is not None:
                entries = entries[allowed.mask[entries]]
            if not len(entries):
                continue
            block = self._snapshot.float_keys(entries)
            distances, found = faiss.knn(np.ascontiguousarray(queries, np.float32), block, min(k, len(block)))
            best, ids = np.hstack([best, distances]), np.hstack([ids, np.where(found < 0, -1, entries[found])])
            nearest = np.argsort(best, axis=1, kind="stable")[:, :k]
            best, ids = np.take_along_axis(best, nearest, 1), np.take_along_axis(ids, nearest, 1)
        return best, ids
