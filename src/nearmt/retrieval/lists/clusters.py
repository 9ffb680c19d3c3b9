"""The lists that keys are divided into: centroids in two levels, so that few of them are compared at any size."""

from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

import faiss
import numpy as np

from nearmt.compiled.dots import LANES
from nearmt.retrieval import arranging, nearest
from nearmt.retrieval.threads import in_threads

PROBED_GROUPS = 8
_ENTRIES_PER_LIST = 200
_ONE_GROUP = 256  # lists; with more, the nearest groups of lists are found first
_TRAINED_PER_LIST = 48  # keys
_MOST_PER_MEAN = 256  # keys, as in faiss
_ITERATIONS = 10
_ASSIGNED = 1 << 16  # keys at a time


def count_lists(num_entries: int) -> int:
    """The number of lists for this many entries. What a list holds, and so what a search costs, stays the same."""
    return max(1, round(num_entries / _ENTRIES_PER_LIST))


class Arranged(NamedTuple):
    """Keys of bytes in blocks of LANES, as compiled searches read them."""

    keys: np.ndarray  # (blocks, pairs of dimensions, 2 · LANES) uint8
    norms: np.ndarray  # (slots,) float32, see `arranging.gather`; infinite in empty slots
    ids: np.ndarray  # (slots,) int64 or uint32

    @classmethod
    def empty(cls, blocks: int, dims: int, id_type: str = "int64") -> "Arranged":
        slots = LANES * blocks
        keys = np.zeros((blocks, -(-dims // 2), 2 * LANES), np.uint8)
        return cls(keys, np.full(slots, np.inf, np.float32), np.zeros(slots, id_type))

    @classmethod
    def of(cls, keys: np.ndarray, ids: np.ndarray, id_type: str = "int64") -> "Arranged":
        """All keys (n, dims), one after the other."""
        found = cls.empty(-(-len(keys) // LANES), keys.shape[1], id_type)
        rows = np.arange(len(keys))
        arranging.arrange(keys, rows, rows, ids, found.keys, found.norms, found.ids)
        return found


def begins_of(sizes: np.ndarray) -> np.ndarray:
    """(lists + 1,) the block where each list of so many keys begins, and the end of the last."""
    begins = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(-(-sizes // LANES), out=begins[1:])
    return begins


def slots_of(numbers: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The keys in the order of their lists (n,), and the slot of each of these; `sizes` are those of the lists."""
    order = np.argsort(numbers, kind="stable")
    slots = np.repeat(LANES * begins_of(sizes)[:-1] - np.cumsum(sizes) + sizes, sizes)
    slots += np.arange(len(order))
    return order, slots


def by_list(keys: np.ndarray, numbers: np.ndarray, num_lists: int, first: int = 0) -> tuple[np.ndarray, Arranged]:
    """Keys (n, dims), whose ids are `first` and so on, by their lists (n,); and the block where each list begins."""
    sizes = np.bincount(numbers, minlength=num_lists)
    begins, (order, slots) = begins_of(sizes), slots_of(numbers, sizes)
    found = Arranged.empty(int(begins[-1]), keys.shape[1])
    arranging.arrange(keys, order, slots, order + first, *found)
    return begins, found


@dataclass(frozen=True)
class Clusters:
    """The centroids of lists, and those of groups of lists."""

    groups: np.ndarray  # (groups, dims) uint8
    lists_per_group: np.ndarray  # (groups,); a group's lists have consecutive numbers
    lists: np.ndarray  # (lists, dims) uint8

    @classmethod
    def trained(cls, sample: np.ndarray, num_lists: int, seed: int = 1) -> "Clusters":
        """Cluster some keys (n, dims) of bytes into about `num_lists` lists, at least one and at most n."""
        num_lists = max(1, min(num_lists, len(sample)))
        num_groups = 1 if num_lists <= _ONE_GROUP else round(num_lists**0.5)
        groups = _means(sample, num_groups, seed)
        if num_groups == 1:
            lists = _means(sample, num_lists, seed)
            return cls(groups, np.array([len(lists)]), lists)
        members = cls(groups, np.ones(len(groups), np.int64), groups).assign(sample)
        parts = []
        for number in range(len(groups)):
            own = sample[members == number]
            wanted = max(1, round(num_lists * len(own) / len(sample)))
            parts.append(_means(own, wanted, seed) if len(own) else groups[number : number + 1])
        return cls(groups, np.array([len(part) for part in parts]), np.concatenate(parts))

    def __len__(self) -> int:
        return len(self.lists)

    @property
    def dims(self) -> int:
        return int(self.lists.shape[1])

    @cached_property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """What `nearest.nearest_in_lists` takes."""
        groups = Arranged.of(self.groups, np.arange(len(self.groups)))
        numbers = np.repeat(np.arange(len(self.groups)), self.lists_per_group)
        begins, lists = by_list(self.lists, numbers, len(self.groups))
        return groups.keys, groups.norms, begins, lists.keys, lists.norms, lists.ids

    def assign(self, keys: np.ndarray) -> np.ndarray:
        """(n,) the list of each of these keys (n, dims) of bytes."""
        found = np.zeros(len(keys), np.int64)
        for start in range(0, len(keys), _ASSIGNED):
            given = keys[start : start + _ASSIGNED]
            queries = np.zeros((len(given), 2 * self.arrays[0].shape[1]), np.float32)
            queries[:, : self.dims] = given
            lists = found[start : start + len(given)]
            in_threads(partial(self._assign, queries, lists), len(given))
        return found

    def _assign(self, queries: np.ndarray, lists: np.ndarray, first: int, last: int) -> None:
        nearest.nearest_lists(queries, first, last, PROBED_GROUPS, self.arrays, lists)


def sample_size(num_lists: int, num_entries: int) -> int:
    """How many keys are clustered."""
    return min(num_entries, max(_TRAINED_PER_LIST * num_lists, 1 << 14))


def _means(keys: np.ndarray, count: int, seed: int) -> np.ndarray:
    """At most `count` means of clusters of keys, rounded to bytes; at least one, even of nothing."""
    if not len(keys):
        return np.zeros((1, keys.shape[1]), np.uint8)
    if len(keys) <= count:
        return np.ascontiguousarray(keys)
    if len(keys) > _MOST_PER_MEAN * count:  # faiss would leave out the others, after all had become floats
        rows = np.random.default_rng(seed).choice(len(keys), _MOST_PER_MEAN * count, replace=False)
        keys = keys[np.sort(rows)]
    clustering = faiss.Kmeans(keys.shape[1], count, niter=_ITERATIONS, seed=seed, min_points_per_centroid=1)
    clustering.train(keys.astype(np.float32))
    means: np.ndarray = np.rint(np.asarray(clustering.centroids)).clip(0, 255).astype(np.uint8)
    return means
