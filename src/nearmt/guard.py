"""Knowing when a text is not of the memory's kind: a guard that gives the model more say the farther a sentence is.

One token with far neighbours says little: a dev set has many of those, and there the memory still helps. That all
tokens of a sentence are far says much. The trail of a token is the mean of log(1 + d_1) over the tokens of its
sentence so far, itself included, with the distances scaled to a median of 100 on dev. The farther it lies above what
is usual on dev, the more the model counts:

    caution = strength · max(0, (trail - middle) / (far - middle) - 1/2)        log-odds added to the model's share

`middle` and `far` are the median and the 95th percentile of the trails of the dev tokens, half a unit apart at least.
"""

from dataclasses import dataclass

import torch

from nearmt.mixture import MixtureWeights
from nearmt.neighbors import Neighbors, log_nearest

_FREE = 0.5  # of the way from middle to far there is no caution
_MOST = 30.0


@dataclass(frozen=True)
class Guard:
    """How a sentence's distances compare with those of the dev set, and what follows from it."""

    scale: float  # of the distances
    middle: float
    far: float
    strength: float

    def caution(self, trails: torch.Tensor) -> torch.Tensor:
        """(rows,): by how much the log-odds of the model rise."""
        beyond = (trails - self.middle) / (self.far - self.middle) - _FREE
        return (self.strength * beyond).clamp(0, _MOST)

    def applied(self, weights: MixtureWeights, trails: torch.Tensor) -> MixtureWeights:
        """The same weights, the retrieved part of each row smaller by its caution."""
        kept = (-self.caution(trails)).exp()  # (rows,)
        scale = kept / (weights.nmt_share + (1 - weights.nmt_share) * kept)
        scale = torch.where(kept < 1, scale, 1.0)  # without caution nothing changes, to the bit
        nmt_share = torch.where(kept < 1, 1 - (1 - weights.nmt_share) * scale, weights.nmt_share)
        sizes = weights.size_probabilities * scale.unsqueeze(1)
        sizes[:, 0] = nmt_share
        return MixtureWeights(nmt_share, weights.neighbor_weights * scale.unsqueeze(1), weights.sizes, sizes)


class Trails:
    """The trail of each row of a batch under way."""

    def __init__(self, scale: float) -> None:
        self._scale = scale
        self._sum, self._count = torch.zeros(0), torch.zeros(0)

    def follow(self, parents: torch.Tensor) -> None:
        """The next step: each row goes on from the row that `parents` names."""
        if not len(self._sum):
            self._sum, self._count = torch.zeros(len(parents)), torch.zeros(len(parents))
        self._sum, self._count = self._sum[parents], self._count[parents]

    def note(self, rows: torch.Tensor, neighbors: Neighbors) -> torch.Tensor:
        """These rows, by number, were searched just now; what their trails are with it."""
        self._sum[rows] += log_nearest(neighbors, self._scale)
        self._count[rows] += neighbors.found[:, 0].float()
        return self._sum[rows] / self._count[rows].clamp_min(1)
