"""What a comparison works on: its files, its settings, and the outputs of a system."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FULL, LORA = "full", "lora"


@dataclass(frozen=True)
class Files:
    """The files of a comparison."""

    memory: Path
    dev: Path
    test: Path
    other: Path  # text of another domain, on which the systems should not get worse
    general: tuple[Path, ...] = ()  # text of other domains that shows what is a term; `other` if none is given


@dataclass(frozen=True)
class AlternativesSettings:
    """What to compare, and how much time to spend on it."""

    budget: float | None = None  # processor seconds; None is what building and training the store takes
    long: float = 10.0  # the longer time, as a multiple of the budget
    long_kinds: tuple[str, ...] = (FULL, LORA)  # what is tuned for the longer time as well
    rates: dict[str, tuple[float, ...]] = field(
        default_factory=lambda: {FULL: (3e-5, 1e-4, 3e-4), LORA: (3e-4, 1e-3, 3e-3)}
    )
    trial: float = 0.15  # of the budget, for each of these learning rates
    batch_tokens: int = 1024
    checks: tuple[int, int] = (5, 20)  # of the dev loss in the budget and in the longer time
    dev_sentences: int = 100  # for these checks
    sentence_rates: tuple[float, ...] = (0.03, 0.1, 0.3)
    sentence_dev: int = 20  # dev sentences with matches that choose among these rates
    sentence_test: int = 50  # test sentences that are translated by adapted models
    thresholds: tuple[int, ...] = (20, 30, 40, 45, 50, 55, 60, 70, 80, 90, 100)
    corrections: int = 5  # how often the time of a correction is measured


@dataclass(frozen=True)
class System:
    """What one system did."""

    test: Sequence[str | None]  # its translations; None where it was not asked
    other: Sequence[str | None]
    setup: float  # processor seconds
    milliseconds: float  # of processor time, per sentence of the test set
    correction: float | None = None  # processor seconds until the next request uses a correction
    details: dict[str, Any] = field(default_factory=dict)
