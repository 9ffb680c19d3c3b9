"""What the variants of Meta-k have in common: K scores and a λ become the weights of the mixture."""

from abc import abstractmethod

import torch

from nearmt.methods.damping import damped
from nearmt.methods.mixture import MixtureWeights
from nearmt.methods.network import Network
from nearmt.methods.retrieved import Retrieved
from nearmt.retrieval.neighbors import Neighbors


def knn_distribution(scores: torch.Tensor, neighbors: Neighbors) -> torch.Tensor:
    """The softmax of the scores over the neighbours that were found, 0 elsewhere; (rows, K)."""
    # The lowest number instead of -inf, so that a row without neighbours has neither NaN values nor NaN gradients.
    masked = scores.masked_fill(~neighbors.found, torch.finfo(scores.dtype).min)
    return masked.softmax(dim=1) * neighbors.found


def weights_from_logit(p_knn: torch.Tensor, share_logit: torch.Tensor, neighbors: Neighbors) -> MixtureWeights:
    """p = λ·p_kNN + (1-λ)·p_NMT with λ = sigmoid(share_logit), (rows,); `p_knn` has one number per slot, (rows, K).

    A row without neighbours is the model alone.
    """
    any_found = neighbors.found[:, 0]
    nmt_share = torch.where(any_found, (-share_logit).sigmoid(), 1.0)
    knn_share = torch.where(any_found, share_logit.sigmoid(), 0.0)
    return MixtureWeights(
        nmt_share,
        knn_share.unsqueeze(1) * p_knn,
        (0, neighbors.max_k),
        torch.stack([nmt_share, knn_share], dim=1),
    )


class VariantNetwork(Network):
    """A network that always uses all K neighbours and predicts λ and their weights."""

    @abstractmethod
    def forward(self, retrieved: Retrieved) -> MixtureWeights:
        """The weights, with their gradients."""

    @torch.inference_mode()
    def weigh(self, retrieved: Retrieved) -> MixtureWeights:
        weights: MixtureWeights = self(retrieved.nearest(self.max_k))
        return damped(self.damping, weights, retrieved)
