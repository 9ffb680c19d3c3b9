"""From decoder states to neighbours: candidates from the index, exact distances from the stored keys.

Entries that are newer than the index are first compared one by one, and added to the index in memory in batches.
"""

import copy
import math
from collections.abc import Sequence

import numpy as np
import torch

from nearmt.datastore import TOKENS, Filter, Snapshot
from nearmt.retrieval.columns import StoredColumns
from nearmt.retrieval.index import Allowed, GrowingIndex, Index, load_index, reranking_index
from nearmt.retrieval.neighbors import Neighbors, nearest_first

# For each row, the ids of stored sentences whose entries must not be found; None excludes nothing.
Excluded = Sequence[np.ndarray | None]

# faiss computes distances from norms in float32, which can swap neighbours at almost the same distance. Computing the
# exact distances of a few more candidates than needed corrects that.
_EXACT_SLACK = 8
PROBES = 32  # inverted lists searched per row
RERANKED = 96  # candidates whose distances are computed from the stored keys
_ROUNDING = 1e-3  # relative error of sums in float32, with a large margin
_GATHERED_NUMBERS = 1 << 20  # keys are fetched a few rows at a time, to stay in the CPU cache
_MAX_CANDIDATES = 1 << 20  # of a deeper search in memory at a time
_ADDED_AT_ONCE = 64  # new entries join the index in batches; up to twice as many are compared one by one
_MOSTLY_ALLOWED = 0.5  # share from which it is cheaper to search all entries and drop those not allowed


class Retriever(StoredColumns):
    """Searches one snapshot. It holds no results, so threads can share it."""

    retrieval = TOKENS
    max_entries: int | None = None  # of the sentences that are searched for a source, where only some are

    def __init__(
        self,
        snapshot: Snapshot,
        index: Index | None = None,
        reranked: int | None = None,
    ) -> None:
        super().__init__(snapshot)
        self.index: Index = index if index is not None else load_index(snapshot)
        index_record = snapshot.manifest.index
        stated = index_record.reranked if index_record is not None else None
        self.reranked = next(value for value in (reranked, stated, RERANKED) if value is not None)
        self._extend_index()
        is_reranked = self.index.is_exact or self.reranked
        self._reranking = reranking_index(self.index, snapshot) if is_reranked else None
        self._num_indexed = self.index.num_entries
        self._new_keys = torch.from_numpy(snapshot.float_keys(slice(self._num_indexed, None)))
        self._values = np.asarray(snapshot.values)
        is_alive = snapshot.entry_mask(snapshot.live_sentences) if snapshot.has_removals else None
        self._allow(Allowed(is_alive) if is_alive is not None else None)

    def _allow(self, allowed: Allowed | None) -> None:
        """Search these entries only; other new entries get an infinite norm."""
        self._allowed = allowed
        self._is_allowed = torch.from_numpy(allowed.mask) if allowed is not None else None
        self._new_norms = self._new_keys.square().sum(dim=1)
        if self._is_allowed is not None:
            self._new_norms[~self._is_allowed[self._num_indexed :]] = torch.inf

    def _extend_index(self) -> None:
        """Add the snapshot's newer entries to the index. How many are left depends on the snapshot alone."""
        if isinstance(self.index, GrowingIndex):
            end = (len(self.snapshot) // _ADDED_AT_ONCE - 1) * _ADDED_AT_ONCE
            for start in range(self.index.num_entries, end, _ADDED_AT_ONCE):
                self.index.add(self.snapshot.float_keys(slice(start, min(start + _ADDED_AT_ONCE, end))))

    def filtered(self, wanted: Filter) -> "Retriever":
        """The same search, in a part of the store."""
        if wanted.is_empty:
            return self
        narrower = copy.copy(self)
        mask = self.snapshot.entry_mask(wanted.sentences(self.snapshot))
        narrower._allow(Allowed(mask, wanted.origin_hashes(self.snapshot)))
        return narrower

    def following(self, snapshot: Snapshot) -> "Retriever":
        """A retriever of a later snapshot; keeps the index if it is still the same."""
        return Retriever(snapshot, self.index if self.has_same_index(snapshot) else None)

    def has_same_index(self, snapshot: Snapshot) -> bool:
        """True if a later snapshot has the same index, apart from what was added to it in memory."""
        old, new = self.snapshot.manifest, snapshot.manifest
        return (old.generation, old.index) == (new.generation, new.index)

    # Searching

    def start(self, texts: Sequence[str] | None, excluded: Excluded | None = None) -> "TokenSearch":
        """The search of a batch of sources; `excluded` lists, for each source, sentences that must not be found."""
        return TokenSearch(self, excluded)

    def search(self, states: torch.Tensor, k: int, excluded: Excluded | None = None) -> Neighbors:
        """The `k` nearest entries of each state, (rows, width).

        `excluded` lists, for each row, sentences whose entries must not be found.
        """
        queries = self.snapshot.project(states)
        if len(self.snapshot) == 0 or len(queries) == 0:
            empty = torch.zeros((len(queries), 0))
            return Neighbors.sorted_from(empty, empty.long(), empty.long(), k)
        distances, entry_ids = self._indexed(queries, k, excluded)
        if len(self._new_keys):
            new_distances, new_ids = self._not_indexed(queries, k, excluded, _reach(distances, entry_ids, k))
            if new_ids.shape[1]:
                distances, entry_ids = torch.hstack([distances, new_distances]), torch.hstack([entry_ids, new_ids])
        return Neighbors.sorted_entries(distances, entry_ids, self._values, k)

    def _indexed(self, queries: torch.Tensor, k: int, excluded: Excluded | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Candidates from the index, with at least k valid ones per row if there are any."""
        total = self._num_indexed
        if not total:
            return torch.zeros(len(queries), 0), torch.zeros(len(queries), 0, dtype=torch.long)
        share = self._allowed.share if self._allowed is not None else 1.0
        selecting = share < _MOSTLY_ALLOWED
        wanted = k + _EXACT_SLACK if self.index.is_exact else max(k, self.reranked)
        if self.index.is_exact and not selecting:
            wanted = math.ceil(wanted / share)
        wanted = min(wanted, total)
        found = self._candidates(queries, wanted, excluded, selecting)
        if self._allowed is not None and not selecting:
            found = self._searched_again(found, queries, k, wanted, excluded)
        while excluded is not None and wanted < total and _short(found[1], k):
            wanted = min(4 * wanted, total)
            found = self._searched_again(found, queries, k, wanted, excluded)
        return found

    def _searched_again(
        self,
        found: tuple[torch.Tensor, torch.Tensor],
        queries: torch.Tensor,
        k: int,
        wanted: int,
        excluded: Excluded | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Search rows with fewer than k valid candidates again, for `wanted` candidates among the allowed entries.

        Only the nearest of them are kept, because `wanted` can be the size of the store.
        """
        distances, entry_ids = found
        short = _short(entry_ids, k)
        if not short:
            return found
        if (missing := k - entry_ids.shape[1]) > 0:
            distances = torch.nn.functional.pad(distances, (0, missing))
            entry_ids = torch.nn.functional.pad(entry_ids, (0, missing), value=-1)
        step = max(1, _MAX_CANDIDATES // wanted)
        for start in range(0, len(short), step):
            rows = short[start : start + step]
            without = [excluded[i] for i in rows] if excluded is not None else None
            deeper = self._candidates(queries[rows], wanted, without, self._allowed is not None)
            nearest = nearest_first(entry_ids.shape[1], *(part.numpy() for part in deeper))
            distances[rows], entry_ids[rows] = (torch.from_numpy(part) for part in nearest)
        return distances, entry_ids

    def _candidates(
        self, queries: torch.Tensor, wanted: int, excluded: Excluded | None, selecting: bool
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(rows, wanted) distances and entry ids, unsorted; -1 for candidates that are missing or not allowed."""
        allowed = self._allowed if selecting else None
        distances, found = (self._reranking or self.index).search(queries.numpy(), wanted, allowed)
        entry_ids = torch.from_numpy(found)
        if self._allowed is not None and not selecting:
            entry_ids = self._only_allowed(entry_ids)
        if excluded is not None:
            entry_ids = self._without(entry_ids, excluded)
        if self._reranking is None:
            # The index may hold later entries than the snapshot.
            entry_ids = entry_ids.masked_fill(entry_ids >= len(self.snapshot), -1)
            if self.index.is_exact or self.reranked:
                return self._distances(queries, entry_ids.clamp_min(0)), entry_ids
        return torch.from_numpy(distances), entry_ids

    def _not_indexed(
        self, queries: torch.Tensor, k: int, excluded: Excluded | None, reach: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The nearest entries that are not in the index, within each row's reach."""
        near = torch.addmm(self._new_norms, queries, self._new_keys.T, alpha=-2)
        count = len(self._new_keys)
        if excluded is None:
            norms = queries.square().sum(dim=1)
            is_near = near <= (reach - norms + _ROUNDING * (reach + norms)).unsqueeze(1)
            count = min(k + _EXACT_SLACK, int(is_near.sum(dim=1).max()))
        if not count:
            return torch.zeros(len(queries), 0), torch.zeros(len(queries), 0, dtype=torch.long)
        found = near.topk(count, dim=1, largest=False)
        entry_ids = (found.indices + self._num_indexed).masked_fill(found.values == torch.inf, -1)
        if excluded is not None:
            entry_ids = self._without(entry_ids, excluded)
        return self._distances(queries, entry_ids.clamp_min(0)), entry_ids

    def _distances(self, queries: torch.Tensor, entry_ids: torch.Tensor) -> torch.Tensor:
        """Exact squared distances, which do not depend on the other rows of a search."""
        rows, count = entry_ids.shape
        out = torch.empty(rows, count)
        step = max(1, _GATHERED_NUMBERS // (count * queries.shape[1]))
        for start in range(0, rows, step):
            ids = entry_ids[start : start + step]
            keys = self.snapshot.keys_of(ids)
            out[start : start + step] = keys.sub_(queries[start : start + step].unsqueeze(1)).square_().sum(dim=2)
        return out

    def _only_allowed(self, entry_ids: torch.Tensor) -> torch.Tensor:
        assert self._is_allowed is not None
        is_allowed = self._is_allowed[entry_ids.clamp(0, len(self._is_allowed) - 1)]
        return entry_ids.masked_fill(~is_allowed, -1)

    def _without(self, entry_ids: torch.Tensor, excluded: Excluded) -> torch.Tensor:
        sentence_ids = self.snapshot.sentence_ids_of(entry_ids.numpy())
        is_excluded = np.zeros(sentence_ids.shape, bool)
        for row, sentences in enumerate(excluded):
            if sentences is not None and len(sentences):
                is_excluded[row] = np.isin(sentence_ids[row], sentences)
        return entry_ids.masked_fill(torch.from_numpy(is_excluded), -1)


class TokenSearch:
    """The search of one batch of sources in the whole store."""

    def __init__(self, retriever: Retriever, excluded: Excluded | None) -> None:
        self._retriever, self._excluded = retriever, excluded

    def search(self, states: torch.Tensor, sources: torch.Tensor, k: int) -> Neighbors:
        """The `k` nearest entries of each state, (rows, width); row i belongs to source `sources[i]`."""
        excluded = None
        if self._excluded is not None:
            excluded = [self._excluded[i] for i in sources.tolist()]
            excluded = excluded if any(ids is not None for ids in excluded) else None
        return self._retriever.search(states, k, excluded)


def _reach(distances: torch.Tensor, entry_ids: torch.Tensor, k: int) -> torch.Tensor:
    """(rows,): the distance of the k-th candidate, infinite if there are fewer."""
    if entry_ids.shape[1] < k:
        return torch.full((len(entry_ids),), torch.inf)
    return torch.where(entry_ids < 0, torch.inf, distances).kthvalue(k, dim=1).values


def _short(entry_ids: torch.Tensor, k: int) -> list[int]:
    """The rows with fewer than `k` valid candidates."""
    counted = (entry_ids >= 0).sum(dim=1)
    return [] if int(counted.min()) >= k else (counted < k).nonzero().flatten().tolist()
