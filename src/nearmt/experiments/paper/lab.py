"""Trains the networks, chooses the settings and translates the test sets of the experiments, each only once."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from nearmt.datastore import Languages, replace_file
from nearmt.decoding.beam import BeamSettings
from nearmt.decoding.decoder import Decoder, DecodingSettings
from nearmt.evaluation.held_out import ScoredOutputs, translate_held_out
from nearmt.evaluation.scores import bleu, bootstrap, chrf, close_to_best, signatures
from nearmt.experiments.paper.config import PaperConfig
from nearmt.experiments.paper.domain import Domain, TestSet
from nearmt.experiments.paper.workspace import Workspace, as_key, digest
from nearmt.methods.metak import FEATURES
from nearmt.methods.mixture import Method, Vanilla
from nearmt.methods.network import Network
from nearmt.methods.network_file import load_network, network_bytes
from nearmt.methods.registry import describe_method
from nearmt.models import Seq2Seq
from nearmt.progress import Progress, silent
from nearmt.retrieval.search import Retriever
from nearmt.training.cache import NeighborCache
from nearmt.training.devset import evenly, load_pairs
from nearmt.training.fit_damping import fit_damping
from nearmt.training.schedule import TrainingSettings
from nearmt.training.train_metak import train_metak
from nearmt.training.train_store import PAPER_VANILLA
from nearmt.training.train_variants import train_variant
from nearmt.training.tune_vanilla import rank_vanilla, temperatures


@dataclass(frozen=True)
class Result:
    """The scores and outputs of one method on a test set, with the settings that produced them."""

    bleu: float
    chrf: float
    outputs: tuple[str, ...]
    settings: dict[str, Any]
    signature: str


class Lab:
    """The domains of one configuration, with their networks, tuned settings and scores."""

    def __init__(self, config: PaperConfig, model: Seq2Seq, folder: Path, progress: Progress = silent) -> None:
        self.config, self.model, self.progress = config, model, progress
        self.workspace = Workspace(folder)
        self.domains = {
            domain.name: Domain(domain, config, model, self.workspace, progress) for domain in config.domains
        }
        self.decoding = DecodingSettings(
            beam=BeamSettings(config.beam, config.length_penalty), batch_size=config.batch_size
        )

    @cached_property
    def general(self) -> TestSet | None:
        """The out-of-domain test set, if the configuration has one."""
        if not self.config.general:
            return None
        languages = Languages(self.model.source_lang, self.model.target_lang)
        return TestSet(self.model, load_pairs(self.config.general, languages).pairs[: self.config.test_sentences])

    def _training(self, **changes: Any) -> TrainingSettings:
        settings = TrainingSettings(steps=self.config.steps, raw_features=self.config.paper_protocol)
        settings = replace(settings, first_check=min(settings.first_check, self.config.steps), **changes)
        return replace(settings, features=tuple(settings.features))

    def _learned_from(self, domain: Domain, max_k: int, settings: TrainingSettings) -> dict[str, Any]:
        return {
            "store": domain.key,
            "dev": domain.dev_key,
            "paper_protocol": self.config.paper_protocol,
            "guard": not self.config.paper_protocol,
            "retrieved": self.config.max_k,
            "max_k": max_k,
            "training": as_key(settings),
        }

    def network(
        self,
        domain: Domain,
        max_k: int,
        seed: int | None = None,
        *,
        temperature: float | None = None,
        hidden: int = 32,
        features: Sequence[str] = FEATURES,
        sentences: int | None = None,
        shuffled: bool = False,
    ) -> Network:
        """Return the Meta-k network of a domain, after training it if necessary. T is the domain's own unless given."""
        temperature = temperature or self.temperature(domain)
        settings = self._training(seed=seed or self.config.seeds[0], hidden=hidden, features=tuple(features))
        key = {**self._learned_from(domain, max_k, settings), "temperature": temperature}
        key |= {"sentences": sentences, "shuffled": shuffled}
        path = self.workspace.network_file(key)
        if not path.exists():
            train_part, select_part = domain.parts(max_k, sentences)
            if shuffled:
                values = shuffled_values(domain.retriever)
                train_part, select_part = (
                    replace(part, neighbors=replace(part.neighbors, token_ids=values[part.neighbors.entry_ids].long()))
                    for part in (train_part, select_part)
                )
            (trained,) = train_metak(
                train_part, select_part, max_k=max_k, temperatures=[temperature], settings=settings
            )
            self._fit_damping(domain, trained.network, train_part, select_part)
            replace_file(path, network_bytes(trained.network))
        return load_network(path)

    def _fit_damping(
        self, domain: Domain, network: Network, train_part: NeighborCache, select_part: NeighborCache
    ) -> None:
        """Fit out-of-domain damping, as `nearmt train` does; the paper has none."""
        if not self.config.paper_protocol:
            network.damping = fit_damping(train_part, select_part, network, domain.snapshot).damping

    def variant(self, domain: Domain, name: str, seed: int) -> Network:
        """Return the network of a published variant, after training it if necessary."""
        settings = self._training(seed=seed)
        key = {"relative": name, **self._learned_from(domain, self.config.max_k, settings)}
        path = self.workspace.network_file(key)
        if not path.exists():
            train_part, select_part = domain.parts(self.config.max_k)
            trained = train_variant(
                name, train_part, select_part, domain.snapshot, max_k=self.config.max_k, settings=settings
            )
            self._fit_damping(domain, trained.network, train_part, select_part)
            replace_file(path, network_bytes(trained.network))
        return load_network(path)

    def temperature(self, domain: Domain) -> float:
        """Return T at the largest K: the paper's, or the likeliest among those as good as the best BLEU."""
        if self.config.paper_protocol:
            return domain.config.paper_temperature
        settings = self._training(seed=self.config.seeds[0])
        key = {**self._learned_from(domain, self.config.max_k, settings), **self._judging}
        found = self.workspace.find("temperature", key)
        if found is None:
            train_part, select_part = domain.parts(self.config.max_k)
            trained = train_metak(
                train_part,
                select_part,
                max_k=self.config.max_k,
                temperatures=temperatures(train_part),
                settings=settings,
                on_check=lambda step, loss: self.progress(f"{domain.name}: training", step, settings.steps),
            )
            trained.sort(key=lambda candidate: candidate.loss)
            networks = [candidate.network for candidate in trained[: self.config.judged_settings]]
            for network in networks:
                self._fit_damping(domain, network, train_part, select_part)
            scored = [self._judged(domain, network) for network in networks]
            tried = [
                {"temperature": network.temperature, "bleu": outputs.bleu}
                for network, outputs in zip(networks, scored, strict=True)
            ]
            likeliest = close_to_best([outputs.texts for outputs in scored], scored[0].references).index(True)
            found = self.workspace.keep("temperature", key, {"best": tried[likeliest]["temperature"], "tried": tried})
        return float(found["best"])

    def tuned_vanilla(self, domain: Domain, k: int) -> tuple[Vanilla, float]:
        """Return vanilla with the best T and share for k neighbours, and its BLEU on the held-out sentences."""
        settings = self._training()
        key = {**self._learned_from(domain, k, settings), **self._judging}
        found = self.workspace.find("vanilla", key)
        if found is None:
            train_part, _ = domain.parts(k)
            ranked = [candidate.method for candidate in rank_vanilla(train_part, k) if candidate.method.k == k]
            tried = ranked[: self.config.judged_settings]
            own = [self.fixed_vanilla(domain, k), *(replace(method, k=k) for method in PAPER_VANILLA.values())]
            tried += [method for method in dict.fromkeys(own) if method not in tried]
            judged = [{**describe_method(method), "bleu": self.judge(domain, method)} for method in tried]
            best = max(judged, key=lambda trial: round(trial["bleu"], 2))
            found = self.workspace.keep("vanilla", key, {"best": best, "tried": judged})
        best = found["best"]
        return Vanilla(best["k"], best["temperature"], best["knn_share"]), best["bleu"]

    def best_vanilla(self, domain: Domain) -> Vanilla:
        """Return vanilla with k, T and share all chosen on the held-out sentences: the fair baseline."""
        tuned = [self.tuned_vanilla(domain, k) for k in self.config.k]
        return max(tuned, key=lambda found: round(found[1], 2))[0]

    def fixed_vanilla(self, domain: Domain, k: int) -> Vanilla:
        """Return vanilla with the paper's T and share."""
        return Vanilla(k, domain.config.paper_temperature, domain.config.paper_share)

    @property
    def _judging(self) -> dict[str, Any]:
        return {"judged": [self.config.judged_sentences, self.config.judged_settings], "decoding": self._decoding_key}

    @property
    def _decoding_key(self) -> dict[str, Any]:
        return {key: value for key, value in as_key(self.decoding).items() if key != "batch_size"}

    def judge(self, domain: Domain, method: Method) -> float:
        """BLEU of a method on held-out dev sentences."""
        return self._judged(domain, method).bleu

    def _judged(self, domain: Domain, method: Method) -> ScoredOutputs:
        """Some held-out dev sentences, translated."""
        held_out = domain.dev.held_out(evenly(domain.held_out, self.config.judged_sentences))
        decoder = Decoder(self.model, domain.retriever, method, self.decoding)
        stage = f"{domain.name}: choosing"
        return translate_held_out(decoder, held_out, lambda done: self.progress(stage, done, len(held_out)))

    def score(self, store: Domain | None, test: TestSet, method: Method | None, *, shuffled: bool = False) -> Result:
        """Translate and score a test set with a domain's store. Without a method, use the model alone."""
        described = describe_method(method)
        if isinstance(method, Network):
            described = {**described, "network": digest(network_bytes(method).hex())}
        key: dict[str, Any] = {
            "model": [self.model.identity.weights, self.model.identity.tokenizer],
            "store": store.key if store and method else None,
            "shuffled": shuffled,
            "test": test.key,
            "method": {"name": method.name if method else "base", **described},
            "decoding": self._decoding_key,
        }
        if self.model.engine != "torch":
            key["engine"] = self.model.engine
        found = self.workspace.find("score", key)
        if found is None:
            retriever = None
            if method is not None:
                assert store is not None
                retriever = ShuffledRetriever(store.snapshot) if shuffled else store.retriever
            decoder = Decoder(self.model, retriever, method, self.decoding)
            stage = f"{store.name if store else 'model'}: translating"
            scored = translate_held_out(decoder, test.held_out, lambda done: self.progress(stage, done, len(test)))
            outputs = scored.texts
            found = self.workspace.keep("score", key, {"outputs": outputs, **_scored(outputs, test)})
        settings = {**key["method"], "store": key["store"], "test": key["test"]}
        return Result(found["bleu"], found["chrf"], tuple(found["outputs"]), settings, found["signature"])

    def p_value(self, test: TestSet, system: Result, baseline: Result) -> float:
        """Return the p-value of the difference between two systems, by paired bootstrap on BLEU."""
        key = {"test": test.key, "system": digest(system.outputs), "baseline": digest(baseline.outputs)}

        def test_difference() -> float:
            systems = {"baseline": baseline.outputs, "system": system.outputs}
            return bootstrap(systems, test.references)["system"]

        return float(self.workspace.get("p", key, test_difference))

    def scored_outputs(self, outputs: Sequence[str], test: TestSet, settings: dict[str, Any]) -> Result:
        """Score outputs that no method of this class produced."""
        scored = _scored(outputs, test)
        return Result(scored["bleu"], scored["chrf"], tuple(outputs), settings, scored["signature"])


def _scored(outputs: Sequence[str], test: TestSet) -> dict[str, Any]:
    scores = {"bleu": bleu(outputs, test.references), "chrf": chrf(outputs, test.references)}
    return {**scores, "signature": signatures()["bleu"]}


def shuffled_values(retriever: Retriever) -> torch.Tensor:
    """Return the store's values in random order, so that keys no longer predict the next token."""
    values = torch.from_numpy(retriever.snapshot.values)
    return values[torch.randperm(len(values), generator=torch.Generator().manual_seed(1))]


class ShuffledRetriever(Retriever):
    """Finds the same entries but returns the tokens of others: a control for a memory without information."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._values = shuffled_values(self).numpy()
