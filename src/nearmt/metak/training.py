"""Training Meta-k on cached neighbours.

For a fixed temperature the mixture at the gold token is Σ_k p(k)·q_k with q_0 = p_NMT(gold) and q_k = p_kNN,k(gold):
a table of |S| numbers a token, so that thousands of steps take seconds.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from torch import nn

from nearmt.errors import SettingError
from nearmt.metak.cache import NeighborCache
from nearmt.metak.network import FEATURES, MetaK
from nearmt.mixture import size_likelihoods

_TINY = 1e-30
_CLIP, _BETAS = 1.0, (0.9, 0.98)


@dataclass(frozen=True)
class TrainingSettings:
    """The original's settings, but for label smoothing, which is left out."""

    hidden: int = 32
    features: Sequence[str] = FEATURES
    raw_features: bool = False  # the paper's way: distances enter unscaled
    steps: int = 5000
    learning_rate: float = 3e-4
    lowest_rate: float = 3e-5
    batch_sentences: int = 32
    check_every: int = 100
    first_check: int = 1000
    halve_after: int = 5  # checks without improvement
    stop_after: int = 30
    seed: int = 1


@dataclass(frozen=True)
class TrainedMetaK:
    """A network and how it did on the sentences it was selected by."""

    network: MetaK
    loss: float  # mean negative log-likelihood of the held-out tokens, in nats
    base_loss: float  # the same for the model alone
    steps: int


def distance_scale(cache: NeighborCache, raw: bool = False) -> float:
    """The constant that brings the median distance of the farthest neighbour to 100."""
    median = cache.median_distance(-1)
    return 1.0 if raw or median <= 0 else 100.0 / median


def likelihood_table(cache: NeighborCache, sizes: tuple[int, ...], temperature: float) -> torch.Tensor:
    """(n, |S|): the gold token's log-probability under the model, then under each number of neighbours."""
    retrieved = size_likelihoods(cache.neighbors, cache.gold, sizes, temperature)
    # Where nothing was found the mixture is the model's alone, whatever the network says.
    retrieved = torch.where(cache.neighbors.found[:, :1], retrieved, cache.gold_probability.unsqueeze(1))
    return torch.cat([cache.gold_probability.unsqueeze(1), retrieved], dim=1).clamp_min(_TINY).log()


class _Batches:
    """Endless batches of whole sentences, every sentence once an epoch."""

    def __init__(self, sentence_ids: torch.Tensor, size: int, seed: int) -> None:
        order = torch.argsort(sentence_ids, stable=True)
        _, counts = torch.unique_consecutive(sentence_ids[order], return_counts=True)
        self._sentences = torch.split(order, counts.tolist())
        self._size, self._rng = size, np.random.default_rng(seed)
        self._queue: list[int] = []

    def next(self) -> torch.Tensor:
        if not self._queue:
            self._queue = self._rng.permutation(len(self._sentences)).tolist()
        chosen, self._queue = self._queue[: self._size], self._queue[self._size :]
        return torch.cat([self._sentences[i] for i in chosen])


class _Ensemble:
    """Networks of one shape that learn side by side, one for each temperature.

    They see the same batches, so that one pass of stacked matrices trains them all in little more time than one;
    clipping, learning rate and early stopping are each network's own.
    """

    def __init__(self, networks: Sequence[MetaK]) -> None:
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

    def losses(self, inputs: torch.Tensor, log_tables: torch.Tensor) -> torch.Tensor:
        """Mean cross entropy of each network's mixture at the gold token; (networks,)."""
        w1, b1, w2, b2 = self.parameters
        hidden = torch.baddbmm(b1, inputs.expand(len(w1), *inputs.shape), w1).tanh()
        log_sizes = torch.baddbmm(b2, hidden, w2).log_softmax(dim=2)
        return -torch.logsumexp(log_sizes + log_tables, dim=2).mean(dim=1)

    def step(self, inputs: torch.Tensor, log_tables: torch.Tensor, rates: torch.Tensor) -> None:
        """One step of Adam, each network's gradient clipped to a norm of 1. A rate of 0 leaves a network alone."""
        gradients = torch.autograd.grad(self.losses(inputs, log_tables).sum(), self.parameters)
        norms = torch.stack([g.flatten(1).square().sum(1) for g in gradients]).sum(0).sqrt()
        scale = (_CLIP / (norms + 1e-6)).clamp_max(1.0).view(-1, 1, 1)
        self._steps += 1
        first, second = 1 - _BETAS[0] ** self._steps, 1 - _BETAS[1] ** self._steps
        with torch.no_grad():
            for part, g, mean, square in zip(self.parameters, gradients, self._means, self._squares, strict=True):
                clipped = g * scale
                mean.lerp_(clipped, 1 - _BETAS[0])
                square.mul_(_BETAS[1]).addcmul_(clipped, clipped, value=1 - _BETAS[1])
                part -= rates.view(-1, 1, 1) * (mean / first) / ((square / second).sqrt() + 1e-8)

    def weights_of(self, number: int) -> list[torch.Tensor]:
        return [part[number].detach().clone() for part in self.parameters]


def _fill(network: MetaK, weights: list[torch.Tensor]) -> MetaK:
    w1, b1, w2, b2 = weights
    network.load_state_dict(
        {"layers.0.weight": w1.T, "layers.0.bias": b1[0], "layers.2.weight": w2.T, "layers.2.bias": b2[0]}
    )
    return network.eval()


@contextmanager
def _one_thread() -> Iterator[None]:
    """The matrices are tiny: a second thread only gets in the way."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def train_metak(
    cache: NeighborCache,
    held_out: NeighborCache,
    *,
    max_k: int,
    temperatures: Sequence[float],
    settings: TrainingSettings | None = None,
    on_check: Callable[[int, float], None] = lambda step, loss: None,
) -> list[TrainedMetaK]:
    """Train a network for each temperature on `cache`; of each keep the state that does best on `held_out`.

    `on_check` hears of the best loss so far now and then. The translation model is not touched.
    """
    settings = settings or TrainingSettings()
    if len(cache) == 0 or len(held_out) == 0:
        raise SettingError("too few sentences to train on: at least two are needed, and better a few hundred")
    scale = distance_scale(cache, settings.raw_features)
    networks = []
    for temperature in temperatures:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(settings.seed)
            networks.append(
                MetaK(max_k, temperature, hidden=settings.hidden, distance_scale=scale, features=settings.features)
            )
    with _one_thread():
        return _fit(networks, cache, held_out, settings, on_check)


def _fit(
    networks: list[MetaK],
    cache: NeighborCache,
    held_out: NeighborCache,
    settings: TrainingSettings,
    on_check: Callable[[int, float], None],
) -> list[TrainedMetaK]:
    def tables(part: NeighborCache) -> torch.Tensor:  # (networks, tokens, |S|)
        return torch.stack([likelihood_table(part, network.sizes, network.temperature) for network in networks])

    inputs, table = networks[0].inputs(cache.neighbors), tables(cache)
    check_inputs, check_table = networks[0].inputs(held_out.neighbors), tables(held_out)
    ensemble = _Ensemble(networks)
    batches = _Batches(cache.sentence_ids, settings.batch_sentences, settings.seed)
    rates = torch.full((len(networks),), settings.learning_rate)
    best = [float("inf")] * len(networks)
    best_weights: list[list[torch.Tensor]] = [[] for _ in networks]
    best_steps, since_best = [0] * len(networks), [0] * len(networks)
    for step in range(1, settings.steps + 1):
        rows = batches.next()
        ensemble.step(inputs[rows], table[:, rows], rates)
        due = step >= settings.first_check and step % settings.check_every == 0
        if not due and step < settings.steps:
            continue
        with torch.inference_mode():
            losses = ensemble.losses(check_inputs, check_table).tolist()
        for number, loss in enumerate(losses):
            if loss < best[number]:
                best[number], best_weights[number] = loss, ensemble.weights_of(number)
                best_steps[number], since_best[number] = step, 0
                continue
            since_best[number] += 1
            if since_best[number] >= settings.stop_after:
                rates[number] = 0
            elif since_best[number] % settings.halve_after == 0:
                rates[number] = max(float(rates[number]) / 2, settings.lowest_rate)
        on_check(step, min(best))
        if not rates.any():
            break
    if not all(best_weights):
        raise SettingError("training gave no usable network: the cached neighbours hold numbers that are not finite")
    base_loss = float(-held_out.gold_probability.clamp_min(_TINY).log().mean())
    return [
        TrainedMetaK(_fill(network, weights), max(loss, 0.0), base_loss, step)  # rounding may fall below 0
        for network, weights, loss, step in zip(networks, best_weights, best, best_steps, strict=True)
    ]
