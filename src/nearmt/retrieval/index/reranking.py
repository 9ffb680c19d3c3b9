"""Reranking by faiss: exact distances of the candidates, computed on the memory-mapped keys without a copy."""

from typing import Any

import faiss
import numpy as np

from nearmt.datastore import Snapshot
from nearmt.retrieval.index.base import Allowed
from nearmt.retrieval.index.faiss_index import FaissIndex
from nearmt.retrieval.index.selection import search_parameters


class RerankingIndex:
    """Another index's candidates with exact distances, which do not depend on the other rows of a search."""

    def __init__(self, index: FaissIndex, snapshot: Snapshot) -> None:
        self._keys = snapshot.keys  # the view does not keep them alive
        self._view = _view_of(snapshot, index.num_entries)
        self._refined = faiss.IndexRefine(index.handle, self._view)
        self._refined.k_factor = 1.0
        self._index = index

    def search(self, queries: np.ndarray, k: int, allowed: Allowed | None = None) -> tuple[np.ndarray, np.ndarray]:
        """(rows, k) squared distances, nearest first, and entry ids, -1 where there are none."""
        with self._index.lock:
            # Entries may have been added to the index since; their keys are not in the view.
            has_grown = self._index.num_entries > self._view.ntotal
            parameters = search_parameters(self._refined, allowed, self._view.ntotal if has_grown else None)
            distances, entry_ids = self._refined.search(np.ascontiguousarray(queries, np.float32), k, params=parameters)
        return distances, entry_ids


def reranking_index(index: Any, snapshot: Snapshot) -> RerankingIndex | None:
    """The index with reranking, if it is a faiss index and this version of faiss can use external memory."""
    if not isinstance(index, FaissIndex) or not len(snapshot):
        return None
    try:
        return RerankingIndex(index, snapshot)
    except (AttributeError, TypeError, NotImplementedError):
        return None


def _view_of(snapshot: Snapshot, count: int) -> Any:
    """A flat index over the first stored keys, in place."""
    width, key_code = snapshot.manifest.key_dims, snapshot.key_code
    if key_code.key_type == "float32":
        view: Any = faiss.IndexFlatL2(width)
    elif key_code.key_type == "float16":
        view = faiss.IndexScalarQuantizer(width, faiss.ScalarQuantizer.QT_fp16)
    else:
        assert key_code.lowest is not None
        assert key_code.extent is not None
        view = faiss.IndexScalarQuantizer(width, faiss.ScalarQuantizer.QT_8bit)
        faiss.copy_array_to_vector(np.concatenate([key_code.lowest, key_code.extent]), view.sq.trained)
        view.is_trained = True
    rows = snapshot.keys[:count].view(np.uint8).reshape(-1)
    codes: Any = faiss.MaybeOwnedVectorUInt8()
    codes.is_owned = False
    codes.view_data = codes.c_ptr = faiss.swig_ptr(rows)
    codes.view_size = codes.c_size = rows.size
    view.codes = codes
    view.ntotal = count
    return view
