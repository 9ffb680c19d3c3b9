"""Mixing the neighbours' tokens into the model's distribution: pure tensor functions and one sparse update.

Each method gives the model's share and one weight per neighbour, and `mix` adds those weights at the neighbours'
tokens. Only K numbers per row change, so no tensor is as large as rows × K × vocabulary.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import torch

from nearmt.errors import SettingError
from nearmt.methods.retrieved import Retrieved
from nearmt.retrieval.neighbors import Neighbors, distance_weights

# With a share of 0, the log-probability of every token without a neighbour would be -inf.
_SMALLEST_SHARE = 1e-30
# The weights of equal tokens are summed by comparing all pairs of a row's neighbours.
MAX_NEIGHBORS = 1024


@dataclass(frozen=True)
class MixtureWeights:
    """p = nmt_share · p_NMT + Σ_i weights_i at token_i; the parts of a row sum to 1."""

    nmt_share: torch.Tensor  # (rows,)
    neighbor_weights: torch.Tensor  # (rows, K)
    sizes: tuple[int, ...]  # numbers of neighbours to choose from; 0 is the model alone
    size_probabilities: torch.Tensor  # (rows, |sizes|)

    def to(self, device: torch.device) -> "MixtureWeights":
        """The same weights on another device."""
        return MixtureWeights(
            self.nmt_share.to(device),
            self.neighbor_weights.to(device),
            self.sizes,
            self.size_probabilities.to(device),
        )


class Method(Protocol):
    """A way to weigh neighbours against the model."""

    @property
    def name(self) -> str: ...

    @property
    def max_k(self) -> int: ...

    def weigh(self, retrieved: Retrieved) -> MixtureWeights: ...


def check_temperature(temperature: float) -> None:
    """Refuse a temperature that is not a number above 0."""
    if not (math.isfinite(temperature) and temperature > 0):
        raise SettingError(f"`temperature` must be a number above 0, not {temperature}")


def neighbor_counts(max_k: int) -> tuple[int, ...]:
    """S = (0, 1, 2, 4, …, K): the numbers of neighbours to choose from. K itself is always included."""
    if not 1 <= max_k <= MAX_NEIGHBORS:
        raise SettingError(f"the number of neighbours must be between 1 and {MAX_NEIGHBORS}, not {max_k}")
    powers = [1 << i for i in range(max_k.bit_length()) if 1 << i < max_k]
    return (0, *powers, max_k)


def distinct_counts(neighbors: Neighbors) -> torch.Tensor:
    """c_i = number of distinct tokens among the first i neighbours; (rows, K) float32."""
    by_token = neighbors.token_ids.sort(dim=1, stable=True)  # of equal tokens the nearest comes first
    is_first = torch.ones_like(neighbors.found)
    is_first[:, 1:] = by_token.values[:, 1:] != by_token.values[:, :-1]
    is_new = torch.empty_like(is_first).scatter_(1, by_token.indices, is_first)
    return (is_new & neighbors.found).cumsum(dim=1).float()


@lru_cache(maxsize=64)
def _within(sizes: tuple[int, ...], max_k: int, device: torch.device) -> torch.Tensor:
    """(K, |sizes| - 1): 1 where a neighbour is among the k nearest, for each size k > 0; 0 elsewhere."""
    with torch.inference_mode(False):  # cached, so it must work in training too
        counts = torch.tensor([k for k in sizes if k > 0], device=device)
        return (torch.arange(max_k, device=device).unsqueeze(1) < counts).float()


def weights_from_sizes(
    neighbors: Neighbors, size_probabilities: torch.Tensor, sizes: tuple[int, ...], temperature: float
) -> MixtureWeights:
    """The mixture over the number of neighbours: w_i = e_i · Σ_{k≥i} p(k)/Z_k.

    `sizes` begins with 0, the model alone. A row without neighbours is the model alone.
    """
    e = distance_weights(neighbors, temperature)
    within = _within(sizes, e.shape[1], e.device)
    share_by_size = size_probabilities[:, 1:] / (e @ within).clamp_min(torch.finfo(e.dtype).tiny)
    weights = e * (share_by_size @ within.T)
    any_found = neighbors.found[:, :1]
    if not any_found.all():
        weights = torch.where(any_found, weights, 0.0)
        alone = torch.zeros_like(size_probabilities)
        alone[:, 0] = 1.0
        size_probabilities = torch.where(any_found, size_probabilities, alone)
    return MixtureWeights(size_probabilities[:, 0], weights, sizes, size_probabilities)


def size_likelihoods(
    neighbors: Neighbors, gold: torch.Tensor, sizes: tuple[int, ...], temperature: float
) -> torch.Tensor:
    """p_kNN,k(gold) for every k > 0 of `sizes`; (rows, |sizes| - 1). 0 where no neighbour was found."""
    e = distance_weights(neighbors, temperature)
    within = _within(sizes, e.shape[1], e.device)
    hits = e * (neighbors.token_ids == gold.unsqueeze(1))
    return (hits @ within) / (e @ within).clamp_min(torch.finfo(e.dtype).tiny)


@dataclass(frozen=True)
class Vanilla:
    """kNN-MT as first published: a fixed number of neighbours and a fixed λ."""

    k: int
    temperature: float
    knn_share: float
    name: str = "vanilla"

    def __post_init__(self) -> None:
        neighbor_counts(self.k)
        check_temperature(self.temperature)
        if not 0 <= self.knn_share <= 1:
            raise SettingError(f"`knn_share` must be between 0 and 1, not {self.knn_share}")

    @property
    def max_k(self) -> int:
        return self.k

    def weigh(self, retrieved: Retrieved) -> MixtureWeights:
        neighbors = retrieved.neighbors.nearest(self.k)
        shares = torch.tensor([1 - self.knn_share, self.knn_share]).expand(len(neighbors), 2)
        return weights_from_sizes(neighbors, shares, (0, neighbors.max_k), self.temperature)


@dataclass(frozen=True)
class Uniform:
    """Every number of neighbours in S, 0 included, has the same probability."""

    max_k: int
    temperature: float
    name: str = "uniform"

    def __post_init__(self) -> None:
        neighbor_counts(self.max_k)
        check_temperature(self.temperature)

    def weigh(self, retrieved: Retrieved) -> MixtureWeights:
        sizes = neighbor_counts(self.max_k)
        shares = torch.full((len(retrieved), len(sizes)), 1 / len(sizes))
        return weights_from_sizes(retrieved.neighbors.nearest(self.max_k), shares, sizes, self.temperature)


def mix(log_probs: torch.Tensor, weights: MixtureWeights, token_ids: torch.Tensor) -> torch.Tensor:
    """The log-probabilities of the mixture; (rows, vocabulary). The model's `log_probs` are overwritten."""
    return log_probs.add_(add_knn_mass(log_probs, weights, token_ids).unsqueeze(1))


def add_knn_mass(log_probs: torch.Tensor, weights: MixtureWeights, token_ids: torch.Tensor) -> torch.Tensor:
    """Add the kNN mass to the model's log-probabilities in place; return the log of the model's share, (rows,).

    The caller must still add the returned number to every token of its row. A caller that only needs a few tokens
    can skip the pass over the whole vocabulary. A λ of 0 leaves the model's numbers bit for bit.
    """
    log_share = weights.nmt_share.clamp_min(_SMALLEST_SHARE).log()
    same = (token_ids.unsqueeze(2) == token_ids.unsqueeze(1)).to(log_probs.dtype)  # (rows, K, K)
    # Each slot gets the total weight of its token: equal tokens write equal numbers, so their order does not matter.
    mass = (same @ weights.neighbor_weights.unsqueeze(2)).squeeze(2).log() - log_share.unsqueeze(1)
    log_probs.scatter_(1, token_ids, torch.logaddexp(log_probs.gather(1, token_ids), mass))
    return log_share
