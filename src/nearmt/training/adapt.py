"""Teaching a store how far it may be trusted: retrieve once, train the networks, tune the baselines, commit.

Whole sentences of the dev set are held out. Settings are ranked by likelihood on the cached neighbours; the best
few are then decoded on the held-out sentences. For vanilla the best BLEU wins; for adaptive, whose settings differ by
less than such scores are sure of, the likeliest of those that are as good as the best.
"""

import random
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import torch

from nearmt.datastore import (
    DevSetRecord,
    HeldOut,
    Manifest,
    Snapshot,
    TrainingRecord,
    TunedUniform,
    TunedVanilla,
    now,
    replace_file,
    sha256_of,
    storage_errors,
    write_lock,
)
from nearmt.decoding.decoder import Decoder, DecodingSettings
from nearmt.errors import SettingError, StoreError
from nearmt.evaluation.scores import as_good_as_the_best, bleu
from nearmt.methods.metak import MetaK
from nearmt.methods.mixture import Method, Vanilla
from nearmt.methods.registry import TRAINED, USUALLY_TRAINED, describe_method, retrieval_signature
from nearmt.methods.variant import VariantNetwork
from nearmt.methods.variants import VARIANTS
from nearmt.models import Seq2Seq
from nearmt.progress import Progress, silent
from nearmt.retrieval.recall import measure_recall
from nearmt.retrieval.search import Retriever
from nearmt.training.cache import NeighborCache
from nearmt.training.devset import DevSet, collect_cache
from nearmt.training.fit_damping import fit_damping
from nearmt.training.schedule import TrainingSettings
from nearmt.training.train_metak import TrainedMetaK, train_metak
from nearmt.training.train_variants import TrainedVariant, train_variant
from nearmt.training.tune_vanilla import rank_vanilla, temperatures, vanilla_loss

_DECODED = 5
PAPER_VANILLA = {10.0: Vanilla(8, 10.0, 0.7), 100.0: Vanilla(16, 100.0, 0.8)}
_RECALL_QUERIES = 256
_PATIENCE = 60.0  # seconds to wait for another writer
_PREFIXES = {"adaptive": "metak", **{name: name for name in VARIANTS}}  # of the networks' files
Network = MetaK | VariantNetwork
Trained = TypeVar("Trained", TrainedMetaK, TrainedVariant)


@dataclass(frozen=True)
class AdaptationSettings:
    """What is tried, and by what it is judged."""

    max_k: int = 32
    training: TrainingSettings = field(default_factory=TrainingSettings)
    held_out_share: float = 0.2
    max_decoded: int = 200  # held-out sentences that are translated to choose among settings
    temperature: float | None = None  # fixed, not searched
    paper: bool = False  # raw features, T fixed to 10 (or `temperature`), all of dev for training and selection
    decoding: DecodingSettings = field(default_factory=DecodingSettings)
    seed: int = 1
    methods: tuple[str, ...] = USUALLY_TRAINED  # adaptive always is
    guard: bool = True  # whether the model has more say in sentences far from the memory; never with `paper`

    def __post_init__(self) -> None:
        unknown = [name for name in self.methods if name not in TRAINED]
        if unknown:
            raise SettingError(f"{', '.join(unknown)} cannot be trained: choose from {', '.join(TRAINED)}")


@dataclass(frozen=True)
class Trial:
    """One setting, how likely it made the held-out tokens, and how its translations scored."""

    method: Method
    loss: float
    bleu: float
    outputs: tuple[str, ...] = ()


class Adapter:
    """Trains and tunes one store with one dev set."""

    def __init__(
        self, model: Seq2Seq, retriever: Retriever, settings: AdaptationSettings, progress: Progress = silent
    ) -> None:
        self.model, self.retriever, self.settings, self.progress = model, retriever, settings, progress
        self._decoded = self._total = 0

    def adapt(self, dev: DevSet) -> tuple[dict[str, Network], TrainingRecord]:
        """The networks by method, and the record of the training."""
        began = time.monotonic()
        cache = collect_cache(self.model, self.retriever, dev, self.settings.max_k, self.progress)
        held_out = self._held_out(len(dev))
        train_part, select_part = cache.split(held_out)
        if self.settings.paper:
            train_part = select_part = cache
        trained = self._train(train_part, select_part)
        variants = self._train_variants(train_part, select_part)
        judge = held_out[: self.settings.max_decoded]
        candidates = self._vanilla_candidates(train_part, select_part)
        self._total = len(judge) * (len(candidates) + len(trained))
        adaptive_trials = self.run_trials(dev, judge, [(t.network, t.loss) for t in trained])
        vanilla_trials = self.run_trials(dev, judge, candidates)
        adaptive = likeliest_good_trial(adaptive_trials, [dev.pairs[i].target for i in judge])
        vanilla = best_trial(vanilla_trials)
        assert isinstance(adaptive.method, MetaK)
        assert isinstance(vanilla.method, Vanilla)
        network = adaptive.method
        base_loss = trained[0].base_loss
        queries = torch.randperm(len(cache), generator=torch.Generator().manual_seed(1))[:_RECALL_QUERIES]
        without = [dev.excluded[int(i)] for i in cache.sentence_ids[queries]]
        recall = measure_recall(
            self.retriever, cache.states[queries].float(), without, self.settings.max_k, network.temperature
        )
        networks: dict[str, Network] = {"adaptive": network, **{n: r.network for n, r in variants.items()}}
        losses = {"adaptive": adaptive.loss, **{name: r.loss for name, r in variants.items()}}
        best = "adaptive" if self.settings.paper else min(losses, key=losses.__getitem__)
        variant_losses = {name: variant.loss for name, variant in variants.items()}
        return networks, TrainingRecord(
            method=best,
            metak=network.settings,
            relatives={name: {**r.network.settings, "steps": r.steps} for name, r in variants.items()},
            vanilla=TunedVanilla(vanilla.method.k, vanilla.method.temperature, vanilla.method.knn_share),
            uniform=TunedUniform(network.max_k, network.temperature),
            held_out=HeldOut(
                sentences=len(held_out),
                tokens=len(select_part),
                decoded_sentences=len(judge),
                losses={"base": base_loss, "adaptive": adaptive.loss, "vanilla": vanilla.loss, **variant_losses},
                bleu={"adaptive": adaptive.bleu, "vanilla": vanilla.bleu},
            ),
            tried={
                "adaptive": [_trial_dict(trial) for trial in adaptive_trials],
                "vanilla": [_trial_dict(trial) for trial in vanilla_trials],
            },
            is_selected_on_training_part=self.settings.paper,
            recall=recall,
            trained_on=DevSetRecord(dev.origin, len(dev), len(train_part)),
            settings=_settings_dict(self.settings),
            retrieval=retrieval_signature(self.retriever, self.model.engine),
            trained_at=now(),
            seconds=round(time.monotonic() - began, 1),
        )

    def _held_out(self, num_sentences: int) -> list[int]:
        order = list(range(num_sentences))
        random.Random(self.settings.seed).shuffle(order)
        return order[: max(1, round(num_sentences * self.settings.held_out_share))]

    def _train(self, train_part: NeighborCache, select_part: NeighborCache) -> list[TrainedMetaK]:
        """A network for each temperature worth trying, the likeliest first."""
        settings = self._training_settings()
        if self.settings.paper:
            tried = [self.settings.temperature or 10.0]
        else:
            tried = [self.settings.temperature] if self.settings.temperature else temperatures(train_part)
        trained = train_metak(
            train_part,
            select_part,
            max_k=self.settings.max_k,
            temperatures=tried,
            settings=settings,
            on_check=lambda step, loss: self.progress("training", step, settings.steps),
        )
        trained = [self._damped(candidate, train_part, select_part) for candidate in trained]
        trained.sort(key=lambda candidate: candidate.loss)
        return trained[:_DECODED] + [t for t in trained[_DECODED:] if t.network.temperature in PAPER_VANILLA]

    def _damped(self, trained: Trained, train_part: NeighborCache, select_part: NeighborCache) -> Trained:
        """The same network, with a guard if it is to have one."""
        if self.settings.paper or not self.settings.guard:
            return trained
        fitted = fit_damping(train_part, select_part, trained.network, self.retriever.snapshot)
        trained.network.damping = fitted.damping
        return replace(trained, loss=fitted.loss)

    def _training_settings(self) -> TrainingSettings:
        training = self.settings.training
        return replace(training, raw_features=True) if self.settings.paper else training

    def _train_variants(self, train_part: NeighborCache, select_part: NeighborCache) -> dict[str, TrainedVariant]:
        settings = self._training_settings()
        trained = {
            name: train_variant(
                name,
                train_part,
                select_part,
                self.retriever.snapshot,
                max_k=self.settings.max_k,
                settings=settings,
                on_check=lambda step, loss, name=name: self.progress(f"training {name}", step, settings.steps),  # type: ignore[misc]
            )
            for name in VARIANTS
            if name in self.settings.methods
        }
        return {name: self._damped(variant, train_part, select_part) for name, variant in trained.items()}

    def _vanilla_candidates(self, train_part: NeighborCache, select_part: NeighborCache) -> list[tuple[Method, float]]:
        """The likeliest settings, and the paper's own."""
        fixed = [self.settings.temperature] if self.settings.temperature else None
        ranked = rank_vanilla(train_part, self.settings.max_k, fixed)
        methods = [candidate.method for candidate in ranked[:_DECODED]]
        papers = [replace(method, k=min(method.k, self.settings.max_k)) for method in PAPER_VANILLA.values()]
        methods += [method for method in papers if method not in methods]
        return [(method, vanilla_loss(select_part, method)) for method in methods]

    def run_trials(self, dev: DevSet, judge: list[int], candidates: Sequence[tuple[Method, float]]) -> list[Trial]:
        """Translate the held-out sentences with each candidate."""
        references = [dev.pairs[i].target for i in judge]
        sources, excluded = [dev.sources[i] for i in judge], [dev.excluded[i] for i in judge]
        without = excluded if any(item is not None for item in excluded) else None
        trials = []
        for method, loss in candidates:
            decoder = Decoder(self.model, self.retriever, method, self.settings.decoding)
            offset = self._decoded
            hypotheses = decoder.decode(
                sources,
                without,
                lambda done, at=offset: self.progress("choosing", at + done, self._total),  # type: ignore[misc]
            )
            self._decoded += len(judge)
            outputs = tuple(decoder.texts(hypotheses))
            trials.append(Trial(method, loss, bleu(outputs, references), outputs))
        return trials


def best_trial(trials: Sequence[Trial]) -> Trial:
    """The best BLEU wins; among equals, the likelier setting."""
    return max(trials, key=lambda trial: (round(trial.bleu, 2), -trial.loss))


def likeliest_good_trial(trials: Sequence[Trial], references: Sequence[str]) -> Trial:
    """The likeliest setting among those whose BLEU is within the noise of the best."""
    are_good = as_good_as_the_best([trial.outputs for trial in trials], references)
    good = [trial for trial, is_good in zip(trials, are_good, strict=True) if is_good]
    return min(good, key=lambda trial: trial.loss)


def _trial_dict(trial: Trial) -> dict[str, Any]:
    return {**describe_method(trial.method), "loss": trial.loss, "bleu": trial.bleu}


def _settings_dict(settings: AdaptationSettings) -> dict[str, Any]:
    content = asdict(settings)
    content["training"]["features"] = list(settings.training.features)
    return content


def commit_adaptation(trained_on: Snapshot, networks: Mapping[str, Network], record: TrainingRecord) -> TrainingRecord:
    """Write the networks beside the old ones, then let the manifest name them.

    The old networks' files stay until the next training: a reader may just be opening them.
    """
    folder = trained_on.folder
    with write_lock(folder, wait=_PATIENCE):
        manifest = Manifest.load(folder)
        if manifest.created_at != trained_on.manifest.created_at:
            raise StoreError(f"{folder} was built anew while it was being trained: train again")
        _sweep_networks(folder, manifest.network_files)
        version = manifest.version + 1
        names = {method: f"{_PREFIXES[method]}-{version:06d}.safetensors" for method in networks}
        with storage_errors(folder):
            for method, name in names.items():
                replace_file(folder / name, networks[method].to_bytes())
        files = {name: sha256_of(folder / name) for name in names.values()}
        sentences = int(trained_on.live_sentences.sum())
        record = replace(record, networks=names, files=files, num_sentences=sentences)
        manifest.changed(adaptation=record).save(folder)
        return record


def _sweep_networks(folder: Path, named: Collection[str]) -> None:
    """Take away what earlier trainings left, those that were killed included."""
    for path in (path for prefix in _PREFIXES.values() for path in folder.glob(f"{prefix}-*.safetensors")):
        if path.name not in named:
            path.unlink(missing_ok=True)
