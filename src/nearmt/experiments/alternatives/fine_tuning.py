"""Fine-tuning for a given processor time, with early stopping on a dev set. An interrupted run continues.

AdamW (0.9, 0.98) without weight decay, gradient clipping at 1.0, label smoothing 0.1, batches of pairs of similar
length in random order. The learning rate rises over the first twentieth of the time and then falls linearly to zero.
The dev loss is measured at equal intervals, which counts as time; the weights with the lowest are kept.
"""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from nearmt.experiments.alternatives.low_rank import add_adapters, merge_adapters
from nearmt.experiments.alternatives.trainable import Batch, Trainable
from nearmt.outputs import writing

WARM_UP = 0.05  # of the time


@dataclass(frozen=True)
class TuningSettings:
    """How to fine-tune, and for how long."""

    seconds: float  # of processor time, all threads together
    rate: float  # the highest learning rate
    adapters: bool = False  # train low-rank adapters instead of all weights
    checks: int = 5  # of the dev loss
    patience: int = 5  # checks without improvement before it stops
    seed: int = 1
    save_every: float = 120.0  # seconds, by the clock


@dataclass
class TuningState:
    """Where a run is."""

    seconds: float = 0.0  # of processor time
    steps: int = 0
    epochs: int = 0
    position: int = 0  # batches of the current epoch that are done
    best_loss: float = float("inf")
    best_seconds: float = 0.0
    losses: list[tuple[float, float]] = field(default_factory=list)  # seconds and dev loss of every check

    @property
    def checks_since_best(self) -> int:
        return sum(seconds > self.best_seconds for seconds, _ in self.losses)


class FineTuning:
    """One run, with its checkpoint and its best weights in a folder."""

    def __init__(
        self,
        trainable: Trainable,
        training: Sequence[Batch],
        dev: Sequence[Batch],
        settings: TuningSettings,
        folder: Path,
        log: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.trainable, self.training, self.dev, self.settings, self.log = trainable, training, dev, settings, log
        self.state = TuningState()
        self._checkpoint, self._best = folder / "checkpoint.pt", folder / "best.pt"
        folder.mkdir(parents=True, exist_ok=True)
        if settings.adapters:
            torch.manual_seed(settings.seed)
            add_adapters(trainable.network, trainable.projection)
        self._trained = {name: p for name, p in trainable.network.named_parameters() if p.requires_grad}
        self._optimizer = torch.optim.AdamW(
            self._trained.values(), lr=settings.rate, betas=(0.9, 0.98), weight_decay=0.0
        )

    def run(self) -> TuningState:
        """Train until the time is over or the dev loss stops falling, and leave the best weights in the network."""
        self._resume()
        state, limit, saved = self.state, self.settings.seconds, time.monotonic()
        self.trainable.network.train()
        while state.seconds < limit and state.checks_since_best < self.settings.patience:
            with self._counted():
                if not state.losses:
                    self._check()
                self._step()
            if state.seconds >= min(limit, len(state.losses) * limit / self.settings.checks):
                with self._counted():
                    self._check()
            if time.monotonic() - saved > self.settings.save_every:
                self._save()
                saved = time.monotonic()
        self._restore(torch.load(self._best, weights_only=True))
        self.trainable.network.eval()
        if self.settings.adapters:
            merge_adapters(self.trainable.network)
        return state

    def discard(self) -> None:
        """Delete the checkpoint and the best weights, once the model is saved."""
        self._checkpoint.unlink(missing_ok=True)
        self._best.unlink(missing_ok=True)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        began = time.process_time()
        yield
        self.state.seconds += time.process_time() - began

    def _step(self) -> None:
        state = self.state
        order = list(range(len(self.training)))
        random.Random(self.settings.seed + state.epochs).shuffle(order)
        torch.manual_seed(self.settings.seed + state.steps)  # for dropout, so that a continued run is the same
        share = state.seconds / self.settings.seconds
        for group in self._optimizer.param_groups:
            group["lr"] = self.settings.rate * min(1.0, (share + 0.01) / WARM_UP, (1 - share) / (1 - WARM_UP))
        self.trainable.accumulate(self.training[order[state.position]])
        torch.nn.utils.clip_grad_norm_(self._trained.values(), 1.0)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        state.steps, state.position = state.steps + 1, state.position + 1
        if state.position == len(order):
            state.epochs, state.position = state.epochs + 1, 0

    def _check(self) -> None:
        state, loss = self.state, self.trainable.loss(self.dev)
        state.losses.append((round(state.seconds, 1), loss))
        self.log(f"{state.seconds:.0f} s, {state.steps} steps, {state.epochs} epochs: dev loss {loss:.4f}")
        if loss < state.best_loss:
            state.best_loss, state.best_seconds = loss, state.losses[-1][0]
            _save(self._best, self._weights())

    def _weights(self) -> dict[str, torch.Tensor]:
        return {name: parameter.detach() for name, parameter in self._trained.items()}

    def _restore(self, weights: dict[str, torch.Tensor]) -> None:
        with torch.no_grad():
            for name, parameter in self._trained.items():
                parameter.copy_(weights[name])

    def _save(self) -> None:
        content = {"state": vars(self.state), "weights": self._weights(), "optimizer": self._optimizer.state_dict()}
        _save(self._checkpoint, content)

    def _resume(self) -> None:
        if not self._checkpoint.exists():
            return
        content = torch.load(self._checkpoint, weights_only=True)
        self.state = TuningState(**content["state"])
        self._restore(content["weights"])
        self._optimizer.load_state_dict(content["optimizer"])
        self.log(f"continues after {self.state.seconds:.0f} s")


def _save(path: Path, content: Any) -> None:
    with writing(path, overwrite=True) as out:
        torch.save(content, out)
