"""Exact search of a store of any size, in pieces: slow, and the yardstick for every faster index."""

import faiss
import numpy as np

from nearmt.store import Snapshot

_PIECE = 16_384


class StreamedIndex:
    """Compares queries with every key, holding a piece of the keys at a time."""

    is_exact = True

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    @property
    def num_entries(self) -> int:
        return len(self._snapshot)

    def search(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        best = np.full((len(queries), k), np.inf, np.float32)
        ids = np.full((len(queries), k), -1, np.int64)
        for start in range(0, self.num_entries, _PIECE):
            piece = np.ascontiguousarray(self._snapshot.keys[start : start + _PIECE], np.float32)
            distances, found = faiss.knn(np.ascontiguousarray(queries, np.float32), piece, min(k, len(piece)))
            best, ids = np.hstack([best, distances]), np.hstack([ids, np.where(found < 0, -1, found + start)])
            nearest = np.argsort(best, axis=1, kind="stable")[:, :k]
            best, ids = np.take_along_axis(best, nearest, 1), np.take_along_axis(ids, nearest, 1)
        return best, ids
