"""The stores of a server with their models: the only file here that opens, reads and changes them."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nearmt.beam import BeamSettings
from nearmt.corpus import SentencePair
from nearmt.decoder import DecodingSettings
from nearmt.errors import NearMTError
from nearmt.memory import Store
from nearmt.methods import networks_of
from nearmt.seq2seq import Seq2Seq
from nearmt.server.batching import Batcher, BatchListener
from nearmt.server.grounds import describe_tokens
from nearmt.server.recipes import Decoded, Recipe
from nearmt.server.settings import ServerSettings
from nearmt.store import Manifest
from nearmt.translator import Translation, Translator, load_model

_MAX_TRANSLATORS = 16  # kept ready for one model: a method and a filter each


@dataclass(frozen=True)
class StoreFacts:
    """What routes need to know of a store."""

    name: str
    source_lang: str | None
    target_lang: str | None
    sentences: int
    entries: int
    methods: tuple[str, ...]
    created_at: str
    changed_at: str
    version: int


class Engine:
    """One loaded model, the thread that decodes with it, and translators made ready for it."""

    def __init__(self, model: Seq2Seq, settings: ServerSettings, on_batch: BatchListener) -> None:
        self.model = model
        self._settings = settings
        self._folders: dict[str, Path] = {}
        self._translators: OrderedDict[Recipe, tuple[Any, Translator]] = OrderedDict()
        self.batcher = Batcher(self._decode, settings.batching, settings.limits.max_queued_sentences, on_batch)

    def hold(self, name: str, folder: Path) -> None:
        self._folders[name] = folder

    def _decode(self, recipe: Hashable, texts: Sequence[str], wants_evidence: Sequence[bool]) -> list[Decoded]:
        assert isinstance(recipe, Recipe)
        translations = self._translator(recipe).translate(texts)
        return [self._decoded(*item) for item in zip(translations, wants_evidence, strict=True)]

    def _decoded(self, translation: Translation, wants_evidence: bool) -> Decoded:
        return Decoded(
            translation.text,
            translation.score,
            len(translation.token_ids),
            translation.alternatives,
            describe_tokens(translation.tokens, self.model) if wants_evidence else None,
        )

    def _translator(self, recipe: Recipe) -> Translator:
        state = tuple(_state_of(self._folders[name]) for name in recipe.stores)
        known = self._translators.get(recipe)
        if known is None or known[0] != state:
            known = state, self._make(recipe)
            self._translators[recipe] = known
            while len(self._translators) > _MAX_TRANSLATORS:
                self._translators.popitem(last=False)
        self._translators.move_to_end(recipe)
        return known[1]

    def _make(self, recipe: Recipe) -> Translator:
        options = self._settings.decoding
        beam = BeamSettings(options.beam, options.length_penalty, False, recipe.n_best)
        return Translator(
            self._folders[recipe.stores[0]],
            model=self.model,
            method=recipe.method,
            k=recipe.k,
            temperature=recipe.temperature,
            knn_share=recipe.knn_share,
            gate=options.gate if recipe.method == "adaptive" else "off",
            decoding=DecodingSettings(beam=beam, batch_size=self._settings.batching.max_sentences),
        )


def _state_of(folder: Path) -> tuple[int, ...]:
    """Changes when the store is committed to."""
    found = (folder / "manifest.json").stat()
    return found.st_mtime_ns, found.st_ino, found.st_size


class Shelf:
    """All stores of a server by name. `load` fills it; until then nothing is ready."""

    def __init__(self, settings: ServerSettings, on_batch: BatchListener) -> None:
        self._settings, self._on_batch = settings, on_batch
        self._folders = {name: Path(folder).absolute() for name, folder in settings.stores.items()}
        self._stores: dict[str, Store] = {}
        self._engines: dict[str, Engine] = {}
        self._writers: dict[str, ThreadPoolExecutor] = {}
        self._lock = threading.Lock()
        self.failure: NearMTError | None = None

    @property
    def names(self) -> list[str]:
        return list(self._folders)

    @property
    def engines(self) -> list[Engine]:
        return list(dict.fromkeys(self._engines.values()))

    def is_ready(self, name: str | None = None) -> bool:
        return name in self._engines if name is not None else len(self._engines) == len(self._folders)

    def load(self, on_loaded: Callable[[str], None] = lambda name: None) -> None:
        """Open every store and load the models they need; what goes wrong is kept in `failure`."""
        try:
            for name, folder in self._folders.items():
                store = Store(folder)
                engine = self._engine_for(store.manifest)
                engine.hold(name, folder)
                # A method or gate that the store has not learned is told now, not to the first client.
                engine._translator(Recipe((name,), self._settings.decoding.method))
                with self._lock:
                    self._stores[name] = store
                    self._writers[name] = ThreadPoolExecutor(1, thread_name_prefix=f"writing-{name}")
                    self._engines[name] = engine
                on_loaded(name)
        except NearMTError as error:
            self.failure = error

    def _engine_for(self, manifest: Manifest) -> Engine:
        settings = self._settings
        described = manifest.adaptation["retrieval"] if manifest.adaptation is not None else manifest.model
        wanted = settings.engine or str(described.get("engine", "torch"))
        for engine in self.engines:
            model = engine.model
            same = all(manifest.model[part] == getattr(model.identity, part) for part in ("weights", "tokenizer"))
            pair = (model.source_lang, model.target_lang, model.source_prefix)
            if (
                same
                and model.engine == wanted
                and pair == (manifest.languages.source, manifest.languages.target, manifest.model["source_prefix"])
            ):
                return engine
        loaded = load_model(manifest, settings.model, offline=settings.offline, engine=settings.engine)
        return Engine(loaded, settings, self._on_batch)

    def engine(self, name: str) -> Engine:
        return self._engines[name]

    def facts(self, name: str) -> StoreFacts:
        """The store as it is on disk now."""
        manifest = self._stores[name].manifest
        return StoreFacts(
            name,
            manifest.languages.source,
            manifest.languages.target,
            manifest.num_sentences,
            manifest.num_entries,
            ("base", *(("vanilla", "uniform") if manifest.adaptation else ()), *_networks(manifest)),
            manifest.created_at,
            manifest.changed_at,
            manifest.version,
        )

    def info(self, name: str) -> dict[str, Any]:
        """What `nearmt info` says."""
        return self._stores[name].info()

    def writer(self, name: str) -> ThreadPoolExecutor:
        """The one thread that changes this store."""
        return self._writers[name]

    def add(self, name: str, pairs: Sequence[SentencePair], origin: str | None = None) -> Any:
        """Add or correct units; when it returns they are on disk and used by the next translation."""
        return Store(self._folders[name], model=self._engines[name].model).add(list(pairs), origin=origin)

    def remove(self, name: str, *, unit_id: str | None, origin: str | None, source: str | None) -> Any:
        """Remove units; when it returns they are used no more."""
        store = Store(self._folders[name], model=self._engines[name].model)
        return store.remove(unit_id=unit_id, origin=origin, source=source)

    def without_paths(self, sentence: str) -> str:
        """An error's sentence with the stores' names in place of their folders on the server's disk."""
        for name, folder in self._folders.items():
            sentence = sentence.replace(str(folder), name)
        return sentence

    def close(self, seconds: float) -> None:
        """Finish what is queued and let go of the threads."""
        for engine in self.engines:
            engine.batcher.close(seconds)
        for writer in self._writers.values():
            writer.shutdown(wait=True, cancel_futures=True)


def _networks(manifest: Manifest) -> list[str]:
    return [name for name in networks_of(manifest.adaptation) if name != "gate"]
