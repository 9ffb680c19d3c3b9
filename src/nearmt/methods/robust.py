"""Robust kNN-MT (Jiang et al., EMNLP 2022): the model's confidence in each neighbour also counts.

With the scaled squared distances d_i, the counts of distinct tokens r_i, the model's confidence in each retrieved token
at the stored key, a_i = log p_NMT(v_i | k_i), and at the query, b_i = log p_NMT(v_i | q), and the logarithms t_1…t_8 of
its eight highest probabilities at the query:

    [s_kNN; u] = W_1 tanh(W_2 [d_1…d_K; r_1…r_K])    weight prediction: a score and a temperature, 1/T = sigmoid(u)
    c_i        = W_3 tanh(W_4 [a_i; b_i])            distribution calibration, one neighbour at a time
    s_NMT      = W_5 [t_1…t_8; a_1…a_K; b_1…b_K]
    p_i        = softmax_i(-d_i / T + c_i)           λ = exp s_kNN / (exp s_kNN + exp s_NMT)
    p(y)       = λ · Σ_i 1[y = v_i] p_i + (1-λ) · p_NMT(y)

Each layer has a bias. Missing neighbours are left out of the softmax; their features repeat the last one found.

Training perturbs rows in two independent ways, each with probability α = exp(-step / 1000): it adds noise from
N(0, σ²) to every key; and where no neighbour has the gold token, it replaces the farthest neighbour by a pseudo
neighbour with that token, whose key is the query plus noise.

Where this differs from the paper and its code:
- Distances are scaled (median d_K = 100), W_2 starts as Meta-k's first layer does, and T starts at a tenth of the
  median d_K. The authors start at T = 2 with unscaled distances, where the nearest neighbour dominates.
- σ: the authors use 0.01 for one model of width 1024, an expected squared length of 0.1 for distances around a
  hundred. Here σ gives the same length in scaled distances for any width.
- The effect of noise on a distance is sampled directly: for e ~ N(0, σ²)^w, ‖k - q + e‖² is (√d + σz)² + σ²·χ²(w-1),
  where z is standard normal, the component of e along k - q. The distribution is the same, and no key is fetched.
- A perturbed key keeps the confidence of the stored key, and a pseudo neighbour gets the model's confidence at the
  query. The noise is too small to matter, and projecting K keys per row onto the vocabulary would cost more than the
  rest of the training.
- a_i is the probability in the store, in 16 bits. Probabilities are clamped to 2^-24, the smallest 16-bit number.
- The counts treat token id 0 like any other.
"""

import math
from typing import Any

import torch
from torch import nn

from nearmt.methods.mixture import MixtureWeights, distinct_counts
from nearmt.methods.retrieved import NUM_TOP, Retrieved
from nearmt.methods.variant import VariantNetwork, knn_distribution, weights_from_logit
from nearmt.retrieval.neighbors import repeat_last

CALIBRATION_UNITS = 4
_SMALLEST = 2.0**-24


class Robust(VariantNetwork):
    """The networks for distribution calibration and weight prediction."""

    name = "robust"

    def __init__(
        self, max_k: int, *, hidden: int = 32, distance_scale: float = 1.0, first_temperature: float = 10.0
    ) -> None:
        super().__init__(max_k, distance_scale)
        self.hidden = hidden
        first, last = nn.Linear(2 * max_k, hidden), nn.Linear(hidden, 2)
        self.retrieval = nn.Sequential(first, nn.Tanh(), last)
        self.calibration = nn.Sequential(nn.Linear(2, CALIBRATION_UNITS), nn.Tanh(), nn.Linear(CALIBRATION_UNITS, 1))
        self.confidence = nn.Linear(NUM_TOP + 2 * max_k, 1)
        with torch.no_grad():
            nn.init.xavier_normal_(first.weight[:, :max_k], gain=0.01)
            nn.init.xavier_normal_(first.weight[:, max_k:], gain=0.1)
            last.bias[1] = -math.log(max(first_temperature - 1, 1e-3))  # its sigmoid is 1/T

    @property
    def settings(self) -> dict[str, Any]:
        return {**super().settings, "hidden": self.hidden}

    def forward(self, retrieved: Retrieved) -> MixtureWeights:
        neighbors = retrieved.neighbors
        distances = neighbors.squared_distances * self.distance_scale  # (rows, K)
        at_key = _log(repeat_last(retrieved.stored_probabilities, neighbors.found))
        at_query = _log(repeat_last(retrieved.neighbor_probabilities, neighbors.found))
        scores = self.retrieval(torch.cat([distances, distinct_counts(neighbors)], dim=1))
        inverse_temperature = scores[:, 1:].sigmoid()
        calibration = self.calibration(torch.stack([at_key, at_query], dim=2)).squeeze(2)
        # Relative to the nearest neighbour: the softmax stays the same, and the numbers stay small.
        p_knn = knn_distribution((distances[:, :1] - distances) * inverse_temperature + calibration, neighbors)
        model_score = self.confidence(torch.cat([_log(retrieved.top_probabilities), at_key, at_query], dim=1))
        return weights_from_logit(p_knn, scores[:, 0] - model_score.squeeze(1), neighbors)


def _log(probabilities: torch.Tensor) -> torch.Tensor:
    return probabilities.clamp_min(_SMALLEST).log()
