"""Kernel-smoothed kNN-MT (KSTER, Jiang et al., EMNLP 2021): a learned bandwidth and a learned share.

With the query q and the neighbours' keys k_i, all multiplied by √s, where s is the distance scale:

    k̃     = mean of the k_i                        log σ = W_1 [q; k̃] + b_1
    p_i   = softmax_i(-‖q - k_i‖ / σ)              the Laplacian kernel, which the authors' scripts use throughout
    k̂     = Σ_i p_i k_i                            λ = sigmoid(W_3 ReLU(W_2 [q; k̂] + b_2) + b_3)
    p(y)  = λ · Σ_i 1[y = v_i] p_i + (1-λ) · p_NMT(y)

‖q - k_i‖ is √(s·d_i), from the distances that were retrieved. Missing neighbours take part in neither mean nor softmax.

Where this differs from the paper:
- s, and with it the start of b_1: the logarithm of √(s · median d_K), which is log 10. That is also the number the
  authors' code starts from; there it belongs to one model. W_1 starts at 0, so that training begins with one bandwidth.
- The state to keep is looked for from the first hundred steps on, not from the thousandth: they train on the whole
  memory, this on a dev set, which 2·width inputs can learn by heart in a few hundred steps.
- Retrieval dropout: they train on the sentences of the store itself and so always leave out the nearest neighbour,
  which is the query's own entry. A dev set is searched without its own entries anyway; here the nearest neighbour is
  left out of every second row, at random, so that the network does not learn to lean on one.
- log σ is kept between -15 and 15, so that nothing overflows.
"""

import math
from typing import Any

import torch
from torch import nn

from nearmt.methods.mixture import MixtureWeights
from nearmt.methods.retrieved import Retrieved
from nearmt.methods.variant import VariantNetwork, distribution, weights_from_share

_LOG_LIMIT = 15.0


class Kernel(VariantNetwork):
    """KSTER's two estimators over the query and the retrieved keys."""

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
        # VariantNetwork to the nearest, which changes no weight and keeps the numbers small.
        scores = (lengths[:, :1] - lengths) * (-log_bandwidth.clamp(-_LOG_LIMIT, _LOG_LIMIT)).exp()
        votes = distribution(scores, neighbors)
        logit: torch.Tensor = self.share(torch.cat([query, _merged(keys, votes) * root], dim=1))
        return weights_from_share(votes, logit.squeeze(1), neighbors)


def _merged(keys: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """The weighted sum of the keys; (rows, width)."""
    return torch.bmm(weights.unsqueeze(1), keys).squeeze(1)
