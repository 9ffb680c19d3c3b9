"""Ablations of Meta-k: features, number of training sentences, hidden size."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from nearmt.experiments.paper.domain import Domain
from nearmt.experiments.paper.lab import Lab, Result
from nearmt.experiments.paper.sections import CellKey, Cells, Figure, Section, describe_results, p_text, spread
from nearmt.experiments.paper.systems import adaptive, base, vanilla_best
from nearmt.experiments.report import LineChart, Table
from nearmt.methods.metak import FEATURES

_FEATURE_SETS = {"both": FEATURES, "without counts": ("distances",), "without distances": ("counts",)}


class Features:
    """Meta-k with only one kind of features."""

    name = "features"

    def cells(self, lab: Lab) -> Cells:
        return {
            (title, domain.name, seed): partial(adaptive, lab, domain, lab.config.features_k, seed, features=features)
            for domain in lab.domains.values()
            for title, features in _FEATURE_SETS.items()
            for seed in lab.config.seeds
        }

    def assemble(self, lab: Lab, results: Mapping[CellKey, Any]) -> Section:
        rows = []
        for domain in lab.domains.values():
            found = {title: [results[title, domain.name, s] for s in lab.config.seeds] for title in _FEATURE_SETS}
            tests = [p_text(lab.p_value(domain.test, found[title][0], found["both"][0])) for title in list(found)[1:]]
            texts = [spread([result.bleu for result in part]) for part in found.values()]
            rows.append((domain.name, texts[0], texts[1], tests[0], texts[2], tests[1]))
        headings = ("domain", "both", "without counts", "p", "without distances", "p")
        return Section(
            self.name,
            "Features of Meta-k",
            f"K = {lab.config.features_k}. The features are distances and counts of distinct tokens; here one kind "
            "is left out. p against both, from a paired bootstrap with the first seeds.",
            [("", Table(headings, tuple(rows)))],
            data=describe_results(results),
        )


class _Sweep:
    """BLEU as one training setting varies, at the largest K, compared with base and tuned vanilla."""

    name: str
    _title: str
    _text: str
    _label: str

    def _values(self, lab: Lab, domain: Domain) -> Sequence[int]:
        raise NotImplementedError

    def _score(self, lab: Lab, domain: Domain, value: int) -> Result:
        raise NotImplementedError

    def cells(self, lab: Lab) -> Cells:
        cells: Cells = {}
        for domain in lab.domains.values():
            cells["base", domain.name] = partial(base, lab, domain)
            cells["vanilla", domain.name] = partial(vanilla_best, lab, domain)
            for value in self._values(lab, domain):
                cells[domain.name, value] = partial(self._score, lab, domain, value)
        return cells

    def assemble(self, lab: Lab, results: Mapping[CellKey, Any]) -> Section:
        tables, figures = [], []
        for domain in lab.domains.values():
            values = self._values(lab, domain)
            alone, vanilla = results["base", domain.name], results["vanilla", domain.name]
            scores = [results[domain.name, value].bleu for value in values]
            row = (f"{alone.bleu:.2f}", f"{vanilla.bleu:.2f}")
            texts = [f"{score:.2f}" for score in scores]
            headings = ("domain", "base", "vanilla, tuned", *(f"{value:,}" for value in values))
            tables.append(("", Table(headings, ((domain.name, *row, *texts),))))
            series = {
                "adaptive": scores,
                "vanilla": [vanilla.bleu] * len(values),
                "base": [alone.bleu] * len(values),
            }
            chart = LineChart([f"{value:,}" for value in values], series, self._label, "BLEU")
            figures.append(Figure(f"{self.name}-{domain.name.lower()}", chart, f"{domain.name}: {self._label}."))
        return Section(
            self.name,
            self._title,
            self._text,
            tables,
            figures,
            notes=f"K = {lab.config.max_k}, first seed.",
            data=describe_results(results),
        )


class TrainingSentences(_Sweep):
    """BLEU by number of dev sentences to train on."""

    name = "training_sentences"
    _title = "Number of training sentences"
    _text = "Meta-k trained on this number of dev sentences and selected on the same held-out ones."
    _label = "training sentences"

    def _values(self, lab: Lab, domain: Domain) -> Sequence[int]:
        maximum = domain.num_training_sentences
        return [*(count for count in lab.config.training_sentences if count < maximum), maximum]

    def _score(self, lab: Lab, domain: Domain, value: int) -> Result:
        uses_all = value == domain.num_training_sentences
        return adaptive(lab, domain, lab.config.max_k, sentences=None if uses_all else value)


class HiddenSizes(_Sweep):
    """BLEU by number of hidden units."""

    name = "hidden_sizes"
    _title = "Hidden size of Meta-k"
    _text = "Meta-k with fewer and with more hidden units; the paper uses 32."
    _label = "hidden units"

    def _values(self, lab: Lab, domain: Domain) -> Sequence[int]:
        return lab.config.hidden_sizes

    def _score(self, lab: Lab, domain: Domain, value: int) -> Result:
        return adaptive(lab, domain, lab.config.max_k, hidden=value)
