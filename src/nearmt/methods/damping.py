"""Out-of-domain damping: the farther a sentence is from the memory, the larger the model's share of the mixture.

A single token with far neighbours says little: a dev set has many of them, and the memory still helps there. If all
tokens of a sentence are far from the memory, the sentence is probably out of domain. The running mean distance of a
token is the mean of log(1 + d_1) over the tokens of its sentence so far, itself included, with distances scaled to a
median of 100 on dev. Damping adds to the log-odds of the model's share:

    strength · max(0, (running mean - middle) / (far - middle) - 1/2)

`middle` and `far` are the median and the 95th percentile of the running mean over dev tokens at the same stage of
their sentence, at least 0.5 apart. Sentences tend to begin in the same ways, so a distance that is far for a first
token is near for a tenth.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from nearmt.methods.mixture import MixtureWeights
from nearmt.methods.retrieved import Retrieved, RunningDistance, log_distances
from nearmt.retrieval.neighbors import Neighbors

STAGES = (1, 2, 3, 4, 5, 7, 11, 21)  # each stage starts at this number of tokens
_LATER_STAGES = torch.tensor(STAGES[1:])
_UNDAMPED = 0.5  # part of the way from middle to far without damping
_MAX_LOG_ODDS = 30.0


def stages(lengths: torch.Tensor) -> torch.Tensor:
    """The stage that a sentence has reached after this many tokens: 0 … len(STAGES) - 1."""
    return torch.bucketize(lengths, _LATER_STAGES, right=True)


@dataclass(frozen=True)
class Damping:
    """The running mean distances that are typical of the dev set, and how strongly larger ones are damped."""

    scale: float  # factor for squared distances
    middle: tuple[float, ...]  # one per stage
    far: tuple[float, ...]
    strength: float

    def __post_init__(self) -> None:
        for name in ("middle", "far"):
            values = tuple(getattr(self, name))  # lists when read from JSON
            if len(values) != len(STAGES):
                raise ValueError(f"damping needs {len(STAGES)} values of {name}, one per stage, not {len(values)}")
            object.__setattr__(self, name, values)

    @cached_property
    def lines(self) -> torch.Tensor:
        """(2, stages): slope and offset of the log-odds as a linear function of the running mean."""
        middle, far = torch.tensor(self.middle).double(), torch.tensor(self.far).double()
        slope = self.strength / (far - middle)
        return torch.stack((slope, slope * middle + self.strength * _UNDAMPED)).float()

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"scale": self.scale, "middle": list(self.middle), "far": list(self.far), "strength": self.strength}

    def added_log_odds(self, running: RunningDistance) -> torch.Tensor:
        """(rows,): what is added to the log-odds of the model's share."""
        slope, offset = self.lines[:, stages(running.length)]
        return torch.addcmul(-offset, running.mean, slope).clamp_(0, _MAX_LOG_ODDS)

    def applied(self, weights: MixtureWeights, running: RunningDistance) -> MixtureWeights:
        """The weights after damping. Rows that need none stay the same bit for bit."""
        log_odds = self.added_log_odds(running)
        if not log_odds.any():
            return weights
        kept = (-log_odds).exp()  # (rows,)
        scale = kept / (weights.nmt_share + (1 - weights.nmt_share) * kept)
        scale = torch.where(kept < 1, scale, 1.0)
        nmt_share = torch.where(kept < 1, 1 - (1 - weights.nmt_share) * scale, weights.nmt_share)
        sizes = weights.size_probabilities * scale.unsqueeze(1)
        sizes[:, 0] = nmt_share
        return MixtureWeights(nmt_share, weights.neighbor_weights * scale.unsqueeze(1), weights.sizes, sizes)


def damped(damping: Damping | None, weights: MixtureWeights, retrieved: Retrieved) -> MixtureWeights:
    """The weights after damping, if there is any."""
    return weights if damping is None else damping.applied(weights, retrieved.running_distance(damping.scale))


class DistanceTracker:
    """Keeps the running mean distance of every row of a beam search."""

    def __init__(self, scale: float) -> None:
        self._scale = scale
        self._sums = torch.zeros(2, 0)  # sum of log(1 + scale · d_1), number of tokens

    def reorder(self, parents: torch.Tensor) -> None:
        """Start the next step: row i continues row `parents[i]`."""
        if not self._sums.shape[1]:
            self._sums = torch.zeros(2, len(parents))
        self._sums = self._sums[:, parents]

    def add(self, neighbors: Neighbors) -> RunningDistance:
        """Include this step's neighbours of every row, and return the new running mean distances."""
        found = neighbors.found[:, 0]
        logs = log_distances(neighbors.squared_distances[:, 0], found, self._scale)
        self._sums += torch.stack((logs, found.float()))
        total, length = self._sums
        return RunningDistance(total / length.clamp_min(1), length.long())
