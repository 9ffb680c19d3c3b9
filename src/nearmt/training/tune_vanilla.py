"""Honest baselines: the settings of vanilla kNN-MT ranked by likelihood on the same cache."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from nearmt.methods.mixture import Vanilla, neighbor_counts, size_likelihoods
from nearmt.training.cache import NeighborCache

_PAPER_TEMPERATURES = (10.0, 100.0)
_FACTORS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
_SHARES = tuple(round(0.1 * i, 1) for i in range(1, 10))
_TINY = 1e-30


def temperatures(cache: NeighborCache) -> list[float]:
    """What T to try: the paper's two, and some around the median distance of the nearest neighbour."""
    median = cache.median_distance(0)
    around = [float(f"{factor * median:.4g}") for factor in _FACTORS] if median > 0 else []
    return sorted({*_PAPER_TEMPERATURES, *around})


@dataclass(frozen=True)
class VanillaCandidate:
    """A setting of the baseline and its mean negative log-likelihood, in nats a token."""

    method: Vanilla
    loss: float


def vanilla_loss(cache: NeighborCache, method: Vanilla) -> float:
    """Mean negative log-likelihood of the gold tokens under a setting of vanilla."""
    retrieved = size_likelihoods(cache.neighbors.nearest(method.k), cache.gold, (0, method.k), method.temperature)
    mixed = (1 - method.knn_share) * cache.gold_probability + method.knn_share * retrieved[:, 0]
    mixed = torch.where(cache.neighbors.found[:, 0], mixed, cache.gold_probability)
    return float(-mixed.clamp_min(_TINY).log().mean())


def rank_vanilla(cache: NeighborCache, max_k: int, candidates: Sequence[float] | None = None) -> list[VanillaCandidate]:
    """Every k, T and share, best first."""
    sizes = neighbor_counts(max_k)
    own, found = cache.gold_probability, cache.neighbors.found[:, 0]
    ranked = []
    for temperature in candidates or temperatures(cache):
        retrieved = size_likelihoods(cache.neighbors, cache.gold, sizes, temperature)
        for column, k in enumerate(sizes[1:]):
            for share in _SHARES:
                mixed = torch.where(found, (1 - share) * own + share * retrieved[:, column], own)
                loss = float(-mixed.clamp_min(_TINY).log().mean())
                ranked.append(VanillaCandidate(Vanilla(k, temperature, share), loss))
    return sorted(ranked, key=lambda candidate: candidate.loss)
