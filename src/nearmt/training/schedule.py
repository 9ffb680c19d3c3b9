"""The training schedule of all networks: batches, checks, learning rate, early stopping."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np
import torch

from nearmt.errors import SettingError
from nearmt.methods.metak import FEATURES
from nearmt.training.cache import NeighborCache

MAX_NORM, BETAS = 1.0, (0.9, 0.98)  # of the gradient (clipping), and of Adam
OnCheck = Callable[[int, float], None]  # called with the step and the lowest loss so far
State = TypeVar("State")
State_co = TypeVar("State_co", covariant=True)


@dataclass(frozen=True)
class TrainingSettings:
    """The settings of the original implementation, but without label smoothing."""

    hidden: int = 32
    features: Sequence[str] = FEATURES
    raw_features: bool = False  # unscaled distances, as in the paper
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
    """One network, or several that are trained on the same batches, each with its own learning rate."""

    @property
    def num_networks(self) -> int: ...

    def step(self, rows: torch.Tensor, rates: torch.Tensor) -> None:
        """Train on these rows of the training part. A rate of 0 leaves a network unchanged."""

    def held_out_losses(self) -> list[float]:
        """Mean negative log-likelihood of the held-out tokens under each network, in nats."""
        ...

    def state_of(self, number: int) -> State_co:
        """A copy of a network's current parameters."""
        ...


@dataclass(frozen=True)
class Best(Generic[State]):
    """The state of a network with the lowest loss on the held-out sentences."""

    state: State
    loss: float
    step: int


class Batches:
    """Endless batches of whole sentences; each sentence comes once per epoch."""

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
    """Use a single thread: with matrices this small, more threads are slower."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def check_parts(cache: NeighborCache, held_out: NeighborCache) -> None:
    """Refuse an empty training or held-out part."""
    if len(cache) == 0 or len(held_out) == 0:
        raise SettingError("training needs at least two sentences, and preferably a few hundred")


def fit(
    learner: Learner[State], sentence_ids: torch.Tensor, settings: TrainingSettings, on_check: OnCheck
) -> list[Best[State]]:
    """Train on batches of whole sentences; return the state of each network with the lowest held-out loss."""
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
                best[number] = Best(learner.state_of(number), max(loss, 0.0), step)  # rounding can make it negative
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
        raise SettingError("training failed because the retrieved distances or probabilities are not finite")
    return [best[number] for number in range(count)]
