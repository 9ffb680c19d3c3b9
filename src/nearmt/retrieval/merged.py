"""Searching several stores as one: the nearest entries of all of them."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch

from nearmt.datastore import Snapshot
from nearmt.errors import SettingError
from nearmt.retrieval.modes import StoreRetriever
from nearmt.retrieval.neighbors import Neighbors
from nearmt.retrieval.search import Excluded

_STORE = 1 << 44  # entry id = entry id in its store + number of the store × this


class MergedRetriever:
    """Searches several stores of one model. A pair in several stores is only found in the first of them."""

    def __init__(self, retrievers: Sequence[StoreRetriever]) -> None:
        self._retrievers = list(retrievers)

    def project(self, states: torch.Tensor) -> torch.Tensor:
        """In the space of the first store's keys, whose networks are used."""
        return self._retrievers[0].project(states)

    def keys_of(self, entry_ids: torch.Tensor) -> torch.Tensor:
        """In the space of the first store's keys."""
        return self._gathered([self._moved(r, r.keys_of(ids)) for r, ids in self._by_store(entry_ids)])

    def _moved(self, retriever: StoreRetriever, keys: torch.Tensor) -> torch.Tensor:
        """Keys of one store as points in the space of the first store's keys."""
        own, first = retriever.snapshot.key_code, self._retrievers[0].snapshot.key_code
        if retriever is self._retrievers[0] or (own.projection is None and first.projection is None):
            return keys
        lifted = own.lift(keys.flatten(0, -2).numpy())
        return torch.from_numpy(first.project(lifted)).view(*keys.shape[:-1], first.dims)

    def probabilities_of(self, entry_ids: torch.Tensor) -> torch.Tensor:
        return self._gathered([r.probabilities_of(ids) for r, ids in self._by_store(entry_ids)])

    def _by_store(self, entry_ids: torch.Tensor) -> list[tuple[StoreRetriever, torch.Tensor]]:
        """For each store, the entry ids in it, -1 for entries of other stores."""
        return [
            (retriever, torch.where((entry_ids >= 0) & (entry_ids // _STORE == place), entry_ids % _STORE, -1))
            for place, retriever in enumerate(self._retrievers)
        ]

    @staticmethod
    def _gathered(parts: Sequence[torch.Tensor]) -> torch.Tensor:
        return torch.stack(list(parts)).sum(dim=0)  # each entry is 0 in all parts but one

    def stored_at(self, entry_id: int) -> tuple[Snapshot, int]:
        """The snapshot of an entry, and its entry id there."""
        return self._retrievers[entry_id // _STORE].stored_at(entry_id % _STORE)

    def start(self, texts: Sequence[str] | None, excluded: Excluded | None = None) -> "MergedSearch":
        """The search of a batch of sources."""
        if excluded is not None:
            raise SettingError("`excluded` is not supported for several stores")
        return MergedSearch(self, [retriever.start(texts) for retriever in self._retrievers])

    def merged(self, found: Sequence[Neighbors], k: int) -> Neighbors:
        """The nearest of the neighbours that were found in each store."""
        codes = [self._codes(r.snapshot, near) for r, near in zip(self._retrievers, found, strict=True)]
        entry_ids = []
        for place, near in enumerate(found):
            ids = torch.where(near.found, near.entry_ids + place * _STORE, -1)
            for earlier, in_earlier in zip(codes[:place], found, strict=False):
                is_same = codes[place].unsqueeze(2) == earlier.unsqueeze(1)
                ids = ids.masked_fill((is_same & in_earlier.found.unsqueeze(1)).any(dim=2), -1)
            entry_ids.append(ids)
        distances = torch.hstack([near.squared_distances for near in found])
        tokens = torch.hstack([near.token_ids for near in found])
        return Neighbors.sorted_from(distances, tokens, torch.hstack(entry_ids), k)

    @staticmethod
    def _codes(snapshot: Snapshot, near: Neighbors) -> torch.Tensor:
        """A number for each entry from its pair and position, equal for the same entry in two stores."""
        if not len(snapshot):
            return torch.zeros_like(near.entry_ids)
        ids = near.entry_ids.clamp_min(0).numpy()
        pairs = snapshot.sentences["pair_hash"][snapshot.sentence_ids_of(ids)]
        return torch.from_numpy((pairs + snapshot.positions[ids].astype(np.uint64) * 0x9E3779B97F4A7C15).view(np.int64))


class Search(Protocol):
    """The search of one batch of sources."""

    def search(self, states: torch.Tensor, sources: torch.Tensor, k: int) -> Neighbors:
        """The `k` nearest entries of each state, (rows, width); row i belongs to source `sources[i]`."""
        ...


class MergedSearch:
    """The search of one batch of sources in several stores."""

    def __init__(self, retriever: MergedRetriever, searches: Sequence[Search]) -> None:
        self._retriever, self._searches = retriever, searches

    def search(self, states: torch.Tensor, sources: torch.Tensor, k: int) -> Neighbors:
        """The `k` nearest entries of each state in all stores."""
        return self._retriever.merged([search.search(states, sources, k) for search in self._searches], k)


AnyRetriever = StoreRetriever | MergedRetriever
