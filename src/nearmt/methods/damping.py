"""Knowing when a text is not of the memory's kind: a guard that gives the model more say the farther a sentence is.

One token with far neighbours says little: a dev set has many of those, and there the memory still helps. That all
tokens of a sentence are far says much. The trail of a token is the mean of log(1 + d_1) over the tokens of its
sentence so far, itself included, with the distances scaled to a median of 100 on dev. The farther it lies above what
is usual on dev, the more the model counts:

    caution = strength · max(0, (trail - middle) / (far - middle) - 1/2)        log-odds added to the model's share

`middle` and `far` are the median and the 95th percentile of the running of the dev tokens that are as far into their
sentence, half a unit apart at least: sentences begin alike, so what is far for a first token is near for a tenth.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from nearmt.methods.mixture import MixtureWeights
from nearmt.methods.retrieved import Retrieved, RunningDistance, log_distances
from nearmt.retrieval.neighbors import Neighbors

STAGES = (1, 2, 3, 4, 5, 7, 11, 21)  # the lengths at which a trail comes to the next stage
_LATER = torch.tensor(STAGES[1:])
_FREE = 0.5  # of the way from middle to far there is no caution
_MOST = 30.0


def stages(lengths: torch.Tensor) -> torch.Tensor:
    """How far into its sentence a trail of some length is: 0 … len(STAGES) - 1."""
    return torch.bucketize(lengths, _LATER, right=True)


@dataclass(frozen=True)
class Damping:
    """How a sentence's distances compare with those of the dev set, and what follows from it."""

    scale: float  # of the distances
    middle: tuple[float, ...]  # one for each stage
    far: tuple[float, ...]
    strength: float

    def __post_init__(self) -> None:
        for name in ("middle", "far"):
            values = tuple(getattr(self, name))  # read from JSON they are lists
            if len(values) != len(STAGES):
                raise ValueError(f"a guard has {len(STAGES)} stages, not {len(values)}")
            object.__setattr__(self, name, values)

    @cached_property
    def _lines(self) -> torch.Tensor:
        """(2, stages): caution is a line over the trail's mean, this steep, less this."""
        middle, far = torch.tensor(self.middle).double(), torch.tensor(self.far).double()
        steepness = self.strength / (far - middle)
        return torch.stack((steepness, steepness * middle + self.strength * _FREE)).float()

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"scale": self.scale, "middle": list(self.middle), "far": list(self.far), "strength": self.strength}

    def caution(self, running: RunningDistance) -> torch.Tensor:
        """(rows,): by how much the log-odds of the model rise."""
        steepness, less = self._lines[:, stages(running.length)]
        return torch.addcmul(-less, running.mean, steepness).clamp_(0, _MOST)

    def applied(self, weights: MixtureWeights, running: RunningDistance) -> MixtureWeights:
        """The same weights, the retrieved part of each row smaller by its caution."""
        caution = self.caution(running)
        if not caution.any():
            return weights
        kept = (-caution).exp()  # (rows,)
        scale = kept / (weights.nmt_share + (1 - weights.nmt_share) * kept)
        scale = torch.where(kept < 1, scale, 1.0)  # without caution nothing changes, to the bit
        nmt_share = torch.where(kept < 1, 1 - (1 - weights.nmt_share) * scale, weights.nmt_share)
        sizes = weights.size_probabilities * scale.unsqueeze(1)
        sizes[:, 0] = nmt_share
        return MixtureWeights(nmt_share, weights.neighbor_weights * scale.unsqueeze(1), weights.sizes, sizes)


def damped(damping: Damping | None, weights: MixtureWeights, retrieved: Retrieved) -> MixtureWeights:
    """The weights after damping, if a method has one."""
    return weights if damping is None else damping.applied(weights, retrieved.running_distance(damping.scale))


class RunningDistances:
    """The trail of each row of a batch under way."""

    def __init__(self, scale: float) -> None:
        self._scale = scale
        self._sums = torch.zeros(2, 0)  # of log(1 + scale · d_1), and of tokens

    def follow(self, parents: torch.Tensor) -> None:
        """The next step: each row goes on from the row that `parents` names."""
        if not self._sums.shape[1]:
            self._sums = torch.zeros(2, len(parents))
        self._sums = self._sums[:, parents]

    def note(self, neighbors: Neighbors) -> RunningDistance:
        """Every row was searched just now; what the running are with it."""
        found = neighbors.found[:, 0]
        logs = log_distances(neighbors.squared_distances[:, 0], found, self._scale)
        self._sums += torch.stack((logs, found.float()))
        total, length = self._sums
        return RunningDistance(total / length.clamp_min(1), length.long())
