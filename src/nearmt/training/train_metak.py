"""Training Meta-k on cached neighbours.

For a fixed temperature the mixture at the gold token is Σ_k p(k)·q_k with q_0 = p_NMT(gold) and q_k = p_kNN,k(gold):
a table with |S| numbers per token, so thousands of steps take seconds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import nn

from nearmt.methods.metak import MetaK
from nearmt.methods.mixture import size_likelihoods
from nearmt.training.cache import NeighborCache
from nearmt.training.likelihood import TINY, base_loss
from nearmt.training.schedule import BETAS, MAX_NORM, OnCheck, TrainingSettings, check_parts, fit, one_thread


@dataclass(frozen=True)
class TrainedMetaK:
    """A network and its loss on the held-out sentences that it was selected on."""

    network: MetaK
    loss: float  # mean negative log-likelihood of the held-out tokens, in nats
    base_loss: float  # the loss of the model alone
    steps: int


def distance_scale(cache: NeighborCache, raw: bool = False) -> float:
    """The factor that makes the median squared distance of the farthest neighbour 100."""
    median = cache.median_distance(-1)
    return 1.0 if raw or median <= 0 else 100.0 / median


def likelihood_table(cache: NeighborCache, sizes: tuple[int, ...], temperature: float) -> torch.Tensor:
    """(n, |S|): the gold token's log-probability under the model, then under each number of neighbours."""
    retrieved = size_likelihoods(cache.neighbors, cache.gold, sizes, temperature)
    # Without neighbours the mixture is the model alone, whatever the network predicts.
    retrieved = torch.where(cache.neighbors.found[:, :1], retrieved, cache.gold_probability.unsqueeze(1))
    return torch.cat([cache.gold_probability.unsqueeze(1), retrieved], dim=1).clamp_min(TINY).log()


class _Ensemble:
    """Networks of one shape that are trained together, one for each temperature.

    They are trained on the same batches with stacked matrices, which takes little longer than training one.
    Clipping, learning rate and early stopping are separate for each network.
    """

    def __init__(self, networks: Sequence[MetaK], cache: NeighborCache, held_out: NeighborCache) -> None:
        def tables(part: NeighborCache) -> torch.Tensor:  # (networks, tokens, |S|)
            return torch.stack([likelihood_table(part, network.sizes, network.temperature) for network in networks])

        self._inputs, self._tables = networks[0].inputs(cache.neighbors), tables(cache)
        self._held_inputs, self._held_tables = networks[0].inputs(held_out.neighbors), tables(held_out)
        first = [cast(nn.Linear, network.layers[0]) for network in networks]
        last = [cast(nn.Linear, network.layers[2]) for network in networks]
        stacked = [
            torch.stack([layer.weight.detach().T for layer in first]),  # (networks, inputs, hidden)
            torch.stack([layer.bias.detach().unsqueeze(0) for layer in first]),
            torch.stack([layer.weight.detach().T for layer in last]),
            torch.stack([layer.bias.detach().unsqueeze(0) for layer in last]),
        ]
        self.parameters = [part.contiguous().requires_grad_() for part in stacked]
        self._means = [torch.zeros_like(part) for part in stacked]
        self._squares = [torch.zeros_like(part) for part in stacked]
        self._steps = 0

    @property
    def num_networks(self) -> int:
        return len(self.parameters[0])

    @torch.inference_mode()
    def held_out_losses(self) -> list[float]:
        losses: list[float] = self._losses(self._held_inputs, self._held_tables).tolist()
        return losses

    def _losses(self, inputs: torch.Tensor, log_tables: torch.Tensor) -> torch.Tensor:
        """Mean cross entropy of each network's mixture at the gold token; (networks,)."""
        w1, b1, w2, b2 = self.parameters
        hidden = torch.baddbmm(b1, inputs.expand(len(w1), *inputs.shape), w1).tanh()
        log_sizes = torch.baddbmm(b2, hidden, w2).log_softmax(dim=2)
        return -torch.logsumexp(log_sizes + log_tables, dim=2).mean(dim=1)

    def step(self, rows: torch.Tensor, rates: torch.Tensor) -> None:
        """One step of Adam, with each network's gradient clipped to a norm of 1."""
        losses = self._losses(self._inputs[rows], self._tables[:, rows])
        gradients = torch.autograd.grad(losses.sum(), self.parameters)
        norms = torch.stack([g.flatten(1).square().sum(1) for g in gradients]).sum(0).sqrt()
        scale = (MAX_NORM / (norms + 1e-6)).clamp_max(1.0).view(-1, 1, 1)
        self._steps += 1
        first, second = 1 - BETAS[0] ** self._steps, 1 - BETAS[1] ** self._steps
        with torch.no_grad():
            for part, g, mean, square in zip(self.parameters, gradients, self._means, self._squares, strict=True):
                clipped = g * scale
                mean.lerp_(clipped, 1 - BETAS[0])
                square.mul_(BETAS[1]).addcmul_(clipped, clipped, value=1 - BETAS[1])
                part -= rates.view(-1, 1, 1) * (mean / first) / ((square / second).sqrt() + 1e-8)

    def state_of(self, number: int) -> list[torch.Tensor]:
        return [part[number].detach().clone() for part in self.parameters]


def _with_weights(network: MetaK, weights: list[torch.Tensor]) -> MetaK:
    w1, b1, w2, b2 = weights
    network.load_state_dict(
        {"layers.0.weight": w1.T, "layers.0.bias": b1[0], "layers.2.weight": w2.T, "layers.2.bias": b2[0]}
    )
    return network.eval()


def train_metak(
    cache: NeighborCache,
    held_out: NeighborCache,
    *,
    max_k: int,
    temperatures: Sequence[float],
    settings: TrainingSettings | None = None,
    on_check: OnCheck = lambda step, loss: None,
) -> list[TrainedMetaK]:
    """Train a network for each temperature on `cache`; keep the state of each with the lowest loss on `held_out`.

    `on_check` is called at every check with the step and the lowest loss so far. The translation model stays frozen.
    """
    settings = settings or TrainingSettings()
    check_parts(cache, held_out)
    scale = distance_scale(cache, settings.raw_features)
    networks = []
    for temperature in temperatures:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(settings.seed)
            networks.append(
                MetaK(max_k, temperature, hidden=settings.hidden, distance_scale=scale, features=settings.features)
            )
    nmt_loss = base_loss(held_out)
    with one_thread():
        best = fit(_Ensemble(networks, cache, held_out), cache.sentence_ids, settings, on_check)
    return [
        TrainedMetaK(_with_weights(network, found.state), found.loss, nmt_loss, found.step)
        for network, found in zip(networks, best, strict=True)
    ]
