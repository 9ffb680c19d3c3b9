"""Fitting out-of-domain damping: as strong as possible while in-domain sentences keep 99 % of their gain."""

from dataclasses import dataclass

from nearmt.methods.damping import STAGES, Damping, stages
from nearmt.methods.mixture import Method
from nearmt.methods.retrieved import EntryColumns, RunningDistance
from nearmt.training.cache import NeighborCache
from nearmt.training.likelihood import base_loss, mean_loss, weights_on_gold

STRENGTHS = (12.0, 10.0, 8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0)
MAX_LOST_GAIN = 0.01
_FAR = 0.95
_MIN_SPREAD = 0.5  # of log distances: a very uniform dev set must not make every other sentence out of domain
_MIN_TOKENS = 40  # a stage with fewer tokens uses the limits of all tokens


@dataclass(frozen=True)
class FittedDamping:
    """The damping, or None if every strength costs too much, and the held-out loss with it, in nats a token."""

    damping: Damping | None
    loss: float


def fit_damping(cache: NeighborCache, held_out: NeighborCache, method: Method, columns: EntryColumns) -> FittedDamping:
    """The strongest damping of `STRENGTHS` for a method that has none yet.

    Typical distances are measured on `cache`, and the cost of damping on `held_out`.
    """
    median = cache.median_distance(0)
    scale = 100 / median if median > 0 else 1.0
    running = cache.running_distance(scale)
    weights = weights_on_gold(held_out, method, columns)
    undamped_loss = mean_loss(held_out, weights)
    if (running.length > 0).any():
        middle, far = _limits_by_stage(running)
        max_loss = undamped_loss + MAX_LOST_GAIN * max(base_loss(held_out) - undamped_loss, 0.0)
        held_out_running = held_out.running_distance(scale)
        for strength in STRENGTHS:
            damping = Damping(scale, middle, far, strength)
            loss = mean_loss(held_out, damping.applied(weights, held_out_running))
            if loss <= max_loss:
                return FittedDamping(damping, loss)
    return FittedDamping(None, undamped_loss)


def _limits_by_stage(running: RunningDistance) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The median and the 95th percentile of the running mean at each stage."""
    is_counted = running.length > 0
    means, stage = running.mean[is_counted], stages(running.length[is_counted])
    parts = [means[stage == number] for number in range(len(STAGES))]
    parts = [part if len(part) >= _MIN_TOKENS else means for part in parts]
    middle = tuple(part.quantile(0.5).item() for part in parts)
    far = tuple(max(part.quantile(_FAR).item(), low + _MIN_SPREAD) for part, low in zip(parts, middle, strict=True))
    return middle, far
