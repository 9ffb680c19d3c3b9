"""Training Meta-k on cached neighbours.

For a fixed temperature the mixture at the gold token is Σ_k p(k)·q_k with q_0 = p_NMT(gold) and q_k = p_kNN,k(gold):
a table of |S| numbers a token, so that thousands of steps take seconds.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch

from nearmt.errors import SettingError
from nearmt.metak.cache import NeighborCache
from nearmt.metak.network import FEATURES, MetaK
from nearmt.mixture import size_likelihoods

_TINY = 1e-30


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
    median = float(cache.neighbors.squared_distances[:, -1].median())
    return 1.0 if raw or median <= 0 else 100.0 / median


def likelihood_table(cache: NeighborCache, sizes: tuple[int, ...], temperature: float) -> torch.Tensor:
    """(n, |S|): the gold token's log-probability under the model, then under each number of neighbours."""
    retrieved = size_likelihoods(cache.neighbors, cache.gold, sizes, temperature)
    # Where nothing was found the mixture is the model's alone, whatever the network says.
    retrieved = torch.where(cache.neighbors.found[:, :1], retrieved, cache.gold_probability.unsqueeze(1))
    return torch.cat([cache.gold_probability.unsqueeze(1), retrieved], dim=1).clamp_min(_TINY).log()


def mixture_loss(network: MetaK, inputs: torch.Tensor, log_table: torch.Tensor) -> torch.Tensor:
    """Mean cross entropy of the mixture at the gold token."""
    return -torch.logsumexp(network(inputs) + log_table, dim=1).mean()


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


def train_metak(
    cache: NeighborCache,
    held_out: NeighborCache,
    *,
    max_k: int,
    temperature: float,
    settings: TrainingSettings | None = None,
    on_check: Callable[[int, float], None] = lambda step, loss: None,
) -> TrainedMetaK:
    """Train on `cache`, keep the network that does best on `held_out`. The translation model is not touched."""
    settings = settings or TrainingSettings()
    if len(cache) == 0 or len(held_out) == 0:
        raise SettingError("too few sentences to train on: at least two are needed, and better a few hundred")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        scale = distance_scale(cache, settings.raw_features)
        network = MetaK(max_k, temperature, hidden=settings.hidden, distance_scale=scale, features=settings.features)
    with _one_thread():
        return _fit(network, cache, held_out, settings, on_check)


@contextmanager
def _one_thread() -> Iterator[None]:
    """The matrices are tiny: a second thread only gets in the way."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _fit(
    network: MetaK,
    cache: NeighborCache,
    held_out: NeighborCache,
    settings: TrainingSettings,
    on_check: Callable[[int, float], None],
) -> TrainedMetaK:
    temperature = network.temperature
    inputs, table = network.inputs(cache.neighbors), likelihood_table(cache, network.sizes, temperature)
    check_inputs = network.inputs(held_out.neighbors)
    check_table = likelihood_table(held_out, network.sizes, temperature)
    optimizer = torch.optim.Adam(network.parameters(), lr=settings.learning_rate, betas=(0.9, 0.98), fused=True)
    batches = _Batches(cache.sentence_ids, settings.batch_sentences, settings.seed)
    best, best_state, best_step, since_best, rate = float("inf"), None, 0, 0, settings.learning_rate
    for step in range(1, settings.steps + 1):
        rows = batches.next()
        optimizer.zero_grad(set_to_none=True)
        mixture_loss(network, inputs[rows], table[rows]).backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        due = step >= settings.first_check and step % settings.check_every == 0
        if not due and step < settings.steps:
            continue
        with torch.inference_mode():
            loss = float(mixture_loss(network, check_inputs, check_table))
        on_check(step, loss)
        if loss < best:
            best, best_state, best_step, since_best = loss, copy.deepcopy(network.state_dict()), step, 0
            continue
        since_best += 1
        if since_best >= settings.stop_after:
            break
        if since_best % settings.halve_after == 0:
            rate = max(rate / 2, settings.lowest_rate)
            optimizer.param_groups[0]["lr"] = rate
    if best_state is None:
        raise SettingError("training gave no usable network: the cached neighbours hold numbers that are not finite")
    network.load_state_dict(best_state)
    base_loss = float(-held_out.gold_probability.clamp_min(_TINY).log().mean())
    return TrainedMetaK(network.eval(), best, base_loss, best_step)
