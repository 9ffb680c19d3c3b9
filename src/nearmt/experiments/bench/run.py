"""Runs a benchmark: prepares models and stores, then measures every table with interleaved rounds."""

import json
import platform
from collections.abc import Callable
from dataclasses import asdict
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch

from nearmt.building.builder import BuildSettings
from nearmt.building.compatibility import ModelRequest
from nearmt.cpus import available_cpus, cpu_quota
from nearmt.datastore import TOKENS, Snapshot, build_lock, open_finished, replace_file
from nearmt.experiments.bench.building import build_rates
from nearmt.experiments.bench.busy import busy_processes
from nearmt.experiments.bench.living import living_stores, search_living
from nearmt.experiments.bench.materials import (
    build_costs,
    describe_store,
    timing_model,
    timing_sources,
    timing_store,
)
from nearmt.experiments.bench.own import own_text, whole_job
from nearmt.experiments.bench.parts import TimedDecoder, profile
from nearmt.experiments.bench.scale import scale
from nearmt.experiments.bench.search import growth, search_by_k
from nearmt.experiments.bench.settings import OF_STORE, BenchSettings
from nearmt.experiments.bench.sizes import measure_sizes
from nearmt.experiments.bench.systems import (
    RealQueries,
    Run,
    ctranslate2,
    fixed_length,
    generate,
    original,
    original_retriever,
    others_on_text,
    ours,
)
from nearmt.experiments.bench.timing import Timing, interleaved, summarize
from nearmt.methods.damping import STAGES, Damping
from nearmt.methods.metak import MetaK
from nearmt.methods.mixture import Method, Uniform, Vanilla
from nearmt.methods.robust import Robust
from nearmt.models import Seq2Seq
from nearmt.outputs import claim_folder
from nearmt.progress import Progress, silent
from nearmt.retrieval.recall import measure_recall
from nearmt.retrieval.search import Retriever
from nearmt.translator import Translator

_RECALL_QUERIES = 512
_DAMPING = Damping(1.0, (9.0,) * len(STAGES), (10.0,) * len(STAGES), 4.0)


def run_bench(
    states: Path, out: Path, settings: BenchSettings, model: Path | None = None, progress: Progress = silent
) -> dict[str, Any]:
    """Measure with the states of a store. Models and stores made for it stay in `out`, and later runs reuse them."""
    out = out.absolute()
    source = open_finished(states.absolute())
    claim_folder(out, "bench")
    with build_lock(out / "bench"):
        bench = _Bench(model, source, out, settings, progress)
        with busy_processes(settings.busy):
            results = {name: getattr(bench, name)() for name in settings.tables}
        content = {"about": bench.about(), "tables": results}
        replace_file(out / "bench.json", json.dumps(content, indent=1).encode())
    return content


class _Bench:
    """One method per table. What tables share is created on first use."""

    def __init__(
        self, given: Path | None, source: Snapshot, out: Path, settings: BenchSettings, progress: Progress
    ) -> None:
        self.given, self.source, self.out, self.settings, self.progress = given, source, out, settings, progress
        self.build = BuildSettings(
            key_type=settings.key_type,
            dims=None,
            retrieval=TOKENS,
            index=settings.index,
            num_probes=settings.num_probes,
            reranked=settings.reranked,
            max_k=max(settings.k),
            memory=settings.memory,
        )

    @cached_property
    def folder(self) -> Path:
        return self.given or timing_model(self.out / "model")

    @cached_property
    def model(self) -> Seq2Seq:
        settings = self.settings
        return Seq2Seq.load(self.folder, engine=settings.engine, device=settings.device, dtype=settings.dtype)

    @cached_property
    def _timing(self) -> tuple[Snapshot, torch.Tensor]:
        settings = self.settings
        folder = self.out / f"timing-{self.shape}.store"
        return timing_store(folder, self.model, self.source, settings.entries, self.build, self.progress)

    @property
    def shape(self) -> str:
        return f"{self.model.width}-{self.settings.entries}-{self.settings.key_type}"

    @property
    def snapshot(self) -> Snapshot:
        return self._timing[0]

    @property
    def queries(self) -> torch.Tensor:
        return self._timing[1]

    @cached_property
    def retriever(self) -> RealQueries:
        return RealQueries(self.snapshot, self.queries)

    @cached_property
    def translator(self) -> Translator:
        """The store with its own model; the given one without other tables, in case the model's folder has moved."""
        given = self.given if self._is_of_store_alone else None
        request = ModelRequest(given, device=self.settings.device, dtype=self.settings.dtype)
        method = "auto" if self.source.manifest.networks else "base"  # an untrained store has no method yet
        return Translator(self.source.folder, model=request, method=method)

    @property
    def _is_of_store_alone(self) -> bool:
        return set(self.settings.tables) <= set(OF_STORE)

    def about(self) -> dict[str, Any]:
        if self._is_of_store_alone:
            model, snapshot = self.translator.model, self.source
        else:
            model, snapshot = self.model, self.snapshot
        index = snapshot.manifest.index
        return {
            "settings": {**asdict(self.settings), "text": self.settings.text.name if self.settings.text else None},
            "threads": torch.get_num_threads(),
            "cpus": available_cpus(),
            "cpu_quota": cpu_quota(),
            "machine": platform.machine(),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "engine": model.engine,
            "model": {"width": model.width, "vocabulary": model.vocabulary_size},
            "store": {
                **describe_store(snapshot),
                "index": index.factory if index is not None else None,
                "num_probes": index.num_probes if index is not None else None,
                "reranked": index.reranked if index is not None else None,
                "recall": index.recall.as_dict() if index is not None and index.recall is not None else None,
            },
        }

    def _method(self, name: str, k: int) -> Method:
        if name == "vanilla":
            return Vanilla(k, 10.0, 0.5)
        if name == "uniform":
            return Uniform(k, 10.0)
        network = Robust(k) if name == "robust" else MetaK(k, 10.0)
        network.damping = _DAMPING  # as in a trained network
        return network.eval()

    def _ours(self, method: Method | None) -> Run:
        return ours(self.model, self.retriever, method, self.settings.beam, self.settings.output_length)

    def _sources(self, batch: int) -> list[list[int]]:
        model = self.model
        return timing_sources(batch, self.settings.source_length, model.vocabulary_size, model.eos_token_ids[0])

    def _by_batch(self, runs: dict[str, Run], title: str) -> dict[str, Any]:
        results = {}
        total = len(self.settings.batches) * len(runs) * (self.settings.rounds + 1)
        done = 0

        def report() -> None:
            nonlocal done
            done += 1
            self.progress(title, done, total)

        for batch in self.settings.batches:
            sources = self._sources(batch)
            bound: dict[str, Callable[[], object]] = {name: partial(run, sources) for name, run in runs.items()}
            results[str(batch)] = summarize(interleaved(bound, self.settings.rounds, on_run=report))
        return results

    def methods(self) -> dict[str, Any]:
        """The model alone, and every method at every K."""
        runs = {"base": self._ours(None)}
        for k in self.settings.k:
            for name in ("vanilla", "uniform", "adaptive", "robust"):
                runs[f"{name}, K={k}"] = self._ours(self._method(name, k))
        return self._by_batch(runs, "methods")

    def engines(self) -> dict[str, Any]:
        """The model alone on several engines, and adaptive on ours."""
        beam, length = self.settings.beam, self.settings.output_length
        plain = Seq2Seq.load(self.folder, engine="torch")
        runs = {f"ours, {self.model.engine}": self._ours(None)}
        runs[f"ours, {self.model.engine}, adaptive K={max(self.settings.k)}"] = self._ours(
            self._method("adaptive", max(self.settings.k))
        )
        runs["ours, torch float32"] = ours(plain, None, None, beam, length)
        runs["Hugging Face generate, float32"] = generate(self.folder, beam, length)
        converted = self.out / "ctranslate2"
        other = ctranslate2(self.folder, converted, beam, length, torch.get_num_threads(), self.model.vocabulary_size)
        if other is not None:
            runs["CTranslate2, int8"] = other
        return self._by_batch(runs, "engines")

    def original(self) -> dict[str, Any]:
        """The index and mixture of the original code on our engine."""
        k = max(self.settings.k)
        method = MetaK(k, 10.0).eval()
        total = len(self.snapshot)
        retriever = original_retriever(
            self.snapshot, self.queries, lambda done: self.progress("original index", done, total)
        )
        beam, length = self.settings.beam, self.settings.output_length
        runs = {
            "base": self._ours(None),
            f"adaptive, K={k}": self._ours(method),
            f"original code, K={k}": original(self.model, retriever, method, beam, length),
        }
        return self._by_batch(runs, "original code")

    def parts(self) -> dict[str, Any]:
        """How long each part of adaptive decoding takes."""
        settings, method = self.settings, self._method("adaptive", max(self.settings.k))
        results = {}
        for batch in settings.batches:
            decoding = fixed_length(settings.beam, settings.output_length, batch)
            decoder = TimedDecoder(self.model, self.retriever, method, decoding)
            results[str(batch)] = profile(decoder, self._sources(batch), settings.rounds)
            self.progress("parts", len(results), len(settings.batches))
        return results

    def building(self) -> dict[str, Any]:
        """How many entries a build makes per second."""
        models = {self.model.engine: self.model}
        if self.model.engine != "torch":
            models["torch"] = Seq2Seq.load(self.folder, engine="torch")
        settings = self.settings
        return build_rates(models, settings.source_length, settings.output_length, settings.key_type, settings.rounds)

    def search(self) -> dict[str, Any]:
        """One search, by number of rows and K."""
        rows = [batch * self.settings.beam for batch in self.settings.batches]
        return _nested(search_by_k(self.retriever, rows, self.settings.k, self.settings.rounds))

    def recall(self) -> dict[str, Any]:
        """Recall of the index against exact search, for states that are not in the store."""
        retriever = Retriever(self.snapshot, self.retriever.index)
        states = self.queries[:_RECALL_QUERIES]
        return measure_recall(retriever, states, None, max(self.settings.k)).as_dict()

    def growth(self) -> dict[str, Any]:
        """One search, as the store grows."""
        return growth(self.snapshot, self.queries, max(self.settings.k), self.settings.rounds, self.progress)

    def scale(self) -> dict[str, Any]:
        """What the timing store costs to build, to hold in memory and to search."""
        folder, settings = self.snapshot.folder, self.settings
        return scale(Snapshot.open(folder), self.queries, build_costs(folder), max(settings.k), settings.rounds)

    def own(self) -> dict[str, Any]:
        """The store's own model on real text."""
        settings, translator = self.settings, self.translator
        assert settings.text is not None
        others = others_on_text(translator, self.out)
        return own_text(translator, settings.text, settings.batches, settings.rounds, self.progress, others)

    def job(self) -> dict[str, Any]:
        """The store's own model on a whole file."""
        assert self.settings.text is not None
        return whole_job(self.translator, self.settings.text, self.settings.rounds, self.progress)

    def sizes(self) -> dict[str, Any]:
        """Retrieval by sentences and by tokens, in stores that were grown from the given one to several sizes."""
        return measure_sizes(self.source, lambda: self.translator, self.out, self.settings, self.progress)

    def living(self) -> dict[str, Any]:
        """One search of a store that has changed since it was indexed, and of the same store compacted."""
        folder = self.out / f"living-{self.shape}.store"
        stores = living_stores(folder, self.model, self.source, self.settings.entries, self.build, self.progress)
        rows = [batch * self.settings.beam for batch in self.settings.batches]
        return _nested(search_living(stores, self.queries, rows, max(self.settings.k), self.settings.rounds))


def _nested(timings: dict[str, dict[str, Timing]]) -> dict[str, Any]:
    return {outer: summarize(inner) for outer, inner in timings.items()}
