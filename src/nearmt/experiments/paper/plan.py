"""What a run will take: disk, memory and hours, estimated from the data and a short timing of the model."""

import os
import random
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import signature
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from typing import Any

from nearmt.building.extract import extract_entries, fits_model
from nearmt.corpus import DropCounts, SentencePair, read_pairs
from nearmt.decoding.decoder import Decoder
from nearmt.errors import OutputError
from nearmt.experiments.paper import studies, systems
from nearmt.experiments.paper.domain import Domain
from nearmt.experiments.paper.lab import Lab
from nearmt.experiments.paper.sections import Experiment
from nearmt.experiments.paper.studies import TrainingSentences
from nearmt.retrieval.index.faiss_index import choose_factory
from nearmt.retrieval.index.mapped import bytes_in_memory

_SAMPLED_PAIRS = 256  # of each memory, to count tokens and to time the model
_BATCH_TOKENS = 4096
_ENTRY_BYTES = 20  # besides the key: token, probability, position, sentence index
_PAIR_BYTES = 100  # besides the texts: offsets, hashes and units
_NEIGHBOR_BYTES = 48  # of a cached neighbour of a dev token, with the copies that training makes
_INDEX_SECONDS = 3e-8  # for an entry and a dimension of its key
_RETRIEVAL_COST = 1.3  # translation with a memory, relative to the model alone
_TRAINING_SECONDS = 0.004  # for a step of a network
_TRIED_TEMPERATURES = 8
_TRANSLATING = (systems.__name__, studies.__name__)  # modules whose cells translate a test set
_PAPERS_SETTINGS = 4  # of vanilla, which are judged besides the likeliest


@dataclass(frozen=True)
class DomainPlan:
    """The size of a domain's data and of its store, before duplicates are dropped."""

    name: str
    pairs: int
    entries: int
    dev_sentences: int
    test_sentences: int
    store_bytes: int
    index_bytes: int
    is_built: bool


@dataclass(frozen=True)
class Plan:
    """The costs of what is still to be done."""

    domains: tuple[DomainPlan, ...]
    disk: int  # bytes of the stores that are missing
    free_disk: int
    memory: int
    machine_memory: int | None  # None if the system does not tell
    seconds: dict[str, float]  # building, choosing (settings), translating
    folder: Path

    def check(self) -> None:
        """Refuse a run whose stores do not fit on the disk."""
        lacking = self.disk - self.free_disk
        if lacking > 0:
            raise OutputError(
                f"the stores need {self.disk / 1e9:.1f} GB, but the disk of {self.folder} has "
                f"{self.free_disk / 1e9:.1f} GB free: {lacking / 1e9:.1f} GB are missing"
            )


@dataclass(frozen=True)
class _Sample:
    """Some pairs of a memory in the model's tokens, and the size of the whole memory."""

    pairs: list[SentencePair]
    sources: list[list[int]]
    targets: list[list[int]]
    total: int
    text_bytes: int

    @property
    def entries(self) -> int:
        return round(self.total * sum(map(len, self.targets)) / max(len(self.targets), 1))


def make_plan(lab: Lab, experiments: Sequence[Experiment]) -> Plan | None:
    """Estimate what the run takes; None if an earlier run has finished the same.

    Memories without a store are read once, and the model is timed for some seconds.
    """
    domains = list(lab.domains.values())
    missing = [domain for domain in domains if not domain.is_built]
    if not missing and lab.workspace.find("finished", _described(lab)):
        return None
    translated = list(_translated(lab, experiments))
    samples = {domain.name: _sample(lab, domain) for domain in missing}
    plans = tuple(_domain_plan(lab, domain, samples.get(domain.name)) for domain in domains)
    seconds = _seconds(lab, plans, list(samples.values()), translated)
    begun = sum(_bytes_of(domain.partial_folder) for domain in missing)
    return Plan(
        plans,
        disk=max(0, sum(plan.store_bytes for plan in plans if not plan.is_built) - begun),
        free_disk=shutil.disk_usage(lab.workspace.folder).free,
        memory=_memory(lab, plans),
        machine_memory=_machine_memory(),
        seconds=seconds,
        folder=lab.workspace.folder,
    )


def note_finished(lab: Lab) -> None:
    """Remember that everything has been computed."""
    lab.workspace.keep("finished", _described(lab), True)


def _described(lab: Lab) -> dict[str, Any]:
    domains = [[domain.key, domain.dev_key, domain.test.key] for domain in lab.domains.values()]
    return {"config": lab.config.as_dict(), "domains": domains, "general": lab.general.key if lab.general else None}


def _sample(lab: Lab, domain: Domain) -> _Sample:
    """Count the pairs of a memory and keep some of them, each with the same probability."""
    chooser, chosen, total, text_bytes = random.Random(1), list[SentencePair](), 0, 0
    languages = domain.languages
    pairs = read_pairs(domain.memory, source_lang=languages.source, target_lang=languages.target, drops=DropCounts())
    for pair in pairs:
        total += 1
        text_bytes += len(pair.source.encode("utf-8", "replace")) + len(pair.target.encode("utf-8", "replace"))
        if len(chosen) < _SAMPLED_PAIRS:
            chosen.append(pair)
        elif (place := chooser.randrange(total)) < _SAMPLED_PAIRS:
            chosen[place] = pair
        if total % 10_000 == 0:
            lab.progress(f"{domain.name}: reading", total, None)
    sources = lab.model.tokenize_sources([pair.source for pair in chosen])
    targets = lab.model.tokenize_targets([pair.target for pair in chosen])
    rows = [row for row in range(len(chosen)) if fits_model(lab.model, sources[row], targets[row])]
    return _Sample(
        [chosen[row] for row in rows], [sources[row] for row in rows], [targets[row] for row in rows], total, text_bytes
    )


def _domain_plan(lab: Lab, domain: Domain, sample: _Sample | None) -> DomainPlan:
    sizes = (domain.num_dev_pairs, len(domain.test))
    if sample is None:
        manifest = domain.snapshot.manifest
        index = manifest.index.bytes or 0 if manifest.index is not None else 0
        return DomainPlan(domain.name, manifest.num_sentences, manifest.num_entries, *sizes, 0, index, True)
    width, entries = lab.model.width, sample.entries
    index = bytes_in_memory(lab.config.index or choose_factory(entries, width), width, entries) // 2
    stored = entries * (2 * width + _ENTRY_BYTES) + sample.total * _PAIR_BYTES + sample.text_bytes
    return DomainPlan(domain.name, sample.total, entries, *sizes, stored + index, index, False)


def _memory(lab: Lab, plans: Sequence[DomainPlan]) -> int:
    """The keys are memory-mapped; the model, and indexes and cached neighbours of all domains are in memory.

    The model is loaded and was timed, so the memory that the process has taken so far counts for it.
    """
    largest = getrusage(RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    caches = _dev_tokens(plans) * (lab.config.max_k * _NEIGHBOR_BYTES + 4 * lab.model.width)
    indexes = sum(plan.index_bytes for plan in plans) + max(plan.index_bytes for plan in plans)
    return int(largest + caches + indexes)


def _dev_tokens(plans: Sequence[DomainPlan]) -> float:
    return sum(plan.dev_sentences * plan.entries / max(plan.pairs, 1) for plan in plans)


def _machine_memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None


def _seconds(
    lab: Lab, plans: Sequence[DomainPlan], samples: Sequence[_Sample], translated: Sequence[int]
) -> dict[str, float]:
    config = lab.config
    for_entry = _time_extraction(lab, samples) if samples else 0.0
    for_sentence = _time_translation(lab) * _RETRIEVAL_COST
    entries = sum(plan.entries for plan in plans if not plan.is_built)
    judged = len(config.k) * (config.judged_settings + _PAPERS_SETTINGS) + config.judged_settings
    networks = _TRIED_TEMPERATURES + len(config.k) + len(config.seeds) * (1 + len(config.relatives))
    choosing = judged * config.judged_sentences * for_sentence + networks * config.steps * _TRAINING_SECONDS
    chosen = len(plans) * (len(config.k) + 1)  # vanilla's settings for each K, and adaptive's T
    return {
        "building": entries * (for_entry + lab.model.width * _INDEX_SECONDS),
        "choosing": len(plans) * choosing * _remaining(lab, ("vanilla", "temperature"), chosen),
        "translating": sum(translated) * for_sentence * _remaining(lab, ("score",), len(translated)),
    }


def _remaining(lab: Lab, kinds: Sequence[str], total: int) -> float:
    """The share of results that an earlier run has not left."""
    done = sum(lab.workspace.count(kind) for kind in kinds)
    return max(0.0, 1 - done / total) if total else 0.0


def _translated(lab: Lab, experiments: Sequence[Experiment]) -> Iterator[int]:
    """The number of sentences of each test set that is translated; what several sections need counts once."""
    seen = set()
    for experiment in experiments:
        if isinstance(experiment, TrainingSentences):  # its cells depend on the stores, which may not be there yet
            yield from (len(domain.test) for domain in lab.domains.values() for _ in lab.config.training_sentences)
            continue
        for compute in experiment.cells(lab).values():
            if not isinstance(compute, partial) or compute.func.__module__ not in _TRANSLATING:
                continue
            if compute.func is systems.vanilla_best:
                continue  # it is one of those that are tuned for each K
            bound = signature(compute.func).bind(*compute.args, **compute.keywords)
            bound.apply_defaults()
            given = bound.arguments
            given["seed"] = given.get("seed") or lab.config.seeds[0]
            test = given["test"] = given.get("test") or given["domain"]
            if repr((compute.func, given)) not in seen:
                seen.add(repr((compute.func, given)))
                yield len(test.test if isinstance(test, Domain) else test)


def _time_extraction(lab: Lab, samples: Sequence[_Sample]) -> float:
    """Seconds per entry of a store."""
    share = slice(_SAMPLED_PAIRS // len(samples))
    pairs = [pair for sample in samples for pair in sample.pairs[share]]
    sources = [source for sample in samples for source in sample.sources[share]]
    targets = [target for sample in samples for target in sample.targets[share]]
    run = partial(extract_entries, lab.model, key_type="float16", batch_tokens=_BATCH_TOKENS)
    run(pairs[:8], sources[:8], targets[:8])
    return _timed(lambda: run(pairs, sources, targets)) / max(sum(map(len, targets)), 1)


def _time_translation(lab: Lab) -> float:
    """Seconds per sentence with the model alone, over sentences of all domains."""
    tests = [domain.test for domain in lab.domains.values()]
    share = -(-lab.config.batch_size // len(tests))
    sources = [source for test in tests for source in test.sources[: len(test) : max(1, len(test) // share)][:share]]
    decoder = Decoder(lab.model, None, None, lab.decoding)
    decoder.decode(sources[:2])
    return _timed(lambda: decoder.decode(sources)) / len(sources)


def _timed(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def _bytes_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
