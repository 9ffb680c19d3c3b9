"""The gain over the model alone, by how similar a sentence is to the memory."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from nearmt.evaluation.matches import FEW_SENTENCES, MatchBand, match_bands
from nearmt.experiments.paper.domain import Domain
from nearmt.experiments.paper.lab import Lab
from nearmt.experiments.paper.sections import CellKey, Cells, Figure, Section
from nearmt.experiments.paper.systems import adaptive, base, vanilla_best
from nearmt.experiments.report import GroupedBarChart, Table

_COMPARED = ("vanilla", "adaptive")


class Matches:
    """BLEU and chrF by the best match of a source in the memory, in percent."""

    name = "matches"

    def cells(self, lab: Lab) -> Cells:
        cells: Cells = {}
        for domain in lab.domains.values():
            cells["base", domain.name] = partial(base, lab, domain)
            cells["vanilla", domain.name] = partial(vanilla_best, lab, domain)
            cells["adaptive", domain.name] = partial(adaptive, lab, domain, lab.config.max_k)
            cells["matches", domain.name] = partial(_best_matches, domain)
        return cells

    def assemble(self, lab: Lab, results: Mapping[CellKey, Any]) -> Section:
        tables, figures, data = [], [], {}
        for domain in lab.domains.values():
            outputs = {name: results[name, domain.name].outputs for name in ("base", *_COMPARED)}
            bands = match_bands(results["matches", domain.name], outputs, domain.test.references)
            tables.append((domain.name, _table(bands)))
            caption = f"{domain.name}: gain over the model alone, by the best match of a sentence in the memory."
            figures.append(Figure(f"matches-{domain.name.lower()}", _chart(bands), caption))
            data[domain.name] = [band.as_dict() for band in bands]
        return Section(
            self.name,
            "Gain by match percentage",
            "The best match is the similarity of the source to the most similar source in the memory, by edit distance "
            "over words, as CAT tools show it. The sentences of each range are scored as a corpus of their own. "
            f"Adaptive with K = {lab.config.max_k}, first seed.",
            tables,
            figures,
            notes=f"* and pale bars: fewer than {FEW_SENTENCES} sentences, too few for a reliable score.",
            data=data,
        )


def _best_matches(domain: Domain) -> Any:
    return domain.best_matches


def _table(bands: list[MatchBand]) -> Table:
    rows = []
    for band in bands:
        cells = [band.label + (" *" if band.is_small else ""), f"{band.sentences:,}", f"{band.bleu['base']:.2f}"]
        for name in _COMPARED:
            cells += [f"{band.bleu[name]:.2f}", f"{band.gains()[name]:+.2f}"]
        rows.append((*cells, f"{band.gains('chrf')['adaptive']:+.2f}"))
    headings = ("best match", "sentences", "base", "vanilla, tuned", "gain", "adaptive", "gain", "gain in chrF")
    return Table(headings, tuple(rows))


def _chart(bands: list[MatchBand]) -> GroupedBarChart:
    return GroupedBarChart(
        [f"{band.label}\nn = {band.sentences:,}" for band in bands],
        {name: [band.gains()[name] for band in bands] for name in _COMPARED},
        [band.is_small for band in bands],
        "best match in the memory",
        "gain in BLEU",
    )
