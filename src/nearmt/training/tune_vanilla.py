"""Tuned baselines: the settings of vanilla kNN-MT ranked by likelihood on the cached neighbours."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from nearmt.methods.mixture import Vanilla, neighbor_counts, size_likelihoods
from nearmt.training.cache import NeighborCache
from nearmt.training.likelihood import gold_losses

_PAPER_TEMPERATURES = (10.0, 100.0)
_FACTORS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
_KNN_SHARES = tuple(round(0.1 * i, 1) for i in range(1, 10))


def temperatures(cache: NeighborCache) -> list[float]:
    """Temperatures to try: the paper's two, and some around the median distance of the nearest neighbour."""
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
    p_knn = size_likelihoods(cache.neighbors.nearest(method.k), cache.gold, (0, method.k), method.temperature)
    return _mean_loss(cache, p_knn[:, 0], method.knn_share)


def rank_vanilla(cache: NeighborCache, max_k: int, candidates: Sequence[float] | None = None) -> list[VanillaCandidate]:
    """All combinations of k, T and λ, likeliest first; `candidates` are the temperatures to try."""
    sizes = neighbor_counts(max_k)
    ranked = []
    for temperature in candidates or temperatures(cache):
        p_knn = size_likelihoods(cache.neighbors, cache.gold, sizes, temperature)
        for column, k in enumerate(sizes[1:]):
            for knn_share in _KNN_SHARES:
                loss = _mean_loss(cache, p_knn[:, column], knn_share)
                ranked.append(VanillaCandidate(Vanilla(k, temperature, knn_share), loss))
    return sorted(ranked, key=lambda candidate: candidate.loss)


def _mean_loss(cache: NeighborCache, p_knn: torch.Tensor, knn_share: float) -> float:
    """`p_knn` is p_kNN(gold), (rows,), and 0 where no neighbour was found; there the model is used alone."""
    nmt_share = torch.where(cache.neighbors.found[:, 0], 1 - knn_share, 1.0)
    return float(gold_losses(cache.gold_probability, nmt_share, knn_share * p_knn).mean())
