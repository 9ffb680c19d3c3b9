"""Kernel-smoothed kNN-MT (KSTER, Jiang et al., EMNLP 2021): a learned bandwidth and a learned λ.

With the query q and the neighbours' keys k_i, all multiplied by √s, where s is the distance scale:

    k̃     = mean of the k_i                        log σ = W_1 [q; k̃] + b_1
    p_i   = softmax_i(-‖q - k_i‖ / σ)              the Laplacian kernel, as in all of the authors' scripts
    k̂     = Σ_i p_i k_i                            λ = sigmoid(W_3 ReLU(W_2 [q; k̂] + b_2) + b_3)
    p(y)  = λ · Σ_i 1[y = v_i] p_i + (1-λ) · p_NMT(y)

‖q - k_i‖ is √(s·d_i), from the retrieved distances. Missing neighbours are left out of the mean and the softmax.

Where this differs from the paper:
- The scale s, and with it the initial b_1: log √(s · median d_K) = log 10. The authors' code starts from the same
  number, chosen for one model. W_1 starts at 0, so that training begins with a single bandwidth.
- The best checkpoint is selected from step 100 on instead of step 1000. The authors train on the whole memory; a
  network with 2·width inputs overfits a dev set within a few hundred steps.
- Retrieval dropout: the authors train on the store's own sentences, so they always drop the nearest neighbour, which
  is the query's own entry. A dev set is already searched without its own entries. Here the nearest neighbour is
  dropped from a random half of the rows, so that the network does not rely on a single one.
- log σ is clamped to [-15, 15] against overflow.
"""

import math
from typing import Any

import torch
from torch import nn

from nearmt.methods.mixture import MixtureWeights
from nearmt.methods.retrieved import Retrieved
from nearmt.methods.variant import VariantNetwork, knn_distribution, weights_from_logit

_LOG_LIMIT = 15.0


class Kernel(VariantNetwork):
    """KSTER's estimators of the bandwidth and of λ, from the query and the retrieved keys."""

    name = "kernel"

    def __init__(self, max_k: int, *, width: int, distance_scale: float = 1.0, first_bandwidth: float = 10.0) -> None:
        super().__init__(max_k, distance_scale)
        self.width = width
        self.bandwidth = nn.Linear(2 * width, 1)
        self.share = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, 1))
        nn.init.zeros_(self.bandwidth.weight)
        nn.init.constant_(self.bandwidth.bias, math.log(first_bandwidth))

    @property
    def settings(self) -> dict[str, Any]:
        return {**super().settings, "width": self.width}

    def forward(self, retrieved: Retrieved) -> MixtureWeights:
        neighbors, root = retrieved.neighbors, math.sqrt(self.distance_scale)
        query, keys = retrieved.states * root, retrieved.keys  # (rows, width), (rows, K, width)
        found = neighbors.found.float()
        even = found / found.sum(dim=1, keepdim=True).clamp_min(1)
        log_bandwidth: torch.Tensor = self.bandwidth(torch.cat([query, _merged(keys, even) * root], dim=1))
        lengths = neighbors.squared_distances.clamp_min(0).sqrt() * root
        # Relative to the nearest neighbour: the softmax stays the same, and the numbers stay small.
        scores = (lengths[:, :1] - lengths) * (-log_bandwidth.clamp(-_LOG_LIMIT, _LOG_LIMIT)).exp()
        p_knn = knn_distribution(scores, neighbors)
        logit: torch.Tensor = self.share(torch.cat([query, _merged(keys, p_knn) * root], dim=1))
        return weights_from_logit(p_knn, logit.squeeze(1), neighbors)


def _merged(keys: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """The weighted sum of the keys; (rows, width)."""
    return torch.bmm(weights.unsqueeze(1), keys).squeeze(1)
