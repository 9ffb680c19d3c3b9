"""The likelihood of the gold tokens: what training minimises, and what settings are ranked by."""

import torch

from nearmt.methods.mixture import Method, MixtureWeights
from nearmt.methods.retrieved import EntryColumns
from nearmt.training.cache import NeighborCache

TINY = 1e-30  # likelihoods are clamped to this, so that their logs stay finite
_WEIGHED_ROWS = 512  # some methods fetch K keys a row


def gold_losses(
    nmt_probability: torch.Tensor, nmt_share: torch.Tensor | float = 1.0, knn_mass: torch.Tensor | float = 0.0
) -> torch.Tensor:
    """Negative log-likelihood of each gold token under nmt_share · p_NMT(gold) + the kNN mass on it; (rows,) nats."""
    return -(nmt_share * nmt_probability + knn_mass).clamp_min(TINY).log()


def knn_mass_on_gold(weights: MixtureWeights, token_ids: torch.Tensor, gold: torch.Tensor) -> torch.Tensor:
    """The total weight of the neighbours that have the gold token; (rows,)."""
    token_ids = token_ids[:, : weights.neighbor_weights.shape[1]]
    return (weights.neighbor_weights * (token_ids == gold.unsqueeze(1))).sum(dim=1)


def weights_on_gold(cache: NeighborCache, method: Method, columns: EntryColumns) -> MixtureWeights:
    """The method's weights, with all neighbours that have the gold token summed up in a single column."""
    shares, masses = [], []
    for start in range(0, len(cache), _WEIGHED_ROWS):
        part = cache.rows(slice(start, start + _WEIGHED_ROWS))
        weights = method.weigh(part.retrieved(columns))
        shares.append(weights.nmt_share)
        masses.append(knn_mass_on_gold(weights, part.neighbors.token_ids, part.gold))
    share = torch.cat(shares)
    return MixtureWeights(share, torch.cat(masses).unsqueeze(1), (0, 1), torch.stack([share, 1 - share], dim=1))


def mean_loss(cache: NeighborCache, on_gold: MixtureWeights) -> float:
    """Mean negative log-likelihood of the gold tokens, in nats, from the result of `weights_on_gold`."""
    return float(gold_losses(cache.gold_probability, on_gold.nmt_share, on_gold.neighbor_weights[:, 0]).mean())


def base_loss(cache: NeighborCache) -> float:
    """Mean negative log-likelihood of the gold tokens under the model alone, in nats."""
    return float(gold_losses(cache.gold_probability).mean())
