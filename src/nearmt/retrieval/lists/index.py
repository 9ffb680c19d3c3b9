"""The index of all entries by lists: one part in files, one in memory for later entries, and the newest in no list."""

from dataclasses import dataclass, replace

import numpy as np

from nearmt.compiled.dots import LANES
from nearmt.datastore import Snapshot
from nearmt.retrieval import arranging
from nearmt.retrieval.lists.clusters import Arranged, Clusters, divided, slots_of

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
        _, begins = divided(lists, num_lists)
        entries = Arranged.empty(int(begins[-1]), keys.shape[1])
        order, slots = slots_of(lists, begins)
        arranging.arrange(keys, order, slots, order + first, entries.keys, entries.norms, entries.ids)
        return cls(begins, entries)

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        return self.begins, *self.entries

    def only(self, allowed: np.ndarray) -> "Part":
        """The same, where all other entries are infinitely far; `allowed` (entries,) is a mask."""
        if not len(self.entries.ids):
            return self
        norms = np.where(allowed[self.entries.ids], self.entries.norms, np.float32(np.inf))
        return Part(self.begins, self.entries._replace(norms=norms))

    def sizes(self) -> np.ndarray:
        """(lists,) how many entries of each list can be found."""
        counted = np.concatenate([[0], np.cumsum(np.isfinite(self.entries.norms))])
        sizes: np.ndarray = np.diff(counted[LANES * self.begins])
        return sizes


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

    def following(self, snapshot: Snapshot) -> "ListIndex":
        """The index of a later snapshot, or of an earlier one of the same data. The result depends on nothing else."""
        end = self.num_stored + (len(snapshot) - self.num_stored) // _AT_ONCE * _AT_ONCE  # of those in lists
        known = self.num_stored + len(self.recent_lists)
        recent, lists = self.recent, self.recent_lists
        if end != known:
            lists = np.concatenate([lists[: end - self.num_stored], self.clusters.assign(snapshot.keys[known:end])])
            recent = Part.of(snapshot.keys[self.num_stored : end], lists, len(self.clusters), self.num_stored)
        rest = snapshot.keys[end:]
        newest = Part.of(rest, np.zeros(len(rest), np.int64), 1, end)
        return replace(self, recent=recent, recent_lists=lists, newest=newest)

    def search_parameters(self, allowed: np.ndarray | None) -> "Lists":
        """What a search takes; `allowed` (entries,) is a mask of the entries that may be found."""
        parts = self.stored, self.recent, self.newest
        if allowed is None:
            return Lists(self.num_probes, self.clusters.arrays, tuple(part.arrays for part in parts))
        narrow = [part.only(allowed) for part in parts]
        sizes = narrow[0].sizes() + narrow[1].sizes()
        left = int(sizes.sum())
        if left <= _FEW:  # as one list that all rows read
            probes, none = 1, np.zeros_like(self.stored.begins)
            few = self._only_list(narrow)
            empty = (none, *Arranged.empty(0, self.clusters.dims))
            return Lists(probes, self.clusters.arrays, (empty, empty, few.arrays))
        share = left / (self.num_stored + len(self.recent_lists))
        *groups, keys, norms, numbers = self.clusters.arrays
        is_used = (sizes > 0)[numbers] & np.isfinite(norms)
        probes = min(_MAX_PROBES, round(self.num_probes / share))
        clusters = (*groups, keys, np.where(is_used, norms, np.float32(np.inf)), numbers)
        return Lists(probes, clusters, tuple(part.arrays for part in narrow))

    def _only_list(self, parts: list[Part]) -> Part:
        """All entries of the parts that can be found, in one list."""
        keys, ids = [], []
        for part in parts:
            slots = np.flatnonzero(np.isfinite(part.entries.norms))
            blocks = part.entries.keys[slots // LANES]  # (n, pairs, 2 · LANES)
            lanes = 2 * (slots % LANES)[:, None, None] + np.arange(2)
            keys.append(np.take_along_axis(blocks, lanes, 2).reshape(len(slots), -1))
            ids.append(part.entries.ids[slots].astype(np.int64))
        arranged = Arranged.of(np.concatenate(keys), np.concatenate(ids))
        return Part(np.array([0, len(arranged.keys)]), arranged)


@dataclass(frozen=True)
class Lists:
    """The arguments of `nearest.nearest_in_lists`."""

    num_probes: int
    clusters: tuple[np.ndarray, ...]
    parts: tuple[tuple[np.ndarray, ...], ...]
