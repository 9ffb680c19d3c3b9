"""What an experiment is: cells to compute, and a section of the report made of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean, stdev
from typing import Any, Protocol

from nearmt.experiments.paper.lab import Lab, Result
from nearmt.experiments.report import Chart, Example, Table

CellKey = tuple[str | int, ...]
Cells = dict[CellKey, Callable[[], Any]]
SIGNIFICANT = 0.05


@dataclass(frozen=True)
class Figure:
    """A chart, the name of its file and the sentence below it."""

    name: str
    chart: Chart
    caption: str


@dataclass(frozen=True)
class Section:
    """One part of the report."""

    name: str
    title: str
    text: str
    tables: Sequence[tuple[str, Table]] = ()  # a heading, may be empty, and the table
    figures: Sequence[Figure] = ()
    examples: Sequence[Example] = ()
    notes: str = ""
    data: Any = field(default_factory=dict)  # the numbers with their settings, for machines


class Experiment(Protocol):
    """A table or figure of the paper. Cells are computed one by one, so that a run can stop between any two."""

    name: str

    def cells(self, lab: Lab) -> Cells: ...

    def assemble(self, lab: Lab, results: Mapping[CellKey, Any]) -> Section: ...


def spread(values: Sequence[float]) -> str:
    """A mean with its deviation over seeds."""
    return f"{mean(values):.2f}" + (f" ± {stdev(values):.2f}" if len(values) > 1 else "")


def p_text(p: float) -> str:
    return f"{p:.3f}"


def describe_result(result: Result) -> dict[str, Any]:
    """A number with everything it depends on."""
    return {"bleu": result.bleu, "chrf": result.chrf, "signature": result.signature, "settings": result.settings}


def mean_bleu(results: Sequence[Result]) -> float:
    return mean(result.bleu for result in results)
