"""Decoding time, sizes of the datastores, and example sentences."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import partial
from typing import Any, ClassVar

import torch

from nearmt.decoding.decoder import Decoder
from nearmt.experiments.bench.timing import interleaved
from nearmt.experiments.paper.domain import Domain
from nearmt.experiments.paper.lab import Lab
from nearmt.experiments.paper.sections import CellKey, Cells, Figure, Section
from nearmt.experiments.report import BarChart, Example, Table, pick_examples
from nearmt.methods.mixture import Method
from nearmt.translator import Translator

_EXAMPLES = 3


class Timing:
    """Milliseconds per sentence by batch size and K, compared with the model alone."""

    name = "timing"

    def cells(self, lab: Lab) -> Cells:
        domain = next(iter(lab.domains.values()))
        return {(size,): partial(_timed, lab, domain, size) for size in lab.config.timing_batch_sizes}

    def assemble(self, lab: Lab, results: Mapping[CellKey, Any]) -> Section:
        rows = []
        for (size,), times in results.items():
            base = times["base"]
            cells = [f"{times[f'K={k}']:.1f} (×{times[f'K={k}'] / base:.2f})" for k in lab.config.timing_k]
            rows.append((str(size), f"{base:.1f}", *cells))
        headings = ("batch", "base", *(f"adaptive, K={k}" for k in lab.config.timing_k))
        domain = next(iter(lab.domains.values()))
        return Section(
            self.name,
            "Decoding time",
            f"Milliseconds per sentence, median of {lab.config.timing_rounds} interleaved rounds over "
            f"{min(lab.config.timing_sentences, len(domain.test))} test sentences of {domain.name} "
            f"({domain.snapshot.manifest.num_entries:,} entries); "
            f"{torch.get_num_threads()} threads, beam {lab.config.beam}.",
            [("", Table(headings, tuple(rows)))],
            data=_by_first_part(results),
        )


def _timed(lab: Lab, domain: Domain, batch_size: int) -> dict[str, float]:
    sources = domain.test.sources[: lab.config.timing_sentences]
    methods: dict[str, Method | None] = {"base": None}
    methods |= {f"K={k}": lab.network(domain, k) for k in lab.config.timing_k}
    key = {
        "timing": domain.key,
        "test": domain.test.key,
        "sentences": len(sources),
        "batch": batch_size,
        "k": list(lab.config.timing_k),
        "rounds": lab.config.timing_rounds,
        "threads": torch.get_num_threads(),
        "beam": lab.config.beam,
    }

    def measure() -> dict[str, float]:
        decoding = replace(lab.decoding, batch_size=batch_size)
        runs = {
            name: partial(Decoder(lab.model, domain.retriever if method else None, method, decoding).decode, sources)
            for name, method in methods.items()
        }
        timings = interleaved(runs, lab.config.timing_rounds)
        return {name: 1000 * timing.median / len(sources) for name, timing in timings.items()}

    return dict(lab.workspace.get("timing", key, measure))


class Statistics:
    """The stores: their size, the recall of the index, and how many neighbours Meta-k uses."""

    name = "statistics"
    _columns: ClassVar[dict[str, Callable[[dict[str, Any]], str]]] = {
        "pairs": lambda found: f"{found['sentences']:,}",
        "entries": lambda found: f"{found['entries']:,}",
        "keys, MB": lambda found: f"{found['key_bytes'] / 1e6:,.1f}",
        "index, MB": lambda found: f"{found['index_bytes'] / 1e6:,.1f}",
        "index": lambda found: str(found["index"]),
        "recalled mass": lambda found: f"{found['recalled_mass']:.3f}",
        "median d₁": lambda found: f"{found['median_distance']:.3g}",
        "T": lambda found: f"{found['temperature']:.4g}",
    }

    def cells(self, lab: Lab) -> Cells:
        return {(domain.name,): partial(_statistics, lab, domain) for domain in lab.domains.values()}

    def assemble(self, lab: Lab, results: Mapping[CellKey, Any]) -> Section:
        rows, figures = [], []
        for name in lab.domains:
            found = results[(name,)]
            rows.append((name, *(text(found) for text in self._columns.values())))
            chart = BarChart(found["believed"], "neighbours used", "mean probability")
            caption = f"{name}: number of neighbours that Meta-k uses on held-out tokens."
            figures.append(Figure(f"believed-{name.lower()}", chart, caption))
        return Section(
            self.name,
            "Datastores",
            "Keys are 16-bit floats. “Recalled mass” is the share of p_kNN that the index finds, compared with exact "
            "search; d₁ is the squared distance of a dev token's nearest neighbour.",
            [("", Table(("domain", *self._columns), tuple(rows)))],
            figures,
            data=_by_first_part(results),
        )


def _by_first_part(results: Mapping[CellKey, Any]) -> dict[str, Any]:
    return {str(key[0]): value for key, value in results.items()}


def _statistics(lab: Lab, domain: Domain) -> dict[str, Any]:
    network = lab.network(domain, lab.config.max_k)
    key = {"store": domain.key, "dev": domain.dev_key, "network": network.settings, "max_k": lab.config.max_k}
    found = lab.workspace.find("statistics", key)
    if found is None:
        manifest = domain.snapshot.manifest
        index = manifest.index
        assert index is not None
        _, held_out = domain.parts(lab.config.max_k)
        believed = network.weigh(held_out.retrieved(domain.snapshot))
        shares = believed.size_probabilities.mean(dim=0).tolist()
        found = {
            "sentences": manifest.num_sentences,
            "entries": manifest.num_entries,
            "key_bytes": domain.snapshot.keys.nbytes,
            "index_bytes": index.bytes or 0,
            "index": index.factory,
            "num_probes": index.num_probes,
            "reranked": index.reranked,
            "recalled_mass": index.recall.mass if index.recall is not None else 1.0,
            "median_distance": domain.cache.median_distance(0),
            "temperature": network.temperature,
            "believed": {str(size): share for size, share in zip(believed.sizes, shares, strict=True)},
        }
        lab.workspace.keep("statistics", key, found)
    return dict(found)


class CaseStudy:
    """The sentences that gained most, with the words that the neighbours changed."""

    name = "case_study"

    def cells(self, lab: Lab) -> Cells:
        return {(domain.name,): partial(_examples, lab, domain) for domain in lab.domains.values()}

    def assemble(self, lab: Lab, results: Mapping[CellKey, Any]) -> Section:
        examples = [Example.from_dict(content) for found in results.values() for content in found]
        return Section(
            self.name,
            "Case study",
            "The test sentences of each domain that gained most by chrF: the best cases, not typical ones. "
            "Below each: words that the model's own output lacks, with the segment of the largest weight.",
            examples=examples,
            data=_by_first_part(results),
        )


def _examples(lab: Lab, domain: Domain) -> list[dict[str, Any]]:
    network = lab.network(domain, lab.config.max_k)
    base, adaptive = lab.score(None, domain.test, None), lab.score(domain, domain.test, network)
    key = {"adaptive": adaptive.settings, "examples": _EXAMPLES}

    def pick() -> list[dict[str, Any]]:
        translator = Translator(domain.store.folder, model=lab.model, method=network, decoding=lab.decoding)
        outputs = {"base": base.outputs, "adaptive": adaptive.outputs}
        return [asdict(example) for example in pick_examples(translator, domain.test.pairs, outputs, _EXAMPLES)]

    return list(lab.workspace.get("examples", key, pick))
