"""The main table, K × {vanilla, uniform, adaptive} × domain, and the variants on the same stores."""

from collections.abc import Mapping
from functools import partial
from statistics import mean, pvariance
from typing import Any

from nearmt.experiments.paper.domain import Domain
from nearmt.experiments.paper.lab import Lab, Result
from nearmt.experiments.paper.sections import (
    SIGNIFICANT,
    CellKey,
    Cells,
    Figure,
    Section,
    describe_results,
    mean_bleu,
    p_text,
    spread,
)
from nearmt.experiments.paper.systems import adaptive, base, uniform, vanilla_fixed, vanilla_tuned, variant
from nearmt.experiments.report import LineChart, Table

_VARIANCE_FROM = 4  # the variance is taken over K ≥ 4, as in the paper
_ROWS = (
    ("fixed", "vanilla, paper's T and share"),
    ("tuned", "vanilla, tuned"),
    ("uniform", "uniform"),
    ("adaptive", "adaptive"),
)


class MainTable:
    """The paper's main table, with vanilla in the paper's setting and tuned for every K."""

    name = "main"

    def cells(self, lab: Lab) -> Cells:
        cells: Cells = {}
        for domain in lab.domains.values():
            cells["base", domain.name] = partial(base, lab, domain)
            for k in lab.config.k:
                cells["fixed", domain.name, k] = partial(vanilla_fixed, lab, domain, k)
                cells["tuned", domain.name, k] = partial(vanilla_tuned, lab, domain, k)
                cells["uniform", domain.name, k] = partial(uniform, lab, domain, k)
                for seed in _seeds(lab, k):
                    cells["adaptive", domain.name, k, seed] = partial(adaptive, lab, domain, k, seed)
        return cells

    def assemble(self, lab: Lab, results: Mapping[CellKey, Any]) -> Section:
        tables = [("", self._summary(lab, results))]
        figures = []
        for domain in lab.domains.values():
            table, series = self._by_k(lab, domain, results)
            tables.append((domain.name, table))
            figures.append(
                Figure(
                    f"main-{domain.name.lower()}",
                    LineChart([str(k) for k in lab.config.k], series, "K: neighbours retrieved", "BLEU"),
                    f"{domain.name}: BLEU by K.",
                )
            )
        seeds = f"Adaptive at K = {lab.config.max_k}: {_mean_text(lab)}"
        return Section(
            self.name,
            "Main table: BLEU by K",
            "The first table shows vanilla with k, T and share chosen on held-out dev sentences, and uniform and "
            f"adaptive with K = {lab.config.max_k}; p is from a paired bootstrap with adaptive's first seed.",
            tables,
            figures,
            notes=f"σ² is the variance over K ≥ {_VARIANCE_FROM}, divided by n. {seeds}. "
            f"* better than tuned vanilla at the same K, † better than base, p < {SIGNIFICANT}.",
            data=describe_results(results),
        )

    def _summary(self, lab: Lab, results: Mapping[CellKey, Any]) -> Table:
        rows = []
        for domain in lab.domains.values():
            alone, vanilla = results["base", domain.name], results["tuned", domain.name, lab.best_vanilla(domain).k]
            seeds = [results["adaptive", domain.name, lab.config.max_k, seed] for seed in lab.config.seeds]
            rows.append(
                (
                    domain.name,
                    f"{alone.bleu:.2f}",
                    f"{vanilla.bleu:.2f}",
                    f"{results['uniform', domain.name, lab.config.max_k].bleu:.2f}",
                    spread([result.bleu for result in seeds]),
                    f"{mean_bleu(seeds) - alone.bleu:+.2f}",
                    p_text(lab.p_value(domain.test, seeds[0], alone)),
                    p_text(lab.p_value(domain.test, seeds[0], vanilla)),
                )
            )
        headings = ("domain", "base", "vanilla, tuned", "uniform", "adaptive", "gain", "p vs base", "p vs vanilla")
        return Table(headings, tuple(rows))

    def _by_k(self, lab: Lab, domain: Domain, results: Mapping[CellKey, Any]) -> tuple[Table, dict[str, list[float]]]:
        alone: Result = results["base", domain.name]
        sizes = lab.config.k
        rows: list[tuple[str, ...]] = [("base", *[f"{alone.bleu:.2f}"] * len(sizes), "")]
        series = {}
        for name, title in _ROWS:
            scores, texts = [], []
            for k in sizes:
                if name == "adaptive":
                    found = [results[name, domain.name, k, seed] for seed in _seeds(lab, k)]
                    scores.append(mean(result.bleu for result in found))
                    tuned = results["tuned", domain.name, k]
                    marks = _mark(lab, domain, found[0], tuned, "*") + _mark(lab, domain, found[0], alone, "†")
                    texts.append(spread([result.bleu for result in found]) + marks)
                else:
                    scores.append(results[name, domain.name, k].bleu)
                    texts.append(f"{scores[-1]:.2f}")
            stable = [score for k, score in zip(sizes, scores, strict=True) if k >= _VARIANCE_FROM]
            rows.append((title, *texts, f"{pvariance(stable):.2f}" if stable else "–"))
            series[{"fixed": "vanilla (paper)", "tuned": "vanilla (tuned)"}.get(name, name)] = scores
        return Table(("method", *(f"K={k}" for k in sizes), "σ²"), tuple(rows)), series


def _mean_text(lab: Lab) -> str:
    count = len(lab.config.seeds)
    return f"mean ± standard deviation over {count} seeds" if count > 1 else "one seed"


def _seeds(lab: Lab, k: int) -> tuple[int, ...]:
    """Return all seeds at the largest K, and only the first at the others."""
    return lab.config.seeds if k == lab.config.max_k else lab.config.seeds[:1]


def _mark(lab: Lab, domain: Domain, system: Result, baseline: Result, mark: str) -> str:
    is_better = system.bleu > baseline.bleu and lab.p_value(domain.test, system, baseline) < SIGNIFICANT
    return mark if is_better else ""


class Variants:
    """Published variants of kNN-MT, compared with the paper's network."""

    name = "relatives"

    def cells(self, lab: Lab) -> Cells:
        cells: Cells = {}
        for domain in lab.domains.values():
            cells["base", domain.name] = partial(base, lab, domain)
            for seed in lab.config.seeds:
                cells["adaptive", domain.name, seed] = partial(adaptive, lab, domain, lab.config.max_k, seed)
                for name in lab.config.relatives:
                    cells[name, domain.name, seed] = partial(variant, lab, domain, name, seed)
        return cells

    def assemble(self, lab: Lab, results: Mapping[CellKey, Any]) -> Section:
        rows = []
        for domain in lab.domains.values():
            own = results["adaptive", domain.name, lab.config.seeds[0]]
            cells = [domain.name, f"{results['base', domain.name].bleu:.2f}"]
            for name in ("adaptive", *lab.config.relatives):
                found = [results[name, domain.name, seed] for seed in lab.config.seeds]
                cells.append(spread([result.bleu for result in found]))
                if name != "adaptive":
                    cells.append(p_text(lab.p_value(domain.test, found[0], own)))
            rows.append(tuple(cells))
        headings = ["domain", "base", "adaptive"]
        for name in lab.config.relatives:
            headings += [name, f"p, {name} vs adaptive"]
        return Section(
            self.name,
            "Variants on the same store",
            "Kernel-smoothed (KSTER) and Robust kNN-MT, trained on the same cached neighbours with the same schedule, "
            f"K = {lab.config.max_k}.",
            [("", Table(tuple(headings), tuple(rows)))],
            notes=f"{_mean_text(lab).capitalize()}; p from a paired bootstrap with the first seeds.",
            data=describe_results(results),
        )
