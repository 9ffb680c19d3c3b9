"""What a search brings back, and what else of a query a method may look at: the border between search and mixture."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
import torch

from nearmt.greatest import greatest

NUM_TOP = 8  # the model's highest probabilities that methods may look at


@dataclass(frozen=True)
class Neighbors:
    """The K nearest entries of each row, nearest first.

    Slots that nothing was found for come last: there `found` is False, `entry_ids` is -1, the token is
    arbitrary, and the distance repeats the last found one so that it can serve as a feature.
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

    @staticmethod
    def sorted_from(
        squared_distances: torch.Tensor, token_ids: torch.Tensor, entry_ids: torch.Tensor, k: int
    ) -> "Neighbors":
        """From unsorted candidates; an entry id of -1 marks a missing one. Ties go to the lower entry id."""
        return Neighbors._of(*nearest_first(k, squared_distances.numpy(), entry_ids.numpy(), token_ids.numpy()))

    @staticmethod
    def sorted_entries(
        squared_distances: torch.Tensor, entry_ids: torch.Tensor, values: np.ndarray, k: int
    ) -> "Neighbors":
        """The same, the tokens looked up in a column of `values`, of the entries that are left only."""
        distances, found_ids = nearest_first(k, squared_distances.numpy(), entry_ids.numpy())
        return Neighbors._of(distances, found_ids, values[found_ids].astype(np.int64))

    @staticmethod
    def _of(distances: np.ndarray, entry_ids: np.ndarray, token_ids: np.ndarray) -> "Neighbors":
        ids = torch.from_numpy(entry_ids)
        return Neighbors(torch.from_numpy(distances), torch.from_numpy(token_ids), ids, ids >= 0)


def nearest_first(k: int, distances: np.ndarray, entry_ids: np.ndarray, *more: np.ndarray) -> list[np.ndarray]:
    """(rows, k) of each: nearest first, ties by entry id, the last found distance repeated where nothing was found.

    NumPy's calls cost less than torch's, which is what counts at few rows.
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
    if (columns[0][:, 1:] < columns[0][:, :-1]).any():  # faiss gives the nearest first
        order = columns[0].argsort(axis=1)
        columns = [np.take_along_axis(column, order, 1) for column in columns]
    first = columns[0][:, : k + 1]
    # Which of the missing ones comes first does not matter.
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
    """The values of found slots, the last of them repeated where nothing was found; (rows, K)."""
    if found.all():
        return values
    last = found.sum(dim=1, keepdim=True).sub(1).clamp_min(0)
    return torch.where(found, values, values.gather(1, last))


def log_distances(squared_distances: torch.Tensor, found: torch.Tensor, scale: float) -> torch.Tensor:
    """log(1 + scale · d) of each row, 0 where nothing was found."""
    return torch.where(found, (squared_distances.clamp_min(0) * scale).log1p(), 0.0)


class Trail(NamedTuple):
    """How far each row's sentence has been from the memory so far, the row included."""

    mean: torch.Tensor  # (rows,) of log(1 + scale · d_1)
    length: torch.Tensor  # (rows,) over how many tokens


def trails_along(neighbors: Neighbors, scale: float, sentence_ids: torch.Tensor | None = None) -> Trail:
    """The trail of each row by its nearest neighbour.

    The rows of a sentence stand together and in order. Without `sentence_ids` all rows are one sentence's.
    """
    squared_distances, found = neighbors.squared_distances[:, 0], neighbors.found[:, 0]
    if not len(found):
        return Trail(torch.zeros(0), torch.zeros(0, dtype=torch.long))
    sums = log_distances(squared_distances, found, scale).double().cumsum(0)
    counts = found.double().cumsum(0)
    if sentence_ids is not None:
        is_first = torch.ones(len(found), dtype=torch.bool)
        is_first[1:] = sentence_ids[1:] != sentence_ids[:-1]
        first = torch.where(is_first, torch.arange(len(found)), 0).cummax(0).values
        before = (first - 1).clamp_min(0)
        has_before = first > 0
        sums, counts = (part - torch.where(has_before, part[before], 0.0) for part in (sums, counts))
    return Trail((sums / counts.clamp_min(1)).float(), counts.long())


def top_probabilities(log_probs: torch.Tensor) -> torch.Tensor:
    """The highest probabilities of each row, highest first; (rows, 8). A smaller vocabulary is filled up with 0."""
    top = greatest(log_probs, min(NUM_TOP, log_probs.shape[1]))[0].exp()
    return torch.nn.functional.pad(top, (0, NUM_TOP - top.shape[1]))


class EntryColumns(Protocol):
    """What is stored of each entry beside its value: of the entries given, 0 for missing ones (-1)."""

    def keys_of(self, entry_ids: torch.Tensor) -> torch.Tensor: ...  # (…, width) float32

    def probabilities_of(self, entry_ids: torch.Tensor) -> torch.Tensor: ...  # (…) the model's own, of the value


def entries_of(column: np.ndarray, entry_ids: torch.Tensor) -> torch.Tensor:
    """What a column holds for these entries, as float32; 0 for missing ones (-1)."""
    shape = (*entry_ids.shape, *column.shape[1:])
    if not len(column):
        return torch.zeros(shape)
    rows = torch.from_numpy(column).index_select(0, entry_ids.clamp_min(0).reshape(-1))
    out, missing = rows.view(shape).float(), entry_ids < 0
    return out.masked_fill_(missing.view(*entry_ids.shape, *[1] * (column.ndim - 1)), 0) if missing.any() else out


@dataclass(frozen=True)
class Retrieved:
    """The neighbours of some queries, and the rest of what is known there, each part worked out when first asked for.

    Decoding, evidence and training all hand this to a method, so that one code weighs in all three. A method that
    looks at the neighbours only pays for nothing else.
    """

    neighbors: Neighbors
    _states: Callable[[], torch.Tensor]
    _keys: Callable[[], torch.Tensor]
    _stored_probabilities: Callable[[], torch.Tensor]
    _neighbor_probabilities: Callable[[], torch.Tensor]
    _top_probabilities: Callable[[], torch.Tensor]
    _trails: Callable[[float], Trail] | None = None

    @classmethod
    def at(
        cls,
        states: torch.Tensor,
        log_probs: torch.Tensor,
        neighbors: Neighbors,
        columns: EntryColumns,
        trails: Trail | None = None,
    ) -> "Retrieved":
        """From the model's states, (rows, width), and its own log-probabilities, (rows, vocabulary), on any device.

        `trails` tells how far each row's sentence has been so far; without it the rows are one sentence, in order.
        """
        return cls(
            neighbors,
            _states=lambda: states.detach().to("cpu", torch.float32),
            _keys=lambda: columns.keys_of(neighbors.entry_ids),
            _stored_probabilities=lambda: columns.probabilities_of(neighbors.entry_ids),
            _neighbor_probabilities=lambda: (
                log_probs.gather(1, neighbors.token_ids.to(log_probs.device)).exp().to("cpu", torch.float32)
            ),
            _top_probabilities=lambda: top_probabilities(log_probs).to("cpu", torch.float32),
            _trails=None if trails is None else lambda scale: trails,
        )

    def __len__(self) -> int:
        return len(self.neighbors)

    @cached_property
    def states(self) -> torch.Tensor:
        """(rows, width) float32: the queries."""
        return self._states()

    @cached_property
    def keys(self) -> torch.Tensor:
        """(rows, K, width) float32: the stored keys of the neighbours; 0 where nothing was found."""
        return self._keys()

    @cached_property
    def stored_probabilities(self) -> torch.Tensor:
        """(rows, K) p_NMT(v_i) at the stored key, when the memory was read."""
        return self._stored_probabilities()

    @cached_property
    def neighbor_probabilities(self) -> torch.Tensor:
        """(rows, K) p_NMT(v_i) at the query."""
        return self._neighbor_probabilities()

    @cached_property
    def top_probabilities(self) -> torch.Tensor:
        """(rows, 8) the model's highest probabilities at the query, highest first."""
        return self._top_probabilities()

    def trails(self, scale: float) -> Trail:
        """(rows,) how far the nearest neighbours of the sentence have been so far: the mean of log(1 + scale · d_1)."""
        return self._trails(scale) if self._trails is not None else trails_along(self.neighbors, scale)

    def nearest(self, k: int) -> "Retrieved":
        """The same rows with at most `k` neighbours."""
        if self.neighbors.max_k <= k:
            return self
        return Retrieved(
            self.neighbors.nearest(k),
            lambda: self.states,
            lambda: self.keys[:, :k],
            lambda: self.stored_probabilities[:, :k],
            lambda: self.neighbor_probabilities[:, :k],
            lambda: self.top_probabilities,
            self.trails,
        )
