"""What every step of a comparison shares: the store, its model, the test sets, and timed translation."""

import hashlib
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

from filelock import FileLock

from nearmt.building.builder import BuildSettings
from nearmt.building.compatibility import ModelRequest, load_model
from nearmt.corpus import SentencePair
from nearmt.datastore import Manifest, partial_folder
from nearmt.decoding.decoder import Decoder
from nearmt.evaluation.held_out import HeldOutSet, translate_held_out
from nearmt.experiments.alternatives.results import Results
from nearmt.experiments.alternatives.settings import AlternativesSettings, Files, System
from nearmt.methods.registry import AUTO, best_of
from nearmt.models import Seq2Seq
from nearmt.store import Store, build
from nearmt.training.devset import evenly, load_pairs
from nearmt.training.train_store import AdaptationSettings
from nearmt.translator import Translator

_WARM_UP = 8  # sentences that are translated before the time is measured


class Workbench:
    """The materials of a comparison. The store is a copy, which is trained here."""

    def __init__(
        self,
        store: Path,
        build_seconds: float,
        files: Files,
        results: Results,
        settings: AlternativesSettings,
        adaptation: AdaptationSettings,
        log: Callable[[str], None],
    ) -> None:
        self.files, self.results, self.settings, self.adaptation, self.log = files, results, settings, adaptation, log
        self.build_seconds = build_seconds
        paths = [files.memory, files.dev, files.test, files.other]
        results.check(
            {
                "files": {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths},
                "settings": {name: value for name, value in asdict(settings).items() if name != "long_kinds"},
                "store": Manifest.load(store).model["weights"],
                "build seconds": build_seconds,
            }
        )
        self.folder = results.folder / "memory.store"
        if not self.folder.exists():
            copied = shutil.copytree(store, results.folder / "memory.store.copying", dirs_exist_ok=True)
            Path(copied).rename(self.folder)
        self.languages = Manifest.load(self.folder).languages

    @cached_property
    def model(self) -> Seq2Seq:
        return load_model(Manifest.load(self.folder), ModelRequest())

    @property
    def model_name(self) -> str:
        return str(Manifest.load(self.folder).model["name"])

    def pairs(self, path: Path) -> list[SentencePair]:
        return load_pairs(path, self.languages).pairs

    @cached_property
    def test(self) -> HeldOutSet:
        return HeldOutSet.from_pairs(self.model, self.pairs(self.files.test))

    @cached_property
    def other(self) -> HeldOutSet:
        return HeldOutSet.from_pairs(self.model, self.pairs(self.files.other))

    @cached_property
    def dev(self) -> HeldOutSet:
        return HeldOutSet.from_pairs(self.model, self.pairs(self.files.dev))

    @cached_property
    def translator(self) -> Translator:
        """The store, for matches and for its methods; it is trained before it is first used."""
        return Translator(self.folder, model=self.model)

    @property
    def own_system(self) -> str:
        """The name of the store with its own method in the results."""
        return f"memory-{best_of(Manifest.load(self.folder))}"

    @property
    def budget(self) -> float:
        """Processor seconds: what building and training the store took, or what was asked for."""
        return self.settings.budget or self.build_seconds + self.training_seconds

    @property
    def training_seconds(self) -> float:
        return float(self.results.get("memory.training", lambda: self.train(self.folder, self.model)))

    def train(self, folder: Path, model: Seq2Seq) -> float:
        """Train a store, and return the processor seconds that this took."""
        began = time.process_time()
        Store(folder, model=model).train(self.files.dev, settings=self.adaptation)
        return time.process_time() - began

    def build(self, name: str, model: Seq2Seq) -> float:
        """Build a store that is searched like the first one, and return the processor seconds that this took."""
        folder, clock = self.results.folder / f"{name}.store", self.results.clock(f"{name}.building")
        if not folder.exists():
            build(
                self.files.memory,
                model=model,
                out=folder,
                train=False,
                settings=BuildSettings(retrieval=self.trained_retrieval),
                resume=partial_folder(folder).exists(),
                progress=lambda *_: clock.tick(),
            )
        return clock.seconds

    @property
    def trained_retrieval(self) -> str:
        """How the trained store is searched."""
        training = Manifest.load(self.folder).adaptation
        assert training is not None
        return training.retrieval.retrieval

    def system(
        self, decoder: Decoder, setup: float, correction: float | None, details: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """The outputs and the time of a decoder."""
        some = evenly(range(len(self.test)), _WARM_UP)
        decoder.decode([self.test.sources[i] for i in some], texts=[self.test.texts[i] for i in some])
        began = time.process_time()
        outputs = translate_held_out(decoder, self.test).texts
        milliseconds = 1000 * (time.process_time() - began) / len(self.test)
        others = translate_held_out(decoder, self.other).texts
        return asdict(System(outputs, others, setup, milliseconds, correction, details or {}))

    def keep_system(self, name: str, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The results of a system, computed if they are missing.

        Two processes may share the work in one folder: the second waits for a system that the first is busy with.
        """
        with FileLock(self.results.folder / f"{name}.lock"):
            if self.results.find(name) is None:
                self.log(name)
            found: dict[str, Any] = self.results.get(name, compute)
        return found

    def decoder_of(self, folder: Path, model: Seq2Seq, method: str = AUTO) -> Decoder:
        """The decoder of a trained store."""
        translator = Translator(folder, model=model, method=method)
        return translator.decoder(translator.method)
