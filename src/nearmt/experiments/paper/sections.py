"""The interface of an experiment: the cells to compute, and the section of the report made from them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean, stdev
from typing import Any, Protocol

from nearmt.corpus import SentencePair
from nearmt.experiments.paper.lab import Lab, Result
from nearmt.experiments.report import Chart, Example, Table

CellKey = tuple[str | int, ...]
Cells = dict[CellKey, Callable[[], Any]]
SIGNIFICANT = 0.05
OUTPUTS = "outputs"  # folder of the translations, below that of the results


@dataclass(frozen=True)
class Figure:
    """A chart with its file name and caption."""

    name: str
    chart: Chart
    caption: str


@dataclass(frozen=True)
class Outputs:
    """The translations of a domain's test set, to be written to a folder for other tools."""

    domain: str
    pairs: Sequence[SentencePair]
    systems: Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Section:
    """One part of the report."""

    name: str
    title: str
    text: str
    tables: Sequence[tuple[str, Table]] = ()  # a heading, which may be empty, and its table
    figures: Sequence[Figure] = ()
    examples: Sequence[Example] = ()
    outputs: Sequence[Outputs] = ()
    notes: str = ""
    data: Any = field(default_factory=dict)  # the numbers with their settings, for results.json


class Experiment(Protocol):
    """A table or figure of the paper. Cells are computed one by one, so that a run can stop after any of them."""

    name: str

    def cells(self, lab: Lab) -> Cells: ...

    def assemble(self, lab: Lab, results: Mapping[CellKey, Any]) -> Section: ...


def file_name(name: str) -> str:
    """Return a name with only letters, digits, - and _."""
    return "".join(char if char.isalnum() or char in "-_" else "-" for char in name)


def spread(values: Sequence[float]) -> str:
    """Format the mean over seeds, with the standard deviation if there are several."""
    return f"{mean(values):.2f}" + (f" ± {stdev(values):.2f}" if len(values) > 1 else "")


def p_text(p: float) -> str:
    return f"{p:.3f}"


def describe_result(result: Result) -> dict[str, Any]:
    """Return a score with everything it depends on."""
    return {"bleu": result.bleu, "chrf": result.chrf, "signature": result.signature, "settings": result.settings}


def describe_results(results: Mapping[CellKey, Result]) -> dict[str, Any]:
    """Return all scores of a section by the name of their cell."""
    return {" / ".join(map(str, key)): describe_result(result) for key, result in results.items()}


def mean_bleu(results: Sequence[Result]) -> float:
    return mean(result.bleu for result in results)
