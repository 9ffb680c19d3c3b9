"""The index of all entries by lists: one part in files, one in memory for later entries, and the newest in no list."""

from dataclasses import dataclass, replace

import numpy as np

from nearmt.retrieval import arranging
from nearmt.retrieval.lists.clusters import Arranged, Clusters, by_list

_AT_ONCE = 512  # later entries join the lists in batches; fewer of them are read by every search
_MAX_PROBES = 64  # where only some entries may be found
_FEW = 8192  # entries that may be found: they are compared one by one


@dataclass(frozen=True)
class Part:
    """Entries by list."""

    begins: np.ndarray  # (lists + 1,) blocks
    entries: Arranged

    @classmethod
    def of(cls, keys: np.ndarray, lists: np.ndarray, num_lists: int, first: int) -> "Part":
        """The keys (n, dims) of the entries from `first` on, by their lists (n,)."""
        return cls(*by_list(keys, lists, num_lists, first))

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        return self.begins, *self.entries

    def only(self, allowed: np.ndarray) -> tuple["Part", np.ndarray]:
        """The same, where entries outside a mask (entries,) are infinitely far; and how many are left in each list."""
        norms, sizes = np.full(len(self.entries.norms), np.inf, np.float32), np.zeros(len(self.begins) - 1, np.int64)
        arranging.only_allowed(self.begins, self.entries.norms, self.entries.ids, allowed, norms, sizes)
        return Part(self.begins, self.entries._replace(norms=norms)), sizes


@dataclass(frozen=True)
class ListIndex:
    """The entries of one snapshot. It never changes, so threads and later indexes share its parts."""

    clusters: Clusters
    stored: Part
    recent: Part
    recent_lists: np.ndarray  # of the entries of `recent`, in their order
    newest: Part  # one list, which every search reads
    num_stored: int
    num_probes: int

    @classmethod
    def starting_with(cls, clusters: Clusters, stored: Part, num_stored: int, num_probes: int) -> "ListIndex":
        """The index of the entries that are in files."""
        dims, lists = clusters.dims, np.zeros(0, np.int64)
        nothing = np.zeros((0, dims), np.uint8)
        recent, newest = Part.of(nothing, lists, len(clusters), 0), Part.of(nothing, lists, 1, 0)
        return cls(clusters, stored, recent, lists, newest, num_stored, num_probes)

    def following(self, keys: np.ndarray) -> "ListIndex":
        """The index of all keys (entries, dims) of a later snapshot, or of an earlier one of the same data.

        The result depends on nothing else.
        """
        end = self.num_stored + (len(keys) - self.num_stored) // _AT_ONCE * _AT_ONCE  # of those in lists
        known = self.num_stored + len(self.recent_lists)
        recent, lists = self.recent, self.recent_lists
        if end != known:
            lists = np.concatenate([lists[: end - self.num_stored], self.clusters.assign(keys[known:end])])
            recent = Part.of(keys[self.num_stored : end], lists, len(self.clusters), self.num_stored)
        rest = keys[end:]
        newest = Part.of(rest, np.zeros(len(rest), np.int64), 1, end)
        return replace(self, recent=recent, recent_lists=lists, newest=newest)

    def search_parameters(self, keys: np.ndarray, allowed: np.ndarray | None) -> "Lists":
        """What a search of these keys (entries, dims) takes; `allowed` (entries,) tells which of them may be found."""
        probes, parts = min(self.num_probes, max(1, len(self.clusters))), (self.stored, self.recent, self.newest)
        if allowed is None:
            return Lists(probes, self.clusters.arrays, tuple(part.arrays for part in parts))
        left = int(np.count_nonzero(allowed))
        if left <= _FEW:
            return self._one_list(keys, np.flatnonzero(allowed))
        narrow, sizes = zip(*(part.only(allowed) for part in parts), strict=True)
        *groups, centroids, norms, numbers = self.clusters.arrays
        is_used = (sizes[0] + sizes[1] > 0)[numbers] & np.isfinite(norms)
        clusters = (*groups, centroids, np.where(is_used, norms, np.float32(np.inf)), numbers)
        more = min(_MAX_PROBES, probes * len(allowed) // left, len(self.clusters))
        return Lists(max(probes, more), clusters, tuple(part.arrays for part in narrow))

    def _one_list(self, keys: np.ndarray, entry_ids: np.ndarray) -> "Lists":
        """Some entries in one list that all rows read."""
        begins, dims = np.zeros_like(self.stored.begins), self.clusters.dims
        stored, recent = Arranged.empty(0, dims, "uint32"), Arranged.empty(0, dims)
        few = Arranged.of(keys[entry_ids], entry_ids)
        parts = (begins, *stored), (begins, *recent), (np.array([0, len(few.keys)]), *few)
        return Lists(1, self.clusters.arrays, parts)


@dataclass(frozen=True)
class Lists:
    """The arguments of `nearest.nearest_in_lists`."""

    num_probes: int
    clusters: tuple[np.ndarray, ...]
    parts: tuple[tuple[np.ndarray, ...], ...]
