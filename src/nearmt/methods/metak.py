"""The Meta-k network: looks at the distances and at how much the neighbours agree, says how many to believe."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from nearmt.errors import SettingError, StoreDamagedError
from nearmt.methods.damping import Damping, damped
from nearmt.methods.mixture import (
    MixtureWeights,
    check_temperature,
    distinct_counts,
    neighbor_counts,
    weights_from_sizes,
)
from nearmt.methods.retrieved import Retrieved
from nearmt.retrieval.neighbors import Neighbors

FEATURES = ("distances", "counts")
_GAINS = {"distances": 0.01, "counts": 0.1}


class MetaK(nn.Module):
    """Linear – Tanh – Linear – softmax over S = {0, 1, 2, 4, …, K}; a `Method` of the mixture.

    `distance_scale` multiplies the distance features: models differ in the size of their states, and the
    network was designed for distances around a hundred. With a guard the model has more say in sentences that are far
    from the memory.
    """

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
        super().__init__()
        self.damping: Damping | None = None
        check_temperature(temperature)
        if not features or not set(features) <= set(FEATURES):
            raise SettingError(f"the features must be some of {', '.join(FEATURES)}, not {', '.join(features)}")
        self.max_k, self.temperature, self.hidden = max_k, temperature, hidden
        self.distance_scale, self.features = distance_scale, tuple(f for f in FEATURES if f in features)
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
        return {"max_k": self.max_k, "temperature": self.temperature, "hidden": self.hidden,
                "distance_scale": self.distance_scale, "features": list(self.features),
                "guard": self.damping.as_dict() if self.damping is not None else None}  # fmt: skip

    def to_bytes(self) -> bytes:
        """A safetensors file that carries the settings in its header."""
        tensors = {name: tensor.contiguous() for name, tensor in self.state_dict().items()}
        content: bytes = safetensors.torch.save(tensors, {"nearmt_metak": json.dumps(self.settings)})
        return content

    @classmethod
    def load(cls, path: Path) -> "MetaK":
        try:
            with safe_open(path, "pt") as opened:
                settings = json.loads(opened.metadata()["nearmt_metak"])
                tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
            guard = settings.pop("guard", None)
            network = cls(settings.pop("max_k"), settings.pop("temperature"), **settings)
            network.load_state_dict(tensors)
            network.damping = Damping(**guard) if guard is not None else None
        except (SafetensorError, KeyError, TypeError, RuntimeError, OSError, ValueError) as error:
            raise StoreDamagedError(f"{path} is missing or damaged: run nearmt verify, or train again") from error
        return network.eval()
