"""Training the networks of a store and tuning its baselines, on a dev set.

Blocks of adjacent sentences of the dev set are held out. Settings are ranked by likelihood on the cached neighbours,
and the best two are used to translate held-out sentences. For vanilla, the better BLEU wins. The settings of adaptive
differ by less than the error of such scores, so the likeliest of those close to the best BLEU wins.
"""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

import torch

from nearmt.datastore import (
    RETRIEVALS,
    DevSetRecord,
    HeldOut,
    Recall,
    TrainingRecord,
    TunedUniform,
    TunedVanilla,
    now,
)
from nearmt.decoding.decoder import Decoder, DecodingSettings
from nearmt.errors import SettingError
from nearmt.evaluation.held_out import HeldOutSet, translate_held_out
from nearmt.evaluation.scores import close_to_best
from nearmt.methods.metak import MetaK
from nearmt.methods.mixture import Method, Vanilla
from nearmt.methods.network import Network
from nearmt.methods.registry import TRAINED, USUALLY_TRAINED, VARIANTS, describe_method, retrieval_signature
from nearmt.models import Seq2Seq
from nearmt.progress import Progress, silent
from nearmt.retrieval.modes import StoreRetriever
from nearmt.retrieval.recall import compare_with_exact
from nearmt.training.cache import NeighborCache
from nearmt.training.devset import DevSet, collect_cache, evenly, held_out_blocks
from nearmt.training.fit_damping import fit_damping
from nearmt.training.schedule import TrainingSettings
from nearmt.training.train_metak import TrainedMetaK, train_metak
from nearmt.training.train_variants import TrainedVariant, train_variant
from nearmt.training.tune_vanilla import rank_vanilla, temperatures, vanilla_loss

PAPER_VANILLA = {10.0: Vanilla(8, 10.0, 0.7), 100.0: Vanilla(16, 100.0, 0.8)}
_RECALL_QUERIES = 256
Trained = TypeVar("Trained", TrainedMetaK, TrainedVariant)


@dataclass(frozen=True)
class AdaptationSettings:
    """What to train and how to select the best settings."""

    max_k: int = 32
    training: TrainingSettings = field(default_factory=TrainingSettings)
    held_out_share: float = 0.2
    max_trials: int = 2  # the likeliest settings of each method, which compete by translating held-out sentences
    max_decoded: int = 200  # held-out sentences that each of them translates
    temperature: float | None = None  # if given, no other is tried
    paper: bool = False  # raw features, T fixed to 10 (or `temperature`), all of dev for training and selection
    decoding: DecodingSettings = field(default_factory=DecodingSettings)
    seed: int = 1
    methods: tuple[str, ...] = USUALLY_TRAINED  # adaptive is always trained
    guard: bool = True  # out-of-domain damping; always off with `paper`
    retrieval: str | None = None  # where to search; None lets the store's indexes and the held-out sentences decide

    def __post_init__(self) -> None:
        if self.retrieval not in (None, *RETRIEVALS):
            raise SettingError(f"`retrieval` must be one of {', '.join(RETRIEVALS)}, not {self.retrieval}")
        unknown = [name for name in self.methods if name not in TRAINED]
        if unknown:
            raise SettingError(f"{', '.join(unknown)} cannot be trained: choose from {', '.join(TRAINED)}")


@dataclass(frozen=True)
class Trial:
    """One setting, its loss on the held-out tokens, and its translations of held-out sentences with their BLEU."""

    method: Method
    loss: float
    bleu: float
    outputs: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return {**describe_method(self.method), "loss": self.loss, "bleu": self.bleu}


class _Split(NamedTuple):
    """The cached dev tokens, split by sentences."""

    training: NeighborCache
    held_out: NeighborCache


class _Tried(NamedTuple):
    """Trials of one method, and the best of them."""

    trials: Sequence[Trial]
    best: Trial


class TrainedStore(NamedTuple):
    """What was trained, and the translations of the held-out sentences by Meta-k."""

    networks: dict[str, Network]
    record: TrainingRecord
    outputs: Sequence[str]
    references: Sequence[str]


class StoreTrainer:
    """Trains the networks of one store on a dev set."""

    def __init__(
        self, model: Seq2Seq, retriever: StoreRetriever, settings: AdaptationSettings, progress: Progress = silent
    ) -> None:
        self.model, self.retriever, self.settings, self.progress = model, retriever, settings, progress

    def train(self, dev: DevSet) -> tuple[dict[str, Network], TrainingRecord]:
        """The networks by method name, and the record of the training."""
        trained = self.train_and_decode(dev)
        return trained.networks, trained.record

    def train_and_decode(self, dev: DevSet) -> TrainedStore:
        """Train, and keep the translations that settings were chosen by."""
        began = time.monotonic()
        cache = collect_cache(self.model, self.retriever, dev, self.settings.max_k, self.progress)
        held_out = held_out_blocks(len(dev), self.settings.held_out_share, self.settings.seed)
        split = _Split(cache, cache) if self.settings.paper else _Split(*cache.split(held_out))
        trained = self._train_metak(split)
        variants = self._train_variants(split)
        decoded = dev.held_out(evenly(held_out, self.settings.max_decoded))
        adaptive, vanilla = self._choose(decoded, trained, self._vanilla_candidates(split))
        network = adaptive.best.method
        assert isinstance(network, MetaK)
        networks: dict[str, Network] = {"adaptive": network, **{n: v.network for n, v in variants.items()}}
        losses = {"adaptive": adaptive.best.loss, **{name: v.loss for name, v in variants.items()}}
        baselines = {"base": trained[0].base_loss, "vanilla": vanilla.best.loss}
        record = TrainingRecord(
            method="adaptive" if self.settings.paper else min(losses, key=losses.__getitem__),
            metak=network.settings,
            relatives={name: {**v.network.settings, "steps": v.steps} for name, v in variants.items()},
            vanilla=TunedVanilla(**describe_method(vanilla.best.method)),
            uniform=TunedUniform(network.max_k, network.temperature),
            held_out=HeldOut(
                sentences=len(held_out),
                tokens=len(split.held_out),
                decoded_sentences=len(decoded),
                losses={**baselines, **losses},
                bleu={"adaptive": adaptive.best.bleu, "vanilla": vanilla.best.bleu},
            ),
            tried={
                "adaptive": [trial.as_dict() for trial in adaptive.trials],
                "vanilla": [trial.as_dict() for trial in vanilla.trials],
            },
            is_selected_on_training_part=self.settings.paper,
            recall=self._recall(dev, cache, network.temperature),
            trained_on=DevSetRecord(dev.origin, len(dev), len(split.training)),
            settings=_settings_dict(self.settings),
            retrieval=retrieval_signature(self.retriever, self.model.engine),
            trained_at=now(),
            seconds=round(time.monotonic() - began, 1),
        )
        return TrainedStore(networks, record, adaptive.best.outputs, decoded.references)

    def _training_settings(self) -> TrainingSettings:
        training = self.settings.training
        return replace(training, raw_features=True) if self.settings.paper else training

    def _train_metak(self, split: _Split) -> list[TrainedMetaK]:
        """A network for each of the best temperatures, the likeliest first."""
        settings, fixed = self._training_settings(), self.settings.temperature
        if fixed is None and self.settings.paper:
            fixed = 10.0
        trained = train_metak(
            *split,
            max_k=self.settings.max_k,
            temperatures=[fixed] if fixed else temperatures(split.training),
            settings=settings,
            on_check=lambda step, loss: self.progress("training", step, settings.steps),
        )
        trained = sorted((self._damped(candidate, split) for candidate in trained), key=lambda t: t.loss)
        return trained[: self.settings.max_trials]

    def _train_variants(self, split: _Split) -> dict[str, TrainedVariant]:
        settings = self._training_settings()
        trained = {
            name: train_variant(
                name,
                *split,
                self.retriever.snapshot,
                max_k=self.settings.max_k,
                settings=settings,
                on_check=lambda step, loss, name=name: self.progress(f"training {name}", step, settings.steps),  # type: ignore[misc]
            )
            for name in VARIANTS
            if name in self.settings.methods
        }
        return {name: self._damped(variant, split) for name, variant in trained.items()}

    def _damped(self, trained: Trained, split: _Split) -> Trained:
        """Fit the network's out-of-domain damping, unless it is off."""
        if self.settings.paper or not self.settings.guard:
            return trained
        fitted = fit_damping(*split, trained.network, self.retriever.snapshot)
        trained.network.damping = fitted.damping
        return replace(trained, loss=fitted.loss)

    def _vanilla_candidates(self, split: _Split) -> list[tuple[Method, float]]:
        """The likeliest settings with their losses on the held-out part; with `paper`, the paper's settings as well."""
        fixed = [self.settings.temperature] if self.settings.temperature else None
        ranked = rank_vanilla(split.training, self.settings.max_k, fixed)
        methods = [candidate.method for candidate in ranked[: self.settings.max_trials]]
        if self.settings.paper:
            papers = [replace(method, k=min(method.k, self.settings.max_k)) for method in PAPER_VANILLA.values()]
            methods += [method for method in papers if method not in methods]
        return [(method, vanilla_loss(split.held_out, method)) for method in methods]

    def _choose(
        self, decoded: HeldOutSet, trained: Sequence[TrainedMetaK], vanilla: Sequence[tuple[Method, float]]
    ) -> tuple[_Tried, _Tried]:
        """The best of the Meta-k networks and of the vanilla settings, by translating with each of them."""
        trials = self.run_trials(decoded, [*((t.network, t.loss) for t in trained), *vanilla])
        of_metak, of_vanilla = trials[: len(trained)], trials[len(trained) :]
        best = likeliest_good_trial(of_metak, decoded.references)
        return _Tried(of_metak, best), _Tried(of_vanilla, best_trial(of_vanilla))

    def run_trials(self, held_out: HeldOutSet, candidates: Sequence[tuple[Method, float]]) -> list[Trial]:
        """Translate the held-out sentences with each candidate, a method and its loss."""
        trials: list[Trial] = []
        total = len(held_out) * len(candidates)
        for method, loss in candidates:
            decoder = Decoder(self.model, self.retriever, method, self.settings.decoding)
            before = len(held_out) * len(trials)
            scored = translate_held_out(
                decoder,
                held_out,
                lambda done, before=before: self.progress("choosing", before + done, total),  # type: ignore[misc]
            )
            trials.append(Trial(method, loss, scored.bleu, tuple(scored.texts)))
        return trials

    def _recall(self, dev: DevSet, cache: NeighborCache, temperature: float) -> Recall:
        """How much of what exact search finds was retrieved, on a sample of the dev states."""
        rows = torch.randperm(len(cache), generator=torch.Generator().manual_seed(1))[:_RECALL_QUERIES]
        excluded = [dev.excluded[int(i)] for i in cache.sentence_ids[rows]]
        found = cache.neighbors.entry_ids[rows]
        return compare_with_exact(
            self.retriever.snapshot, cache.states[rows].float(), excluded, self.settings.max_k, found, temperature
        )


def best_trial(trials: Sequence[Trial]) -> Trial:
    """The trial with the best BLEU; among equals, the one with the lowest loss."""
    return max(trials, key=lambda trial: (round(trial.bleu, 2), -trial.loss))


def likeliest_good_trial(trials: Sequence[Trial], references: Sequence[str]) -> Trial:
    """The trial with the lowest loss among those whose BLEU is close to the best."""
    are_close = close_to_best([trial.outputs for trial in trials], references)
    return min((t for t, is_close in zip(trials, are_close, strict=True) if is_close), key=lambda trial: trial.loss)


def _settings_dict(settings: AdaptationSettings) -> dict[str, Any]:
    content = asdict(settings)
    content["training"]["features"] = list(settings.training.features)
    return content
