"""The Meta-k network: predicts how many neighbours to use from their distances and how far they agree."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from nearmt.errors import SettingError
from nearmt.methods.damping import damped
from nearmt.methods.mixture import (
    MixtureWeights,
    check_temperature,
    distinct_counts,
    neighbor_counts,
    weights_from_sizes,
)
from nearmt.methods.network import Network
from nearmt.methods.retrieved import Retrieved
from nearmt.retrieval.neighbors import Neighbors

FEATURES = ("distances", "counts")
_GAINS = {"distances": 0.01, "counts": 0.1}


class MetaK(Network):
    """Linear – Tanh – Linear – softmax over S = {0, 1, 2, 4, …, K}, the number of neighbours to use."""

    name = "adaptive"

    def __init__(
        self,
        max_k: int,
        temperature: float,
        *,
        hidden: int = 32,
        distance_scale: float = 1.0,
        features: Sequence[str] = FEATURES,
    ) -> None:
        super().__init__(max_k, distance_scale)
        check_temperature(temperature)
        if not features or not set(features) <= set(FEATURES):
            raise SettingError(f"`features` must be chosen from {', '.join(FEATURES)}, not {', '.join(features)}")
        self.temperature, self.hidden = temperature, hidden
        self.features = tuple(f for f in FEATURES if f in features)
        self.sizes = neighbor_counts(max_k)
        first = nn.Linear(max_k * len(self.features), hidden)
        self.layers = nn.Sequential(first, nn.Tanh(), nn.Linear(hidden, len(self.sizes)))
        with torch.no_grad():
            for i, feature in enumerate(self.features):
                block = first.weight[:, i * max_k : (i + 1) * max_k]
                nn.init.xavier_normal_(block, gain=_GAINS[feature])

    def inputs(self, neighbors: Neighbors) -> torch.Tensor:
        """(rows, K·|features|): scaled squared distances, then counts of distinct tokens."""
        neighbors = neighbors.nearest(self.max_k)
        parts = []
        if "distances" in self.features:
            parts.append(neighbors.squared_distances * self.distance_scale)
        if "counts" in self.features:
            parts.append(distinct_counts(neighbors))
        return torch.cat(parts, dim=1)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Log-probabilities of each size; (rows, |S|)."""
        scores: torch.Tensor = self.layers(inputs)
        return scores.log_softmax(dim=1)

    @torch.inference_mode()
    def weigh(self, retrieved: Retrieved) -> MixtureWeights:
        neighbors = retrieved.neighbors
        probabilities = self(self.inputs(neighbors)).exp()
        weights = weights_from_sizes(neighbors.nearest(self.max_k), probabilities, self.sizes, self.temperature)
        return damped(self.damping, weights, retrieved)

    @property
    def settings(self) -> dict[str, Any]:
        own = {"temperature": self.temperature, "hidden": self.hidden, "features": list(self.features)}
        return {**super().settings, **own}
