"""What it costs and what it looks like: decoding time, the stores' sizes, sentences that changed."""

import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import partial
from statistics import median
from typing import Any

import torch

from nearmt.decoding.decoder import Decoder
from nearmt.experiments.paper.domain import Domain
from nearmt.experiments.paper.lab import Lab
from nearmt.experiments.paper.sections import CellKey, Cells, Figure, Section
from nearmt.experiments.report import BarChart, Example, Table, pick_examples
from nearmt.methods.mixture import Method
from nearmt.translator import Translator

_EXAMPLES = 3


class Timing:
    """Milliseconds a sentence by batch and K, beside the model alone; rounds are interleaved."""

    name = "timing"

    def cells(self, lab: Lab) -> Cells:
        domain = next(iter(lab.domains.values()))
        return {(size,): partial(_time, lab, domain, size) for size in lab.config.timing_batch_sizes}

    def assemble(self, lab: Lab, results: Mapping[CellKey, Any]) -> Section:
        rows = []
        for size in lab.config.timing_batch_sizes:
            found = results[(size,)]
            base = found["base"]
            cells = [f"{found[f'K={k}']:.1f} (×{found[f'K={k}'] / base:.2f})" for k in lab.config.timing_k]
            rows.append((str(size), f"{base:.1f}", *cells))
        headings = ("batch", "base", *(f"adaptive, K={k}" for k in lab.config.timing_k))
        domain = next(iter(lab.domains.values()))
        entries = domain.snapshot.manifest.num_entries
        return Section(
            self.name,
            "Decoding time",
            f"Milliseconds a sentence, median of {lab.config.timing_rounds} interleaved rounds over "
            f"{min(lab.config.timing_sentences, len(domain.test))} test sentences of {domain.name} "
            f"({entries:,} entries); "
            f"{torch.get_num_threads()} threads, beam {lab.config.beam}.",
            [("", Table(headings, tuple(rows)))],
            data={str(key[0]): value for key, value in results.items()},
        )


def _time(lab: Lab, domain: Domain, batch_size: int) -> dict[str, float]:
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
    found = lab.workspace.find("timing", key)
    if found is None:
        decoding = replace(lab.decoding, batch_size=batch_size)
        decoders = {
            name: Decoder(lab.model, domain.retriever if method else None, method, decoding)
            for name, method in methods.items()
        }
        seconds: dict[str, list[float]] = {name: [] for name in decoders}
        for decoder in decoders.values():
            decoder.decode(sources[:batch_size])  # the first use of anything is slow
        for _ in range(lab.config.timing_rounds):
            for name, decoder in decoders.items():
                began = time.perf_counter()
                decoder.decode(sources)
                seconds[name].append(time.perf_counter() - began)
        per_sentence = {name: 1000 * median(times) / len(sources) for name, times in seconds.items()}
        found = lab.workspace.keep("timing", key, per_sentence)
    return dict(found)


class Statistics:
    """The stores: sizes, what the index misses, and how many neighbours Meta-k believes."""

    name = "statistics"

    def cells(self, lab: Lab) -> Cells:
        return {(domain.name,): partial(_statistics, lab, domain) for domain in lab.domains.values()}

    def assemble(self, lab: Lab, results: Mapping[CellKey, Any]) -> Section:
        rows, figures = [], []
        for name in lab.domains:
            found = results[(name,)]
            rows.append(
                (
                    name,
                    f"{found['sentences']:,}",
                    f"{found['entries']:,}",
                    f"{found['key_bytes'] / 1e6:,.1f}",
                    f"{found['index_bytes'] / 1e6:,.1f}",
                    found["index"],
                    f"{found['recalled_mass']:.3f}",
                    f"{found['median_distance']:.3g}",
                    f"{found['temperature']:.4g}",
                )
            )
            chart = BarChart(found["believed"], "neighbours believed", "mean probability")
            figures.append(
                Figure(f"believed-{name.lower()}", chart, f"{name}: what Meta-k decides on held-out tokens.")
            )
        headings = ("domain", "pairs", "entries", "keys, MB", "index, MB", "index", "recalled mass", "median d₁", "T")
        return Section(
            self.name,
            "Datastores",
            "Keys are 16-bit floats. “Recalled mass” is the share of p_kNN's weight that the index finds, measured "
            "against exact search; d₁ is the squared distance of the nearest neighbour of a dev token.",
            [("", Table(headings, tuple(rows)))],
            figures,
            data={str(key[0]): value for key, value in results.items()},
        )


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
    """Sentences that gained most, with the words that the neighbours changed."""

    name = "case_study"

    def cells(self, lab: Lab) -> Cells:
        return {(domain.name,): partial(_examples, lab, domain) for domain in lab.domains.values()}

    def assemble(self, lab: Lab, results: Mapping[CellKey, Any]) -> Section:
        examples = [Example.from_dict(content) for found in results.values() for content in found]
        return Section(
            self.name,
            "Case study",
            "The test sentences of each domain that gained most by chrF, so the best cases and not typical ones. "
            "Marked: words that the model alone would not have written, with the segment that counted most.",
            examples=examples,
            data={str(key[0]): value for key, value in results.items()},
        )


def _examples(lab: Lab, domain: Domain) -> list[dict[str, Any]]:
    network = lab.network(domain, lab.config.max_k)
    base, adaptive = lab.score(None, domain.test, None), lab.score(domain, domain.test, network)
    key = {"adaptive": adaptive.settings, "examples": _EXAMPLES}
    found = lab.workspace.find("examples", key)
    if found is None:
        translator = Translator(domain.store.folder, model=lab.model, method=network, decoding=lab.decoding)
        outputs = {"base": base.outputs, "adaptive": adaptive.outputs}
        examples = pick_examples(translator, domain.test.pairs, outputs, _EXAMPLES)
        found = lab.workspace.keep("examples", key, [asdict(example) for example in examples])
    return list(found)
