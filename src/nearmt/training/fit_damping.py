"""How strong a guard may be: as strong as it can without costing the dev set more than 1 % of its gain."""

from dataclasses import dataclass

import torch

from nearmt.methods.damping import STAGES, Damping, stages
from nearmt.methods.mixture import Method, MixtureWeights
from nearmt.methods.retrieved import EntryColumns, RunningDistance
from nearmt.training.cache import TINY, NeighborCache

STRENGTHS = (12.0, 10.0, 8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0)
MAX_LOST_GAIN = 0.01
_FAR = 0.95
_LEAST_SPREAD = 0.5  # of logarithms: a dev set of sentences that are all alike must not make every other one strange
_FEWEST = 40  # tokens to tell what is usual at a stage; with fewer, all tokens together tell it
_WEIGHED_ROWS = 512  # some methods fetch keys


@dataclass(frozen=True)
class FittedDamping:
    """A guard, or none if every one costs too much, and the held-out loss with it, in nats a token."""

    damping: Damping | None
    loss: float


def fit_damping(cache: NeighborCache, held_out: NeighborCache, method: Method, columns: EntryColumns) -> FittedDamping:
    """The strongest guard of `STRENGTHS` for a method that has none yet.

    What is usual is measured on `cache`; what a guard costs, on `held_out`.
    """
    median = cache.median_distance(0)
    scale = 100 / median if median > 0 else 1.0
    usual = cache.running_distance(scale)
    weights = _weights_at_gold(held_out, method, columns)
    own = held_out.gold_probability
    without = _loss(weights, own)
    if (usual.length > 0).any():
        middle, far = _usual_by_stage(usual)
        most = without + MAX_LOST_GAIN * max(held_out.base_loss - without, 0.0)
        for strength in STRENGTHS:
            guard = Damping(scale, middle, far, strength)
            loss = _loss(guard.applied(weights, held_out.running_distance(scale)), own)
            if loss <= most:
                return FittedDamping(guard, loss)
    return FittedDamping(None, without)


def _usual_by_stage(running: RunningDistance) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The median and the 95th percentile of the running at each stage."""
    is_counted = running.length > 0
    means, stage = running.mean[is_counted], stages(running.length[is_counted])
    parts = [means[stage == number] for number in range(len(STAGES))]
    parts = [part if len(part) >= _FEWEST else means for part in parts]
    middle = tuple(part.quantile(0.5).item() for part in parts)
    far = tuple(max(part.quantile(_FAR).item(), low + _LEAST_SPREAD) for part, low in zip(parts, middle, strict=True))
    return middle, far


def _weights_at_gold(cache: NeighborCache, method: Method, columns: EntryColumns) -> MixtureWeights:
    """The method's weights with a single column of neighbours: all that have the gold token together."""
    shares, hits = [], []
    for start in range(0, len(cache), _WEIGHED_ROWS):
        part = cache.rows(slice(start, start + _WEIGHED_ROWS))
        weights = method.weigh(part.retrieved(columns))
        token_ids = part.neighbors.token_ids[:, : weights.neighbor_weights.shape[1]]
        shares.append(weights.nmt_share)
        hits.append((weights.neighbor_weights * (token_ids == part.gold.unsqueeze(1))).sum(dim=1))
    share = torch.cat(shares)
    return MixtureWeights(share, torch.cat(hits).unsqueeze(1), (0, 1), torch.stack([share, 1 - share], dim=1))


def _loss(weights: MixtureWeights, own: torch.Tensor) -> float:
    mixed = weights.nmt_share * own + weights.neighbor_weights[:, 0]
    return float(-mixed.clamp_min(TINY).log().mean())
