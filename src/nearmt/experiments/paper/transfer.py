"""Transfer between domains, the effect of the wrong store, and controls."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from nearmt.experiments.paper.domain import Domain
from nearmt.experiments.paper.lab import Lab, Result
from nearmt.experiments.paper.sections import CellKey, Cells, Section, describe_result, describe_results, p_text
from nearmt.experiments.paper.systems import adaptive, base, shuffled, vanilla_tuned
from nearmt.experiments.report import Table


class Generality:
    """Meta-k trained on one domain and used with another domain's store."""

    name = "generality"

    def cells(self, lab: Lab) -> Cells:
        return {
            (learned.name, used.name): partial(adaptive, lab, learned, lab.config.max_k, store=used, test=used)
            for learned in lab.domains.values()
            for used in lab.domains.values()
        }

    def assemble(self, lab: Lab, results: Mapping[CellKey, Any]) -> Section:
        names = list(lab.domains)
        rows = [(learned, *(f"{results[learned, used].bleu:.2f}" for used in names)) for learned in names]
        own = ("its own", *(f"{results[name, name].bleu:.2f}" for name in names))
        return Section(
            self.name,
            "Generality: Meta-k of one domain on the others",
            f"Rows: the domain that the network (K = {lab.config.max_k}, with its T) was trained on. Columns: the "
            "store and test set it is used with; out-of-domain damping is off for stores of other domains.",
            [("", Table(("Meta-k of", *names), (*rows, own)))],
            data={f"{a} → {b}": describe_result(results[a, b]) for a in names for b in names},
        )


class Robustness:
    """The store of one domain with the test set of another."""

    name = "robustness"

    def cells(self, lab: Lab) -> Cells:
        cells: Cells = {}
        for store in lab.domains.values():
            for test in lab.domains.values():
                if store is test:
                    continue
                cells["base", store.name, test.name] = partial(base, lab, test)
                cells["vanilla", store.name, test.name] = partial(vanilla_tuned, lab, store, lab.config.max_k, test)
                cells["adaptive", store.name, test.name] = partial(adaptive, lab, store, lab.config.max_k, test=test)
        return cells

    def assemble(self, lab: Lab, results: Mapping[CellKey, Any]) -> Section:
        rows = []
        for store in lab.domains:
            for test in lab.domains:
                if store != test:
                    alone, *others = (results[name, store, test] for name in ("base", "vanilla", "adaptive"))
                    changes = [f"{other.bleu:.2f} ({other.bleu - alone.bleu:+.2f})" for other in others]
                    rows.append((f"{store} ⇒ {test}", f"{alone.bleu:.2f}", *changes))
        return Section(
            self.name,
            "Robustness: the wrong store",
            "A ⇒ B is B's test set translated with A's store, vanilla tuned and Meta-k trained on A, "
            f"K = {lab.config.max_k}.",
            [("", Table(("store ⇒ test", "base", "vanilla, tuned", "adaptive"), tuple(rows)))],
            data=describe_results(results),
        )


class Controls:
    """A memory without information, the best fuzzy match without a model, and out-of-domain text."""

    name = "controls"

    def cells(self, lab: Lab) -> Cells:
        cells: Cells = {}
        max_k = lab.config.max_k
        for domain in lab.domains.values():
            cells["base", domain.name] = partial(base, lab, domain)
            cells["adaptive", domain.name] = partial(adaptive, lab, domain, max_k)
            cells["shuffled", domain.name] = partial(shuffled, lab, domain)
            cells["fuzzy", domain.name] = partial(best_fuzzy_matches, lab, domain)
            if lab.general is not None:
                cells["general base", domain.name] = partial(base, lab, lab.general)
                cells["general", domain.name] = partial(adaptive, lab, domain, max_k, test=lab.general)
        return cells

    def assemble(self, lab: Lab, results: Mapping[CellKey, Any]) -> Section:
        rows = []
        headings = ["domain", "base", "adaptive", "values shuffled", "p vs base", "best fuzzy match"]
        if lab.general is not None:
            headings += ["general text, base", "general text, adaptive"]
        for domain in lab.domains.values():
            alone, control = results["base", domain.name], results["shuffled", domain.name]
            row = [domain.name, f"{alone.bleu:.2f}", f"{results['adaptive', domain.name].bleu:.2f}"]
            row += [f"{control.bleu:.2f} ({control.bleu - alone.bleu:+.2f})"]
            row += [p_text(lab.p_value(domain.test, control, alone)), f"{results['fuzzy', domain.name].bleu:.2f}"]
            if lab.general is not None:
                own, with_store = results["general base", domain.name], results["general", domain.name]
                row += [f"{own.bleu:.2f}", f"{with_store.bleu:.2f} ({with_store.bleu - own.bleu:+.2f})"]
            rows.append(tuple(row))
        general = " “General text”: out-of-domain sentences, translated with the domain's store."
        general = general if lab.config.general else ""
        return Section(
            self.name,
            "Controls",
            "“Values shuffled”: the same keys with the tokens in random order and a retrained Meta-k, which should "
            "learn to ignore the neighbours. “Best fuzzy match”: a copy of the target of the memory's most similar "
            f"source (by edit distance over words).{general}",
            [("", Table(tuple(headings), tuple(rows)))],
            data=describe_results(results),
        )


def best_fuzzy_matches(lab: Lab, domain: Domain) -> Result:
    """Copy the target of the most similar source in the memory for each test sentence."""
    targets = [pair.target for pair in domain.snapshot.texts()]
    outputs = [targets[match.row] for match in domain.best_matches]
    return lab.scored_outputs(outputs, domain.test, {"name": "best fuzzy match", "store": domain.key})
