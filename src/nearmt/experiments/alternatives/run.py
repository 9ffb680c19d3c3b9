"""The steps of a comparison. Finished ones are kept, and the long ones continue where they were interrupted."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from nearmt.corpus import SentencePair
from nearmt.decoding.decoder import Decoder
from nearmt.experiments.alternatives.copying import copied, copied_or_translated
from nearmt.experiments.alternatives.corrections import correction_of_store, correction_of_weights
from nearmt.experiments.alternatives.fine_tuning import FineTuning, TuningSettings
from nearmt.experiments.alternatives.per_sentence import MINIMUM, SentenceAdapter, SentenceSettings
from nearmt.experiments.alternatives.settings import FULL, LORA, System
from nearmt.experiments.alternatives.trainable import Trainable
from nearmt.experiments.alternatives.workbench import Workbench
from nearmt.models import Seq2Seq
from nearmt.training.devset import evenly

_SAVED_EVERY = 5  # sentences that are translated by adapted models


def run(bench: Workbench, only: Sequence[str] = ()) -> None:
    """Make the results of all systems, or of those that are named."""
    steps = Steps(bench)
    for name, step in steps.all().items():
        if not only or name in only:
            step()


class Steps:
    """The steps of a comparison by name."""

    def __init__(self, bench: Workbench) -> None:
        self.bench, self.results, self.settings = bench, bench.results, bench.settings

    def all(self) -> dict[str, Callable[[], Any]]:
        """The steps in the order in which they are run, the longest last."""
        short = [(kind, 1.0) for kind in (FULL, LORA)]
        long = [(kind, self.settings.long) for kind in (FULL, LORA) if kind in self.settings.long_kinds]
        steps: dict[str, Callable[[], Any]] = {
            "base": self.base,
            "memory": self.memory,
            "copied": self.copied,
            "copied-or-translated": self.copied_or_translated,
        }
        steps |= {tuned_name(*one): partial(self.tuned, *one) for one in short}
        steps["per-sentence"] = self.per_sentence
        steps |= {f"{tuned_name(*one)}-memory": partial(self.memory_on_tuned, *one) for one in short[:1]}
        steps |= {tuned_name(*one): partial(self.tuned, *one) for one in long}
        steps |= {f"{tuned_name(*one)}-memory": partial(self.memory_on_tuned, *one) for one in long[:1]}
        return steps

    def base(self) -> dict[str, Any]:
        """The model alone."""
        return self.bench.keep_system("base", lambda: self.bench.system(Decoder(self.bench.model), 0.0, None))

    def memory(self) -> None:
        """The trained store, with each of its methods."""
        bench, setup = self.bench, self.bench.build_seconds + self.bench.training_seconds
        methods = ("vanilla", *bench.translator.snapshot.manifest.networks)

        def translated(method: str) -> dict[str, Any]:
            return bench.system(bench.decoder_of(bench.folder, bench.model, method), setup, self.store_correction)

        for method in methods:
            bench.keep_system(f"memory-{method}", partial(translated, method))

    @property
    def store_correction(self) -> float:
        """Seconds that one correction of the store takes."""
        pairs = self._some_dev(self.settings.corrections)
        return float(
            self.results.get(
                "memory.correction", lambda: correction_of_store(self.bench.folder, self.bench.model, pairs)
            )
        )

    def copied(self) -> None:
        """The best match."""
        self.bench.keep_system("copied", lambda: copied(self.bench, self.store_correction))

    def copied_or_translated(self) -> None:
        """The best match above a threshold, otherwise the model."""
        self.bench.keep_system(
            "copied-or-translated", lambda: copied_or_translated(self.bench, self.base(), self.store_correction)
        )

    def tuned(self, kind: str, factor: float) -> dict[str, Any]:
        """The fine-tuned model."""
        name = tuned_name(kind, factor)
        return self.bench.keep_system(name, lambda: self._tuned(kind, factor))

    def _tuned(self, kind: str, factor: float) -> dict[str, Any]:
        bench, name = self.bench, tuned_name(kind, factor)
        rate = self._rate(kind)
        is_long = factor > 1
        settings = TuningSettings(
            bench.budget * factor, rate, adapters=kind == LORA, checks=self.settings.checks[is_long]
        )
        tuning = self._fine_tuning(name, settings)
        state = tuning.run()
        folder = tuning.trainable.save(self.folder_of(name))
        self.results.keep(f"{name}.tuning", {"rate": rate, **asdict(state)})
        # An adapter could be trained for one step in less time, but the model is loaded in both cases.
        correction = correction_of_weights(tuning.trainable, self._some_dev(1)[0], rate)
        del tuning.trainable
        decoder = Decoder(self.load_tuned(folder))
        found = bench.system(decoder, state.seconds, correction, {"rate": rate, **asdict(state)})
        tuning.discard()
        return found

    def _fine_tuning(self, name: str, settings: TuningSettings) -> FineTuning:
        bench = self.bench
        trainable = Trainable.load(bench.model_name, bench.model)
        dev = self._some_dev(self.settings.dev_sentences)
        return FineTuning(
            trainable,
            trainable.batches(bench.pairs(bench.files.memory), self.settings.batch_tokens),
            trainable.batches(dev, self.settings.batch_tokens),
            settings,
            self.results.folder / name,
            lambda line: bench.log(f"{name}: {line}"),
        )

    def _rate(self, kind: str) -> float:
        """The learning rate with the lowest dev loss after a short run."""
        losses: dict[float, float] = {}
        for rate in self.settings.rates[kind]:
            name = f"{kind}.rate-{rate:g}"
            losses[rate] = self.results.get(name, partial(self._tried, kind, rate, name))["best_loss"]
        return min(losses, key=losses.__getitem__)

    def _tried(self, kind: str, rate: float, name: str) -> dict[str, Any]:
        seconds = self.settings.trial * self.bench.budget
        tuning = self._fine_tuning(name, TuningSettings(seconds, rate, adapters=kind == LORA, checks=1))
        state = tuning.run()
        tuning.discard()
        return asdict(state)

    def folder_of(self, name: str) -> Path:
        """The folder of a fine-tuned model."""
        return self.results.folder / name / "model"

    def load_tuned(self, folder: Path) -> Seq2Seq:
        """A fine-tuned model in the engine of the store."""
        model = self.bench.model
        return Seq2Seq.load(folder, source_lang=model.source_lang, target_lang=model.target_lang, engine=model.engine)

    def memory_on_tuned(self, kind: str, factor: float) -> None:
        """A store that is built with the fine-tuned model."""
        self.bench.keep_system(f"{tuned_name(kind, factor)}-memory", lambda: self._memory_on_tuned(kind, factor))

    def _memory_on_tuned(self, kind: str, factor: float) -> dict[str, Any]:
        bench, results = self.bench, self.results
        name, tuned = f"{tuned_name(kind, factor)}-memory", self.tuned(kind, factor)
        model = self.load_tuned(self.folder_of(tuned_name(kind, factor)))
        building = results.get(f"{name}.building", lambda: bench.build(name, model))
        folder = results.folder / f"{name}.store"
        training = results.get(f"{name}.training", lambda: bench.train(folder, model))
        decoder = bench.decoder_of(folder, model)
        details = {"building": building, "training": training, "method": decoder.method.name if decoder.method else ""}
        return bench.system(decoder, tuned["setup"] + building + training, self.store_correction, details)

    def per_sentence(self) -> None:
        """The model adapted to each sentence."""
        self.bench.keep_system("per-sentence", self._per_sentence)

    def _per_sentence(self) -> dict[str, Any]:
        bench, results = self.bench, self.results
        model = Seq2Seq.load(
            bench.model_name,
            source_lang=bench.model.source_lang,
            target_lang=bench.model.target_lang,
            engine="torch",
        )
        adapter, began = SentenceAdapter(bench.translator, model), time.process_time()
        dev, losses = self._dev_with_matches(), dict[float, float]()
        for rate in self.settings.sentence_rates:
            settings = SentenceSettings(rate)
            losses[rate] = results.get(f"per-sentence.rate-{rate:g}", partial(adapter.loss, dev, settings))
        setup = time.process_time() - began
        chosen = SentenceSettings(min(losses, key=losses.__getitem__))
        done: dict[str, Any] = results.find("per-sentence.partial") or {"test": {}, "other": {}, "seconds": 0.0}
        for part, texts in (("test", bench.test.texts), ("other", bench.other.texts)):
            rows = evenly(range(len(texts)), self.settings.sentence_test)
            for number, row in enumerate(rows):
                if str(row) in done[part]:
                    continue
                began = time.process_time()
                done[part][str(row)] = adapter.translate(texts[row], chosen)
                done["seconds"] += (time.process_time() - began) if part == "test" else 0.0
                if number % _SAVED_EVERY == 0:
                    results.keep("per-sentence.partial", done)
        test, other = (self._filled(part, done[part]) for part in ("test", "other"))
        milliseconds = 1000 * done["seconds"] / len(done["test"])
        details = {**asdict(chosen), "losses": losses, "unmatched": sum(v is None for v in done["test"].values())}
        return asdict(System(test, other, setup, milliseconds, self.store_correction, details))

    def _dev_with_matches(self) -> list[SentencePair]:
        translator = self.bench.translator
        found = [pair for pair in self.bench.dev.pairs if translator.matches(pair.source, 1, MINIMUM)]
        return [found[i] for i in evenly(range(len(found)), self.settings.sentence_dev)]

    def _filled(self, part: str, done: dict[str, str | None]) -> list[str | None]:
        """The outputs in order; a sentence without a match is translated by the model as it is."""
        base = self.base()[part]
        return [(done[str(i)] or base[i]) if str(i) in done else None for i in range(len(base))]

    def _some_dev(self, count: int) -> list[SentencePair]:
        pairs = self.bench.dev.pairs
        return [pairs[i] for i in evenly(range(len(pairs)), count)]


def tuned_name(kind: str, factor: float) -> str:
    """The name of a fine-tuned model in the results."""
    return f"{kind}-{factor:g}"
