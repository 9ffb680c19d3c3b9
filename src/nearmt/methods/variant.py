"""What the variants of Meta-k have in common: K scores and a share become weights, and a network becomes a file."""

import json
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import safetensors.torch
import torch
from torch import nn

from nearmt.methods.damping import Damping, damped
from nearmt.methods.mixture import MixtureWeights, neighbor_counts
from nearmt.methods.retrieved import Retrieved
from nearmt.retrieval.neighbors import Neighbors

HEADER = "nearmt_relative"


def distribution(scores: torch.Tensor, neighbors: Neighbors) -> torch.Tensor:
    """The softmax of the scores over the neighbours that were found, 0 elsewhere; (rows, K)."""
    # The lowest number instead of -inf: a row without any neighbour must not become NaN, in training neither.
    masked = scores.masked_fill(~neighbors.found, torch.finfo(scores.dtype).min)
    return masked.softmax(dim=1) * neighbors.found


def weights_from_share(retrieved: torch.Tensor, share_logit: torch.Tensor, neighbors: Neighbors) -> MixtureWeights:
    """p = λ·p_kNN + (1-λ)·p_NMT with λ = sigmoid(share_logit), (rows,); `retrieved` is p_kNN by slot, (rows, K).

    A row that found nothing is the model's alone.
    """
    any_found = neighbors.found[:, 0]
    nmt_share = torch.where(any_found, (-share_logit).sigmoid(), 1.0)
    knn_share = torch.where(any_found, share_logit.sigmoid(), 0.0)
    return MixtureWeights(
        nmt_share,
        knn_share.unsqueeze(1) * retrieved,
        (0, neighbors.max_k),
        torch.stack([nmt_share, knn_share], dim=1),
    )


class VariantNetwork(nn.Module, ABC):
    """A network that shares a row out between the model and K neighbours; a `Method` of the mixture.

    `distance_scale` is Meta-k's: the constant that brings the median squared distance of the farthest neighbour to
    100, so that bandwidths and temperatures mean the same for every model.
    """

    name: ClassVar[str]

    def __init__(self, max_k: int, distance_scale: float) -> None:
        super().__init__()
        neighbor_counts(max_k)  # refuses what makes no sense
        self.max_k, self.distance_scale = max_k, distance_scale
        self.damping: Damping | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """What the constructor takes, and the guard."""
        guard = self.damping.as_dict() if self.damping is not None else None
        return {"max_k": self.max_k, "distance_scale": self.distance_scale, "guard": guard}

    @abstractmethod
    def forward(self, retrieved: Retrieved) -> MixtureWeights:
        """The weights, with their gradients."""

    @torch.inference_mode()
    def weigh(self, retrieved: Retrieved) -> MixtureWeights:
        weights: MixtureWeights = self(retrieved.nearest(self.max_k))
        return damped(self.damping, weights, retrieved)

    def to_bytes(self) -> bytes:
        """A safetensors file that carries name and settings in its header."""
        tensors = {name: tensor.contiguous() for name, tensor in self.state_dict().items()}
        header = {HEADER: json.dumps({"name": self.name, **self.settings})}
        content: bytes = safetensors.torch.save(tensors, header)
        return content
