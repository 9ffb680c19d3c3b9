"""Studies of the network: which features it needs, how many sentences, how many hidden units."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from nearmt.experiments.paper.domain import Domain
from nearmt.experiments.paper.lab import Lab, Result
from nearmt.experiments.paper.sections import CellKey, Cells, Figure, Section, describe_result, p_text, spread
from nearmt.experiments.paper.systems import adaptive, base, vanilla_best
from nearmt.experiments.report import LineChart, Table
from nearmt.methods.metak import FEATURES

_FEATURE_SETS = {"both": FEATURES, "without counts": ("distances",), "without distances": ("counts",)}


class Features:
    """The network without one half of what it sees."""

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
            f"K = {lab.config.features_k}. The network sees distances and counts of distinct tokens; here without one "
            "of them. p against both, paired bootstrap of the first seeds.",
            [("", Table(headings, tuple(rows)))],
            data={" / ".join(map(str, key)): describe_result(result) for key, result in results.items()},
        )


class _Sweep:
    """BLEU as one number of the training changes, at the largest K, beside base and tuned vanilla."""

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
            notes=f"K = {lab.config.max_k}; the first seed.",
            data={" / ".join(map(str, key)): describe_result(result) for key, result in results.items()},
        )


class TrainingSentences(_Sweep):
    """How many dev sentences the network needs."""

    name = "training_sentences"
    _title = "Number of training sentences"
    _text = "Meta-k trained on so many dev sentences, selected by the same held-out ones."
    _label = "sentences that Meta-k was trained on"

    def _values(self, lab: Lab, domain: Domain) -> Sequence[int]:
        most = domain.num_training_sentences
        return [*(count for count in lab.config.training_sentences if count < most), most]

    def _score(self, lab: Lab, domain: Domain, value: int) -> Result:
        all_of_it = value == domain.num_training_sentences
        return adaptive(lab, domain, lab.config.max_k, sentences=None if all_of_it else value)


class HiddenSizes(_Sweep):
    """How many hidden units the network needs."""

    name = "hidden_sizes"
    _title = "Hidden size of Meta-k"
    _text = "The network with fewer and with more hidden units; the paper's has 32."
    _label = "hidden units"

    def _values(self, lab: Lab, domain: Domain) -> Sequence[int]:
        return lab.config.hidden_sizes

    def _score(self, lab: Lab, domain: Domain, value: int) -> Result:
        return adaptive(lab, domain, lab.config.max_k, hidden=value)
