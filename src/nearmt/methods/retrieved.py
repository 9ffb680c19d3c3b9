"""What a method may look at when it weighs the neighbours of a query, each part computed on first use."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import torch

from nearmt.models.topk import topk
from nearmt.retrieval.neighbors import Neighbors

NUM_TOP = 8  # the model's highest probabilities that methods may look at


def log_distances(squared_distances: torch.Tensor, found: torch.Tensor, scale: float) -> torch.Tensor:
    """log(1 + scale · d) of each row, 0 where nothing was found."""
    return torch.where(found, (squared_distances.clamp_min(0) * scale).log1p(), 0.0)


class RunningDistance(NamedTuple):
    """How far each row's sentence has been from the memory so far, the row included."""

    mean: torch.Tensor  # (rows,) of log(1 + scale · d_1)
    length: torch.Tensor  # (rows,) over how many tokens


def running_distances_of(
    neighbors: Neighbors, scale: float, sentence_ids: torch.Tensor | None = None
) -> RunningDistance:
    """The trail of each row by its nearest neighbour.

    The rows of a sentence stand together and in order. Without `sentence_ids` all rows are one sentence's.
    """
    squared_distances, found = neighbors.squared_distances[:, 0], neighbors.found[:, 0]
    if not len(found):
        return RunningDistance(torch.zeros(0), torch.zeros(0, dtype=torch.long))
    sums = log_distances(squared_distances, found, scale).double().cumsum(0)
    counts = found.double().cumsum(0)
    if sentence_ids is not None:
        is_first = torch.ones(len(found), dtype=torch.bool)
        is_first[1:] = sentence_ids[1:] != sentence_ids[:-1]
        first = torch.where(is_first, torch.arange(len(found)), 0).cummax(0).values
        before = (first - 1).clamp_min(0)
        has_before = first > 0
        sums, counts = (part - torch.where(has_before, part[before], 0.0) for part in (sums, counts))
    return RunningDistance((sums / counts.clamp_min(1)).float(), counts.long())


def top_probabilities(log_probs: torch.Tensor) -> torch.Tensor:
    """The highest probabilities of each row, highest first; (rows, 8). A smaller vocabulary is filled up with 0."""
    top = topk(log_probs, min(NUM_TOP, log_probs.shape[1]))[0].exp()
    return torch.nn.functional.pad(top, (0, NUM_TOP - top.shape[1]))


class EntryColumns(Protocol):
    """What is stored of each entry beside its value: of the entries given, 0 for missing ones (-1)."""

    def keys_of(self, entry_ids: torch.Tensor) -> torch.Tensor: ...  # (…, width) float32

    def probabilities_of(self, entry_ids: torch.Tensor) -> torch.Tensor: ...  # (…) the model's own, of the value


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
    _trails: Callable[[float], RunningDistance] | None = None

    @classmethod
    def at(
        cls,
        states: torch.Tensor,
        log_probs: torch.Tensor,
        neighbors: Neighbors,
        columns: EntryColumns,
        running: RunningDistance | None = None,
    ) -> "Retrieved":
        """From the model's states, (rows, width), and its own log-probabilities, (rows, vocabulary), on any device.

        `running` tells how far each row's sentence has been so far; without it the rows are one sentence, in order.
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
            _trails=None if running is None else lambda scale: running,
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

    def running_distance(self, scale: float) -> RunningDistance:
        """(rows,) how far the nearest neighbours of the sentence have been so far: the mean of log(1 + scale · d_1)."""
        return self._trails(scale) if self._trails is not None else running_distances_of(self.neighbors, scale)

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
            self.running_distance,
        )
