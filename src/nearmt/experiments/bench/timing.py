"""Interleaved timing: every round runs every system once, so that a busy moment affects all of them equally."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median, quantiles
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Timing:
    """The seconds of all rounds, and the processor time of all threads in each if it was measured."""

    seconds: tuple[float, ...]
    processor: tuple[float, ...] = ()

    @property
    def median(self) -> float:
        return median(self.seconds)

    @property
    def spread(self) -> float:
        """The interquartile range, relative to the median."""
        if len(self.seconds) < 2:
            return 0.0
        low, _, high = quantiles(self.seconds, n=4, method="inclusive")
        return (high - low) / self.median

    def over(self, other: "Timing") -> float:
        """Return the median ratio to another timing, taken within rounds so that a slow round does not count."""
        return _median_ratio(self.seconds, other.seconds)

    def processor_over(self, other: "Timing") -> float:
        """The same of the processor time, which other processes hardly change."""
        return _median_ratio(self.processor, other.processor)


def _median_ratio(own: tuple[float, ...], others: tuple[float, ...]) -> float:
    return median(mine / other for mine, other in zip(own, others, strict=True))


def summarize(timings: Mapping[str, Timing]) -> dict[str, dict[str, float]]:
    """Return median seconds, their spread and the ratios to the first timing, for JSON."""
    first = next(iter(timings.values()))
    found = {
        name: {"median": timing.median, "spread": timing.spread, "ratio": timing.over(first)}
        for name, timing in timings.items()
    }
    for name, timing in timings.items():
        if timing.processor:
            found[name]["processor_ratio"] = timing.processor_over(first)
    return found


def interleaved(
    runs: Mapping[str, Callable[[], object]],
    rounds: int,
    pause: float = 0.05,
    on_run: Callable[[], object] = lambda: None,
) -> dict[str, Timing]:
    """Time every run once per round, after a warm-up round; every other round runs in reverse order."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    processor: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(rounds + 1):
        for name, run in list(runs.items())[:: -1 if number % 2 else 1]:
            time.sleep(pause)  # lets the threads of the previous run go to sleep
            began, began_processor = time.perf_counter(), time.process_time()
            run()
            if number:
                seconds[name].append(time.perf_counter() - began)
                processor[name].append(time.process_time() - began_processor)
            on_run()
    return {name: Timing(tuple(seconds[name]), tuple(processor[name])) for name in runs}


class Stopwatch:
    """Adds up the time of each part of a computation."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def timed(self, name: str, function: Callable[P, R]) -> Callable[P, R]:
        """Return the function wrapped so that its time is added to a part."""

        def run(*args: P.args, **options: P.kwargs) -> R:
            began = time.perf_counter()
            try:
                return function(*args, **options)
            finally:
                self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began

        return run
