"""The inputs of a method: the neighbours of each query and related values, each computed on first use."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import torch

from nearmt.models.topk import topk
from nearmt.retrieval.neighbors import Neighbors

NUM_TOP = 8  # how many of the model's highest probabilities methods can use


def log_distances(squared_distances: torch.Tensor, found: torch.Tensor, scale: float) -> torch.Tensor:
    """log(1 + scale · d) of each row, 0 where no neighbour was found."""
    return torch.where(found, (squared_distances.clamp_min(0) * scale).log1p(), 0.0)


class RunningDistance(NamedTuple):
    """The running mean distance of each row's sentence from the memory, up to and including the row."""

    mean: torch.Tensor  # (rows,) of log(1 + scale · d_1)
    length: torch.Tensor  # (rows,) number of tokens in the mean


def running_distance(neighbors: Neighbors, scale: float, sentence_ids: torch.Tensor | None = None) -> RunningDistance:
    """The running mean distance of each row, from its nearest neighbour.

    The rows of a sentence are consecutive and in order. Without `sentence_ids`, all rows belong to one sentence.
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
    """The highest probabilities of each row, highest first; (rows, 8). Smaller vocabularies are padded with 0."""
    top = topk(log_probs, min(NUM_TOP, log_probs.shape[1]))[0].exp()
    return torch.nn.functional.pad(top, (0, NUM_TOP - top.shape[1]))


class EntryColumns(Protocol):
    """Access to the stored columns of entries by entry id; missing entries (-1) give 0."""

    def project(self, states: torch.Tensor) -> torch.Tensor: ...  # (rows, width) to the space of the keys

    def keys_of(self, entry_ids: torch.Tensor) -> torch.Tensor: ...  # (…, dims) float32

    def probabilities_of(self, entry_ids: torch.Tensor) -> torch.Tensor: ...  # (…) p_NMT(value) at the key


@dataclass(frozen=True)
class Retrieved:
    """The neighbours of some queries, and related values that are computed on first use.

    Decoding, evidence and training all pass this to a method, so that the same code weighs in all three. A method that
    only uses the neighbours pays for nothing else.
    """

    neighbors: Neighbors
    _states: Callable[[], torch.Tensor]
    _keys: Callable[[], torch.Tensor]
    _stored_probabilities: Callable[[], torch.Tensor]
    _neighbor_probabilities: Callable[[], torch.Tensor]
    _top_probabilities: Callable[[], torch.Tensor]
    _running: Callable[[float], RunningDistance] | None = None

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

        Without `running`, the rows are taken as one sentence, in order.
        """
        return cls(
            neighbors,
            _states=lambda: columns.project(states),
            _keys=lambda: columns.keys_of(neighbors.entry_ids),
            _stored_probabilities=lambda: columns.probabilities_of(neighbors.entry_ids),
            _neighbor_probabilities=lambda: (
                log_probs.gather(1, neighbors.token_ids.to(log_probs.device)).exp().to("cpu", torch.float32)
            ),
            _top_probabilities=lambda: top_probabilities(log_probs).to("cpu", torch.float32),
            _running=None if running is None else lambda scale: running,
        )

    def __len__(self) -> int:
        return len(self.neighbors)

    @cached_property
    def states(self) -> torch.Tensor:
        """(rows, dims) float32: the queries, in the space of the keys."""
        return self._states()

    @cached_property
    def keys(self) -> torch.Tensor:
        """(rows, K, dims) float32: the stored keys of the neighbours; 0 in missing slots."""
        return self._keys()

    @cached_property
    def stored_probabilities(self) -> torch.Tensor:
        """(rows, K) p_NMT(v_i) at the stored key, from the build."""
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
        """(rows,) the running mean of log(1 + scale · d_1) over the sentence."""
        return self._running(scale) if self._running is not None else running_distance(self.neighbors, scale)

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
