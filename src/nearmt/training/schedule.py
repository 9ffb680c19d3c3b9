"""The schedule of training that every network of the project learns by: batches, checks, learning rate, stopping."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np
import torch

from nearmt.errors import SettingError
from nearmt.methods.metak import FEATURES
from nearmt.training.cache import NeighborCache

CLIP, BETAS = 1.0, (0.9, 0.98)  # of the gradient's norm, and of Adam
OnCheck = Callable[[int, float], None]  # hears of the step and the best loss so far, now and then
State = TypeVar("State")
State_co = TypeVar("State_co", covariant=True)


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


class Learner(Protocol[State_co]):
    """One network, or several that learn side by side from the same batches, each at its own rate."""

    @property
    def num_networks(self) -> int: ...

    def step(self, rows: torch.Tensor, rates: torch.Tensor) -> None:
        """Learn from these rows of the training part. A rate of 0 leaves a network alone."""

    def held_out_losses(self) -> list[float]:
        """Mean negative log-likelihood of the held-out tokens under each network, in nats."""
        ...

    def state_of(self, number: int) -> State_co:
        """A copy of what a network has learned so far."""
        ...


@dataclass(frozen=True)
class Best(Generic[State]):
    """The state of a network that did best on the held-out sentences."""

    state: State
    loss: float
    step: int


class Batches:
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


@contextmanager
def one_thread() -> Iterator[None]:
    """The matrices are tiny: a second thread only gets in the way."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def check_parts(cache: NeighborCache, held_out: NeighborCache) -> None:
    """Something to train on and something to select by."""
    if len(cache) == 0 or len(held_out) == 0:
        raise SettingError("too few sentences to train on: at least two are needed, and better a few hundred")


def fit(
    learner: Learner[State], sentence_ids: torch.Tensor, settings: TrainingSettings, on_check: OnCheck
) -> list[Best[State]]:
    """Train on batches of the sentences; of each network keep the state that does best on what is held out."""
    batches = Batches(sentence_ids, settings.batch_sentences, settings.seed)
    count = learner.num_networks
    rates = torch.full((count,), settings.learning_rate)
    lowest = [float("inf")] * count
    best: dict[int, Best[State]] = {}
    since_best = [0] * count
    for step in range(1, settings.steps + 1):
        learner.step(batches.next(), rates)
        due = step >= settings.first_check and step % settings.check_every == 0
        if not due and step < settings.steps:
            continue
        for number, loss in enumerate(learner.held_out_losses()):
            if loss < lowest[number]:
                lowest[number], since_best[number] = loss, 0
                best[number] = Best(learner.state_of(number), max(loss, 0.0), step)  # rounding may fall below 0
                continue
            since_best[number] += 1
            if since_best[number] >= settings.stop_after:
                rates[number] = 0
            elif since_best[number] % settings.halve_after == 0:
                rates[number] = max(float(rates[number]) / 2, settings.lowest_rate)
        on_check(step, min(lowest))
        if not rates.any():
            break
    if len(best) < count:
        raise SettingError("training gave no usable network: the cached neighbours hold numbers that are not finite")
    return [best[number] for number in range(count)]
