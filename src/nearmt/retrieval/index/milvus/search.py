"""Searching a store's collection: one request for all rows, with or without a filter."""

import math
from weakref import WeakKeyDictionary, finalize

import numpy as np

from nearmt.datastore import Manifest, Snapshot
from nearmt.errors import IndexUnavailableError
from nearmt.retrieval.index.base import Allowed
from nearmt.retrieval.index.exact import StreamedIndex
from nearmt.retrieval.index.milvus.choice import MilvusChoice
from nearmt.retrieval.index.milvus.connection import CollectionGoneError, Connection
from nearmt.retrieval.index.milvus.tags import SEVERAL, origin_tags, tags_of

MAX_LIMIT = 16_384  # Milvus returns no more per row
_MAX_ROWS = 4096  # per request
_MAX_FOUND = 1 << 21  # rows × limit per request
_COMPARED = 4096  # up to this many allowed entries are compared here, which is faster than a request
_MAX_ORIGINS = 256  # per filter


class MilvusIndex:
    """The collection of a store, as an `Index`."""

    is_exact = False  # not even FLAT: its distances are recomputed too

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        record = snapshot.manifest.index
        assert record is not None
        assert record.uri is not None
        assert record.collection is not None
        self.collection, self._num_entries = record.collection, record.num_entries
        self._num_units, self._num_at_making = record.num_units or 0, record.num_at_making or 0
        self._choice, self._num_probes = MilvusChoice.parse(record.factory), record.num_probes
        self._connection = Connection(record.uri, self.collection)
        self._has_grown = False  # True once the collection holds entries later than the snapshot
        self._filters: WeakKeyDictionary[Allowed, str] = WeakKeyDictionary()
        finalize(self, self._connection.close)

    @property
    def num_entries(self) -> int:
        return self._num_entries

    def search(self, queries: np.ndarray, k: int, allowed: Allowed | None = None) -> tuple[np.ndarray, np.ndarray]:
        k = min(k, self._num_entries)
        if k > MAX_LIMIT:
            return self._compare(queries, k, allowed)
        try:
            return self._query(queries, k) if allowed is None else self._among(queries, k, allowed)
        except CollectionGoneError as error:
            # After a compaction, readers of the old snapshot can go on, slowly.
            if not self._is_superseded():
                where = self._snapshot.folder
                raise IndexUnavailableError(f"{error}; run nearmt index {where} to create it again") from error
            return self._compare(queries, k, allowed)

    def _is_superseded(self) -> bool:
        current = Manifest.load(self._snapshot.folder).index
        return current is None or current.collection != self.collection

    def _compare(self, queries: np.ndarray, k: int, allowed: Allowed | None) -> tuple[np.ndarray, np.ndarray]:
        """Exact search of the stored keys, without Milvus."""
        mask = np.zeros(len(self._snapshot), bool)
        mask[: self._num_entries] = True if allowed is None else allowed.mask[: self._num_entries]
        return StreamedIndex(self._snapshot).search(queries, k, Allowed(mask))

    def _query(self, queries: np.ndarray, k: int, within: str = "") -> tuple[np.ndarray, np.ndarray]:
        """The nearest entries of this snapshot that pass a filter."""
        conditions = [f"id < {self._num_entries}"] if self._has_grown else []
        found = self._request(queries, k, " and ".join([*conditions, *([within] if within else [])]))
        if not self._has_grown and (found[1] >= self._num_entries).any():
            self._has_grown = True
            return self._query(queries, k, within)
        return found

    def _request(self, queries: np.ndarray, k: int, condition: str) -> tuple[np.ndarray, np.ndarray]:
        distances = np.full((len(queries), k), np.inf, np.float32)
        entry_ids = np.full((len(queries), k), -1, np.int64)
        rows = np.ascontiguousarray(queries, np.float32)
        step = max(1, min(_MAX_ROWS, _MAX_FOUND // max(k, 1)))
        parameters = self._choice.search_parameters(self._num_at_making, self._num_probes, k)
        for start in range(0, len(rows), step):
            hits = self._connection.call(
                "search",
                self.collection,
                data=list(rows[start : start + step]),
                anns_field="key",
                limit=k,
                filter=condition,
                search_params={"metric_type": "L2", "params": parameters},
                consistency_level="Bounded",
            )
            for row, found in enumerate(hits, start):
                distances[row, : len(found.ids)], entry_ids[row, : len(found.ids)] = found.distances, found.ids
        return distances, entry_ids

    def _among(self, queries: np.ndarray, k: int, allowed: Allowed) -> tuple[np.ndarray, np.ndarray]:
        """The nearest allowed entries: filtered by Milvus where possible, otherwise by retrieving more than wanted."""
        count = int(allowed.mask[: self._num_entries].sum())
        if count <= _COMPARED:
            return self._compare(queries, k, allowed)
        within, wanted = self._filter(allowed), min(k, count)
        distances = np.full((len(queries), k), np.inf, np.float32)
        entry_ids = np.full((len(queries), k), -1, np.int64)
        short = np.arange(len(queries))
        limit = k if within else min(MAX_LIMIT, math.ceil(k * self._num_entries / count))
        while len(short):
            near, ids = self._query(queries[short], limit, within)
            is_full = ids[:, -1] >= 0  # Milvus may have more
            near = np.where((ids >= 0) & allowed.mask[ids], near, np.inf)
            order = np.argsort(near, axis=1, kind="stable")[:, :k]
            near, ids = np.take_along_axis(near, order, 1), np.take_along_axis(ids, order, 1)
            distances[short, : order.shape[1]] = near
            entry_ids[short, : order.shape[1]] = np.where(np.isinf(near), -1, ids)
            lacks = (entry_ids[short] >= 0).sum(axis=1) < wanted
            hopeless = short[lacks & (~is_full | (limit == MAX_LIMIT))]
            if len(hopeless):
                distances[hopeless], entry_ids[hopeless] = self._compare(queries[hopeless], k, allowed)
            short = short[lacks & is_full] if limit < MAX_LIMIT else short[:0]
            limit = min(4 * limit, MAX_LIMIT)
        return distances, entry_ids

    def _filter(self, allowed: Allowed) -> str:
        """A condition on the origin that all allowed entries meet; empty if there is none."""
        if allowed.origin_hashes is None or len(allowed.origin_hashes) > _MAX_ORIGINS:
            return ""
        if allowed not in self._filters:
            tags = [SEVERAL, *tags_of(allowed.origin_hashes).tolist()]
            snapshot = self._snapshot
            # The collection has the origins of the time when it was last written.
            passing = snapshot.entry_mask(np.isin(origin_tags(snapshot, self._num_units), tags))
            mask = allowed.mask[: self._num_entries]
            is_covered = not (mask & ~passing[: len(mask)]).any()
            self._filters[allowed] = f"origin in {tags}" if is_covered else ""
        return self._filters[allowed]
