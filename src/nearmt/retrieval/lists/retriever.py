"""Searching all entries of a store with an index of lists."""

import copy
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch

from nearmt.datastore import TOKENS, Filter, Snapshot
from nearmt.retrieval import looking_up, nearest
from nearmt.retrieval.columns import StoredColumns
from nearmt.retrieval.compiled_search import CompiledSearch
from nearmt.retrieval.lists.building import load_lists
from nearmt.retrieval.lists.clusters import PROBED_GROUPS
from nearmt.retrieval.lists.index import ListIndex
from nearmt.retrieval.neighbors import NearArrays, Neighbors, UnfilledArrays
from nearmt.retrieval.search import Excluded

_MAX_EXCLUDED = 4096  # entries more than wanted that are looked for where some are excluded


@lru_cache(maxsize=1)
def _floats() -> np.ndarray:
    """(65536,) float32: the values of all numbers of 16 bits."""
    return np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)


class ListRetriever(StoredColumns):
    """Searches one snapshot. Threads can share it."""

    retrieval = TOKENS
    max_entries = None

    def __init__(self, snapshot: Snapshot, index: ListIndex | None = None) -> None:
        super().__init__(snapshot)
        if index is None:
            record = snapshot.manifest.index
            assert record is not None
            index = load_lists(snapshot, record, snapshot.folder)
        self.index = index.following(snapshot.keys)
        self._allow(snapshot.entry_mask(snapshot.live_sentences) if snapshot.has_removals else None)

    def _allow(self, allowed: np.ndarray | None) -> None:
        self.lists = self.index.search_parameters(self.snapshot.keys, allowed)

    def filtered(self, wanted: Filter) -> "ListRetriever":
        """The same search, in a part of the store."""
        if wanted.is_empty:
            return self
        narrower = copy.copy(self)
        narrower._allow(self.snapshot.entry_mask(wanted.sentences(self.snapshot)))
        return narrower

    def following(self, snapshot: Snapshot) -> "ListRetriever":
        """A retriever of a later snapshot; keeps the index if it is still the same."""
        old, new = self.snapshot.manifest, snapshot.manifest
        is_same = (old.created_at, old.generation, old.index) == (new.created_at, new.generation, new.index)
        return ListRetriever(snapshot, self.index if is_same else None)

    def start(self, texts: Sequence[str] | None, excluded: Excluded | None = None) -> "ListSearch":
        """The search of a batch of sources; `excluded` lists, for each source, sentences that must not be found."""
        return ListSearch(self, excluded)

    def search(self, states: torch.Tensor, k: int, excluded: Excluded | None = None) -> Neighbors:
        """The `k` nearest entries of each state; `excluded` lists, for each, sentences that must not be found."""
        return ListSearch(self, excluded).search(states, torch.arange(len(states)), k)


class ListSearch(CompiledSearch):
    """The search of one batch of sources in the lists nearest to each state."""

    def __init__(self, retriever: ListRetriever, excluded: Excluded | None) -> None:
        self._retriever, self._lists, snapshot = retriever, retriever.lists, retriever.snapshot
        super().__init__(snapshot.key_code, 2 * retriever.index.clusters.arrays[0].shape[1])
        self._probes = np.array([max(PROBED_GROUPS, self._lists.num_probes), self._lists.num_probes])
        self._halves = np.asarray(snapshot.probabilities).view(np.uint16)
        self._excluded = excluded if excluded is not None and any(map(_has_some, excluded)) else None

    def search(self, states: torch.Tensor, sources: torch.Tensor, k: int) -> Neighbors:
        """The `k` nearest entries of each state, (rows, width); row i belongs to source `sources[i]`."""
        if self._excluded is None:
            return super().search(states, sources, k)
        snapshot, excluded = self._retriever.snapshot, [self._excluded[i] for i in sources.tolist()]
        sizes = snapshot.sentence_sizes
        more = max(int(sizes[ids].sum()) if _has_some(ids) else 0 for ids in excluded)
        found = super().search(states, sources, k + min(more, _MAX_EXCLUDED))
        sentences = snapshot.sentence_ids_of(found.entry_ids.clamp_min(0).numpy())
        is_left = found.found.clone()
        for row, ids in enumerate(excluded):
            if ids is not None and len(ids):
                is_left[row] &= torch.from_numpy(~np.isin(sentences[row], ids))
        return found.only(is_left, k)

    def search_arrays(self, states: torch.Tensor, sources: torch.Tensor, k: int) -> Neighbors | UnfilledArrays:
        """The same, as compiled mixtures take it: searched when they need it, and valid until the next call."""
        if self._excluded is not None:
            return self.search(states, sources, k)
        return super().search_arrays(states, sources, k)

    def _find(
        self, first: int, last: int, sources: np.ndarray, queries: np.ndarray, near: NearArrays, places: np.ndarray
    ) -> None:
        lists, snapshot = self._lists, self._retriever.snapshot
        found = near.squared_distances, places
        nearest.nearest_in_lists(queries, first, last, self._probes, lists.clusters, lists.parts, *found)
        stored = snapshot.values, self._halves, _floats()
        looking_up.look_up_entries(first, last, places, *stored, *near[1:])

    def _entry_ids(self, places: np.ndarray) -> np.ndarray:
        return places


def _has_some(sentences: np.ndarray | None) -> bool:
    return sentences is not None and len(sentences) > 0
