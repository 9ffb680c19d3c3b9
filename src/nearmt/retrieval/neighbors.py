"""Search results: the K nearest entries of each query, nearest first."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from nearmt.retrieval.threads import in_threads


@dataclass(frozen=True)
class Neighbors:
    """The K nearest entries of each row, nearest first.

    Missing slots come last: there `found` is False, `entry_ids` is -1, the token is arbitrary, and the distance repeats
    the last one found, so that it can be used as a feature.
    """

    squared_distances: torch.Tensor  # (rows, K) float32
    token_ids: torch.Tensor  # (rows, K) int64
    entry_ids: torch.Tensor  # (rows, K) int64
    found: torch.Tensor  # (rows, K) bool

    def __len__(self) -> int:
        return self.squared_distances.shape[0]

    @property
    def max_k(self) -> int:
        return self.squared_distances.shape[1]

    def nearest(self, k: int) -> "Neighbors":
        """The same rows with at most `k` neighbours."""
        if k >= self.max_k:
            return self
        return Neighbors(self.squared_distances[:, :k], self.token_ids[:, :k], self.entry_ids[:, :k], self.found[:, :k])

    def rows(self, rows: torch.Tensor | slice) -> "Neighbors":
        """Some of the rows, by index, mask or range."""
        return Neighbors(self.squared_distances[rows], self.token_ids[rows], self.entry_ids[rows], self.found[rows])

    def only(self, is_left: torch.Tensor, k: int) -> "Neighbors":
        """At most `k` of those that are left (rows, K), in their order."""
        order = (~is_left).byte().argsort(dim=1, stable=True)[:, :k]
        found = is_left.gather(1, order)
        distances = repeat_last(self.squared_distances.gather(1, order).masked_fill(~found, 0), found)
        entry_ids = self.entry_ids.gather(1, order).masked_fill(~found, -1)
        return Neighbors(distances, self.token_ids.gather(1, order), entry_ids, found)

    @staticmethod
    def sorted_from(
        squared_distances: torch.Tensor, token_ids: torch.Tensor, entry_ids: torch.Tensor, k: int
    ) -> "Neighbors":
        """From unsorted candidates, where an entry id of -1 is a missing one. Ties are sorted by entry id."""
        return Neighbors._of(*nearest_first(k, squared_distances.numpy(), entry_ids.numpy(), token_ids.numpy()))

    @staticmethod
    def sorted_entries(
        squared_distances: torch.Tensor, entry_ids: torch.Tensor, values: np.ndarray, k: int
    ) -> "Neighbors":
        """The same, with the tokens of the remaining entries looked up in `values`."""
        distances, found_ids = nearest_first(k, squared_distances.numpy(), entry_ids.numpy())
        return Neighbors._of(distances, found_ids, values[found_ids].astype(np.int64))

    @staticmethod
    def _of(distances: np.ndarray, entry_ids: np.ndarray, token_ids: np.ndarray) -> "Neighbors":
        ids = torch.from_numpy(entry_ids)
        return Neighbors(torch.from_numpy(distances), torch.from_numpy(token_ids), ids, ids >= 0)


class NearArrays(NamedTuple):
    """What compiled mixtures need of the K nearest entries of each row, nearest first. Missing slots are arbitrary."""

    squared_distances: np.ndarray  # (rows, K) float32
    token_ids: np.ndarray  # (rows, K) int64
    counts: np.ndarray  # (rows,) int64: how many were found
    probabilities: np.ndarray  # (rows, K) float32: what the model gave the tokens when they were stored


class UnfilledArrays(NamedTuple):
    """Arrays that `fill(first, last)` fills for a part of the rows, in the thread that will use them."""

    arrays: NearArrays
    fill: Callable[[int, int], object]

    def filled(self) -> "UnfilledArrays":
        """The same, filled now."""
        in_threads(self.fill, len(self.arrays.counts))
        return UnfilledArrays(self.arrays, lambda first, last: None)


def nearest_first(k: int, distances: np.ndarray, entry_ids: np.ndarray, *more: np.ndarray) -> list[np.ndarray]:
    """(rows, k) of each: nearest first, ties by entry id, with the last distance repeated in missing slots.

    In NumPy, because its calls have less overhead than torch's, which matters with few rows.
    """
    columns = [distances, entry_ids, *more]
    if (missing := k - entry_ids.shape[1]) > 0:
        columns = [
            np.pad(column, ((0, 0), (0, missing)), constant_values=-1 if column is entry_ids else 0)
            for column in columns
        ]
    is_missing = columns[1] < 0
    are_missing = bool(is_missing.any())
    if are_missing:
        columns[0] = np.where(is_missing, np.float32(np.inf), columns[0])
    if (columns[0][:, 1:] < columns[0][:, :-1]).any():  # faiss usually returns them sorted
        order = columns[0].argsort(axis=1)
        columns = [np.take_along_axis(column, order, 1) for column in columns]
    first = columns[0][:, : k + 1]
    # The order of missing ones does not matter.
    tied = ((first[:, 1:] == first[:, :-1]) & (first[:, 1:] < np.inf)).any(axis=1).nonzero()[0]
    if len(tied):
        part = [column[tied] for column in columns]
        order = np.lexsort((part[1], part[0]))[:, :k]
        columns = [column[:, :k].copy() for column in columns]
        for column, sorted_part in zip(columns, part, strict=True):
            column[tied] = np.take_along_axis(sorted_part, order, 1)
    else:
        columns = [np.ascontiguousarray(column[:, :k]) for column in columns]
    if are_missing:
        found = columns[1] >= 0
        last = np.maximum(found.sum(axis=1, keepdims=True) - 1, 0)
        farthest = np.where(found[:, :1], np.take_along_axis(columns[0], last, 1), 0)
        columns[0] = np.where(found, columns[0], farthest)
    return columns


def repeat_last(values: torch.Tensor, found: torch.Tensor) -> torch.Tensor:
    """The values, with the last one found repeated in missing slots; (rows, K)."""
    if found.all():
        return values
    last = found.sum(dim=1, keepdim=True).sub(1).clamp_min(0)
    return torch.where(found, values, values.gather(1, last))


def distance_weights(neighbors: Neighbors, temperature: float) -> torch.Tensor:
    """e_i = exp(-(d_i - d_1)/T), 0 for missing slots; (rows, K)."""
    distances = neighbors.squared_distances
    return torch.exp((distances[:, :1] - distances) / temperature) * neighbors.found
