"""The stores of a server with their models: the only file here that opens, reads and changes them."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nearmt.building.compatibility import load_model
from nearmt.building.corrections import Batch
from nearmt.building.editing import Added, Removed
from nearmt.corpus import SentencePair
from nearmt.datastore import Filter, Manifest, Origin, open_finished, origins
from nearmt.decoding.beam import BeamSettings
from nearmt.decoding.decoder import DecodingSettings
from nearmt.errors import NearMTError
from nearmt.methods.registry import best_of
from nearmt.models import Seq2Seq
from nearmt.retrieval.reader import Reader
from nearmt.server.service.batching import Batcher, BatchListener
from nearmt.server.service.evidence_json import describe_tokens
from nearmt.server.service.options import Decoded, TranslationOptions
from nearmt.server.settings import ServerSettings
from nearmt.store import Store
from nearmt.translator import Translation, Translator

_MAX_TRANSLATORS = 16  # kept ready for one model: a method and a filter each


@dataclass(frozen=True)
class StoreFacts:
    """What routes need to know of a store, at little cost."""

    name: str
    source_lang: str | None
    target_lang: str | None
    methods: tuple[str, ...]
    best_method: str  # what "auto" is
    created_at: str
    changed_at: str
    version: int


@dataclass(frozen=True)
class StoreCounts:
    """What is there to be used."""

    sentences: int
    entries: int


class Engine:
    """One loaded model, the thread that decodes with it, and translators made ready for it."""

    def __init__(self, model: Seq2Seq, settings: ServerSettings, on_batch: BatchListener) -> None:
        self.model = model
        self._settings = settings
        self._readers: dict[str, Reader] = {}  # one index in memory, whatever methods are asked for
        self._names: dict[str, str] = {}  # by folder
        self._translators: OrderedDict[TranslationOptions, Translator] = OrderedDict()
        self.batcher = Batcher(self._decode, settings.batching, settings.limits.max_queued_sentences, on_batch)

    def hold(self, name: str, folder: Path) -> None:
        """Serve this store too."""
        self._readers[name] = Reader(folder)
        self._names[str(folder)] = name

    def _decode(self, options: Hashable, texts: Sequence[str], wants_evidence: Sequence[bool]) -> list[Decoded]:
        assert isinstance(options, TranslationOptions)
        translations = self.translator(options).translate(texts)
        return [self._decoded(*item) for item in zip(translations, wants_evidence, strict=True)]

    def _decoded(self, translation: Translation, wants_evidence: bool) -> Decoded:
        return Decoded(
            translation.text,
            translation.score,
            len(translation.token_ids),
            translation.alternatives,
            describe_tokens(translation.tokens, self.model, self._names) if wants_evidence else None,
        )

    def translator(self, options: TranslationOptions) -> Translator:
        """A translator that is ready; it follows its stores as they change. For the decoding thread alone."""
        if options not in self._translators:
            self._translators[options] = self._make(options)
            while len(self._translators) > _MAX_TRANSLATORS:
                self._translators.popitem(last=False)
        self._translators.move_to_end(options)
        return self._translators[options]

    def _make(self, options: TranslationOptions) -> Translator:
        if options.has_filter:
            wanted = Filter(options.only, options.exclude, options.since, options.until)
            return self.translator(replace(options, only=(), exclude=(), since=None, until=None)).filtered(wanted)
        decoding = self._settings.decoding
        beam = BeamSettings(decoding.beam, decoding.length_penalty, False, options.n_best)
        return Translator(
            [self._readers[name] for name in options.stores],
            model=self.model,
            method=options.method,
            k=options.k,
            temperature=options.temperature,
            knn_share=options.knn_share,
            decoding=DecodingSettings(beam=beam, batch_size=self._settings.batching.max_sentences),
        )


class StoreRegistry:
    """All stores of a server by name. `load` fills it; until then nothing is ready."""

    def __init__(self, settings: ServerSettings, on_batch: BatchListener) -> None:
        self._settings, self._on_batch = settings, on_batch
        self._folders = {name: Path(folder).absolute() for name, folder in settings.stores.items()}
        self._stores: dict[str, Store] = {}
        self._engines: dict[str, Engine] = {}
        self._writers: dict[str, ThreadPoolExecutor] = {}
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
                manifest = open_finished(folder).manifest
                engine = self._engine_for(manifest)
                engine.hold(name, folder)
                # A method that the store has not learned is told now, not to the first client.
                engine.translator(TranslationOptions((name,), self._settings.decoding.method))
                self._stores[name] = Store(folder, model=engine.model)
                self._writers[name] = ThreadPoolExecutor(1, thread_name_prefix=f"writing-{name}")
                self._engines[name] = engine  # the last: now it is ready
                on_loaded(name)
        except NearMTError as error:
            self.failure = error

    def _engine_for(self, manifest: Manifest) -> Engine:
        settings = self._settings
        wanted = settings.engine or manifest.engine
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
            ("base", *(("vanilla", "uniform") if manifest.adaptation else ()), *manifest.networks),
            best_of(manifest),
            manifest.created_at,
            manifest.changed_at,
            manifest.version,
        )

    def counts(self, name: str) -> StoreCounts:
        """What is there now, without what was removed."""
        snapshot = self._stores[name].snapshot()
        alive = snapshot.live_sentences
        entries = int(snapshot.entry_mask(alive).sum()) if snapshot.has_removals else len(snapshot)
        return StoreCounts(int(alive.sum()), entries)

    def details(self, name: str) -> dict[str, Any]:
        """What `nearmt info` says, without the places of files."""
        info = self._stores[name].info()
        learned = info["adaptation"]
        return {
            "sentences": info["sentences"],
            "entries": info["entries"],
            "units": info["units"],
            "model": Path(info["model"]["name"]).name if Path(info["model"]["name"]).is_absolute() else
            info["model"]["name"],
            "engine": self._engines[name].model.engine,
            "index": _without(info["index"], "file", "files", "uri", "collection"),
            "adaptation": _without(learned, "files", "networks", "settings", "tried"),
            "dropped": info["dropped"],
            "origins": info["origins"],
            "health": info["health"],
        }  # fmt: skip

    def origins(self, name: str) -> list[Origin]:
        """Where the segments come from, the largest first."""
        return origins(self._stores[name].snapshot())

    def writer(self, name: str) -> ThreadPoolExecutor:
        """The one thread that changes this store."""
        return self._writers[name]

    def add(self, name: str, pairs: Sequence[SentencePair], batch: Batch) -> Added:
        """Add or correct units; when it returns they are on disk and used by the next translation."""
        return self._stores[name].add(list(pairs), batch=batch)

    def remove(
        self, name: str, *, unit_id: str | None, origin: str | None, source: str | None, target: str | None = None
    ) -> Removed:
        """Remove units; when it returns they are used no more."""
        return self._stores[name].remove(unit_id=unit_id, origin=origin, source=source, target=target)

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


def _without(described: dict[str, Any] | None, *names: str) -> dict[str, Any] | None:
    return None if described is None else {key: value for key, value in described.items() if key not in names}
