"""Measuring side by side: every round runs everything once, so that a busy moment hits all alike."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median, quantiles
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Timing:
    """Seconds of all rounds."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return median(self.seconds)

    @property
    def spread(self) -> float:
        """The middle half of the rounds, as a share of the median."""
        if len(self.seconds) < 2:
            return 0.0
        low, _, high = quantiles(self.seconds, n=4, method="inclusive")
        return (high - low) / self.median

    def over(self, other: "Timing") -> float:
        """How many times as long as another, round by round: what slows a whole round down does not count."""
        return median(mine / its for mine, its in zip(self.seconds, other.seconds, strict=True))


def described(timings: Mapping[str, Timing]) -> dict[str, dict[str, float]]:
    """For JSON: seconds, their spread, and how many times as long as the first."""
    first = next(iter(timings.values()))
    return {
        name: {"median": found.median, "spread": found.spread, "ratio": found.over(first)}
        for name, found in timings.items()
    }


def interleaved(
    runs: Mapping[str, Callable[[], object]],
    rounds: int,
    pause: float = 0.05,
    on_run: Callable[[], None] = lambda: None,
) -> dict[str, Timing]:
    """Time every run in every round, after one round that warms up; every other round goes backwards."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(rounds + 1):
        for name, run in list(runs.items())[:: -1 if number % 2 else 1]:
            time.sleep(pause)  # threads of what ran before go to sleep
            began = time.perf_counter()
            run()
            if number:
                seconds[name].append(time.perf_counter() - began)
            on_run()
    return {name: Timing(tuple(found)) for name, found in seconds.items()}


class Stopwatch:
    """Adds up the time of parts that do not overlap."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def timed(self, name: str, function: Callable[P, R]) -> Callable[P, R]:
        """The function, its time added to a part."""

        def run(*args: P.args, **options: P.kwargs) -> R:
            began = time.perf_counter()
            try:
                return function(*args, **options)
            finally:
                self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began

        return run
