"""Robust kNN-MT (Jiang et al., EMNLP 2022): neighbours are judged by the model's own confidence in them, too.

With the scaled squared distances d_i, the counts of distinct tokens r_i, the model's confidence in each retrieved token
at the stored key, a_i = log p_NMT(v_i | k_i), and at the query, b_i = log p_NMT(v_i | q), and the logarithms t_1…t_8 of
its eight highest probabilities at the query:

    [s_kNN; u] = W_1 tanh(W_2 [d_1…d_K; r_1…r_K])    weight prediction: a score and a temperature, 1/T = sigmoid(u)
    c_i        = W_3 tanh(W_4 [a_i; b_i])            distribution calibration: each neighbour by itself
    s_NMT      = W_5 [t_1…t_8; a_1…a_K; b_1…b_K]
    p_i        = softmax_i(-d_i / T + c_i)           λ = exp s_kNN / (exp s_kNN + exp s_NMT)
    p(y)       = λ · Σ_i 1[y = v_i] p_i + (1-λ) · p_NMT(y)

Each layer has a bias. Missing neighbours take no part in the softmax; as features they repeat the last found one.

Training disturbs a row with probability α = exp(-step / 1000), in two ways, each drawn by itself: noise from N(0, σ²)
is added to every key; and where no neighbour has the gold token, a pseudo neighbour with that token, its key the query
plus noise, takes the place of the farthest.

Where this differs from the paper and its code:
- Distances are scaled (median d_K = 100), W_2 starts as Meta-k's first layer does, and T starts at a tenth of the
  median d_K. Theirs starts at T = 2 with unscaled distances, where the nearest neighbour is nearly all that counts.
- σ: theirs is 0.01 for one model of width 1024, a squared length of 0.1 against distances around a hundred. Here σ is
  what gives that length in scaled distances, for any width.
- What noise does to a distance is drawn directly: for e ~ N(0, σ²)^w, ‖k - q + e‖² is (√d + σz)² + σ²·χ²(w-1), z
  being normal, the part of e along k - q. The same distribution, without fetching a key.
- The confidence at a disturbed key is that at the key itself, and that of a pseudo neighbour is the model's at the
  query: the noise is too small to matter, and projecting K keys a row onto the vocabulary would cost more than all the
  rest.
- a_i is the probability kept in the store, in 16 bits; logarithms are cut off below at 2^-24, its smallest number.
- The counts treat token id 0 like any other.
"""

import math
from typing import Any

import torch
from torch import nn

from nearmt.methods.mixture import MixtureWeights, distinct_counts
from nearmt.methods.retrieved import NUM_TOP, Retrieved
from nearmt.methods.variant import VariantNetwork, distribution, weights_from_share
from nearmt.retrieval.neighbors import repeat_last

CALIBRATION_UNITS = 4
_SMALLEST = 2.0**-24


class Robust(VariantNetwork):
    """The networks of distribution calibration and of weight prediction."""

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
            last.bias[1] = -math.log(max(first_temperature - 1, 1e-3))  # sigmoid of it is 1/T

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
        # VariantNetwork to the nearest, which changes no weight and keeps the numbers small.
        votes = distribution((distances[:, :1] - distances) * inverse_temperature + calibration, neighbors)
        model_score = self.confidence(torch.cat([_log(retrieved.top_probabilities), at_key, at_query], dim=1))
        return weights_from_share(votes, scores[:, 0] - model_score.squeeze(1), neighbors)


def _log(probabilities: torch.Tensor) -> torch.Tensor:
    return probabilities.clamp_min(_SMALLEST).log()
