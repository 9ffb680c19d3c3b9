"""The main systems by several metrics. Their translations are written out, so that COMET can be computed elsewhere."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from nearmt.evaluation.comet import read_comet
from nearmt.evaluation.scores import EditRates, signatures
from nearmt.experiments.paper.domain import Domain
from nearmt.experiments.paper.lab import Lab, Result
from nearmt.experiments.paper.sections import (
    OUTPUTS,
    CellKey,
    Cells,
    Outputs,
    Section,
    describe_result,
    file_name,
)
from nearmt.experiments.paper.systems import adaptive, base, uniform, vanilla_best
from nearmt.experiments.paper.workspace import digest
from nearmt.experiments.report import Table

COMET_FILE = "comet.json"
_SYSTEMS: dict[str, Callable[[Lab, Domain], Result]] = {
    "base": base,
    "vanilla": vanilla_best,
    "uniform": lambda lab, domain: uniform(lab, domain, lab.config.max_k),
    "adaptive": lambda lab, domain: adaptive(lab, domain, lab.config.max_k),
}


@dataclass(frozen=True)
class _Measured:
    result: Result
    ter: float


class Metrics:
    """BLEU, chrF and TER, and COMET if its scores are there."""

    name = "metrics"

    def cells(self, lab: Lab) -> Cells:
        return {
            (name, domain.name): partial(_measured, lab, domain, name)
            for domain in lab.domains.values()
            for name in _SYSTEMS
        }

    def assemble(self, lab: Lab, results: Mapping[CellKey, Any]) -> Section:
        outputs = [
            Outputs(
                domain.name, domain.test.pairs, {name: results[name, domain.name].result.outputs for name in _SYSTEMS}
            )
            for domain in lab.domains.values()
        ]
        comet = {found.domain: _comet(lab, found) for found in outputs}
        tables = [(name, _table(results, name, comet[name])) for name in lab.domains]
        data: dict[str, Any] = {
            f"{name} / {domain}": {
                **describe_result(found.result),
                "ter": found.ter,
                "comet": comet[str(domain)].get(str(name)),
            }
            for (name, domain), found in results.items()
        }
        return Section(
            self.name,
            "Other metrics",
            "Vanilla with k, T and share chosen on held-out dev sentences; uniform and adaptive with "
            f"K = {lab.config.max_k}, adaptive's first seed. TER is an error rate: lower is better.",
            tables,
            outputs=outputs,
            notes="COMET: mean of the sentence scores in comet.json, by the model that comet-score ran with."
            if any(comet.values())
            else "",
            data={"signatures": signatures(), **data},
        )


def _table(results: Mapping[CellKey, Any], domain: str, comet: Mapping[str, float]) -> Table:
    rows = []
    for name in _SYSTEMS:
        found = results[name, domain]
        cells = [name, f"{found.result.bleu:.2f}", f"{found.result.chrf:.2f}", f"{found.ter:.2f}"]
        if comet:
            cells.append(f"{comet[name]:.4f}" if name in comet else "–")
        rows.append(tuple(cells))
    return Table(("method", "BLEU", "chrF", "TER", *(["COMET"] if comet else [])), tuple(rows))


def _measured(lab: Lab, domain: Domain, name: str) -> _Measured:
    """Score a system. Only here by TER, which takes longer than the translation of short sentences."""
    result = _SYSTEMS[name](lab, domain)
    key = {"test": domain.test.key, "outputs": digest(result.outputs)}
    return _Measured(
        result, lab.workspace.get("ter", key, lambda: EditRates(domain.test.references).ter(result.outputs))
    )


def _comet(lab: Lab, found: Outputs) -> dict[str, float]:
    path = lab.workspace.folder / OUTPUTS / file_name(found.domain.lower()) / COMET_FILE
    return read_comet(path, found.systems) if path.exists() else {}
