"""The stores of a server and their models. Only this module opens, reads and changes stores."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nearmt.building.compatibility import ModelRequest, engine_for, load_model
from nearmt.building.corrections import EditBatch
from nearmt.building.editing import Added, Removed
from nearmt.corpus import SentencePair
from nearmt.datastore import Filter, Manifest, Origin, open_finished, origins
from nearmt.decoding.beam import BeamSettings
from nearmt.decoding.decoder import DecodingSettings
from nearmt.errors import NearMTError
from nearmt.methods.registry import MethodRequest, available_methods, best_of
from nearmt.models import Seq2Seq
from nearmt.retrieval.reader import Reader
from nearmt.server.http.errors import ApiError, from_nearmt
from nearmt.server.service.batching import Batcher, BatchListener
from nearmt.server.service.evidence_json import describe_tokens
from nearmt.server.service.options import DecodedSentence, TranslationOptions
from nearmt.server.settings import ServerSettings
from nearmt.store import Store
from nearmt.translator import Translation, Translator

_MAX_TRANSLATORS = 16  # cached per model, one per combination of options


@dataclass(frozen=True)
class StoreFacts:
    """What the manifest says about a store."""

    name: str
    source_lang: str | None
    target_lang: str | None
    methods: tuple[str, ...]
    best_method: str  # the meaning of "auto"
    created_at: str
    changed_at: str
    version: int


@dataclass(frozen=True)
class StoreCounts:
    """Live sentences and entries of a store."""

    sentences: int
    entries: int


class ModelRunner:
    """A loaded model with its decoding thread and a cache of translators."""

    def __init__(self, model: Seq2Seq, settings: ServerSettings, on_batch: BatchListener) -> None:
        self.model = model
        self._settings = settings
        self._readers: dict[str, Reader] = {}  # shared by all translators, so that each index is in memory once
        self._store_names: dict[str, str] = {}  # by folder
        self._translators: OrderedDict[TranslationOptions, Translator] = OrderedDict()
        self.batcher = Batcher(self._decode, settings.batching, settings.limits.max_queued_sentences, on_batch)

    def add_store(self, name: str, folder: Path) -> None:
        """Serve this store with this model."""
        self._readers[name] = Reader(folder)
        self._store_names[str(folder)] = name

    def fits(self, manifest: Manifest, engine: str) -> bool:
        """Whether a store can use this model, run by this engine."""
        model, stored = self.model, manifest.model
        return (
            all(stored[part] == getattr(model.identity, part) for part in ("weights", "tokenizer"))
            and model.engine == engine
            and (model.source_lang, model.target_lang) == (manifest.languages.source, manifest.languages.target)
            and model.source_prefix == stored["source_prefix"]
        )

    def _decode(self, options: Hashable, texts: Sequence[str], wants_evidence: Sequence[bool]) -> list[DecodedSentence]:
        assert isinstance(options, TranslationOptions)
        translations = self.translator(options).translate(texts)
        return [self._decoded(*item) for item in zip(translations, wants_evidence, strict=True)]

    def _decoded(self, translation: Translation, wants_evidence: bool) -> DecodedSentence:
        return DecodedSentence(
            translation.text,
            translation.score,
            len(translation.token_ids),
            translation.alternatives,
            describe_tokens(translation.tokens, self.model, self._store_names) if wants_evidence else None,
        )

    def translator(self, options: TranslationOptions) -> Translator:
        """A translator for these options; it follows changes of its stores. Only the decoding thread may use it."""
        if options not in self._translators:
            self._translators[options] = self._create_translator(options)
            while len(self._translators) > _MAX_TRANSLATORS:
                self._translators.popitem(last=False)
        self._translators.move_to_end(options)
        return self._translators[options]

    def _create_translator(self, options: TranslationOptions) -> Translator:
        if not options.filter.is_empty:
            return self.translator(replace(options, filter=Filter())).filtered(options.filter)
        decoding = self._settings.decoding
        beam = BeamSettings(decoding.beam, decoding.length_penalty, False, options.n_best)
        return Translator(
            [self._readers[name] for name in options.stores],
            model=self.model,
            method=options.method,
            decoding=DecodingSettings(beam=beam, batch_size=self._settings.batching.max_sentences),
        )


class StoreRegistry:
    """All stores of a server by name. No store is ready until `load` has loaded it."""

    def __init__(self, settings: ServerSettings, on_batch: BatchListener) -> None:
        self._settings, self._on_batch = settings, on_batch
        self._folders = {name: Path(folder).absolute() for name, folder in settings.stores.items()}
        self._stores: dict[str, Store] = {}
        self._runners: dict[str, ModelRunner] = {}
        self._writers: dict[str, ThreadPoolExecutor] = {}
        self.failure: NearMTError | None = None

    @property
    def names(self) -> list[str]:
        return list(self._folders)

    @property
    def runners(self) -> list[ModelRunner]:
        return list(dict.fromkeys(self._runners.values()))

    def is_ready(self, name: str | None = None) -> bool:
        """Whether a store, or every store, is loaded."""
        return name in self._runners if name is not None else len(self._runners) == len(self._folders)

    def load(self, on_loaded: Callable[[str], None] = lambda name: None) -> None:
        """Open every store and load the models; an error ends up in `failure`."""
        try:
            for name, folder in self._folders.items():
                runner = self._runner_for(open_finished(folder).manifest)
                runner.add_store(name, folder)
                # Fails now, not at the first request, if the store lacks the default method.
                runner.translator(TranslationOptions((name,), MethodRequest(self._settings.decoding.method)))
                self._stores[name] = Store(folder, model=runner.model)
                self._writers[name] = ThreadPoolExecutor(1, thread_name_prefix=f"writing-{name}")
                self._runners[name] = runner  # last, because it marks the store as ready
                on_loaded(name)
        except NearMTError as error:
            self.failure = error

    def _runner_for(self, manifest: Manifest) -> ModelRunner:
        settings = self._settings
        engine = settings.engine or engine_for(manifest, settings.device, settings.dtype)
        for runner in self.runners:
            if runner.fits(manifest, engine):
                return runner
        request = ModelRequest(
            settings.model, engine=engine, device=settings.device, dtype=settings.dtype, offline=settings.offline
        )
        model = load_model(manifest, request)
        return ModelRunner(model, settings, self._on_batch)

    def runner(self, name: str) -> ModelRunner:
        return self._runners[name]

    def facts(self, name: str) -> StoreFacts:
        """The store as it is on disk now."""
        manifest = self._stores[name].manifest
        return StoreFacts(
            name,
            manifest.languages.source,
            manifest.languages.target,
            available_methods(manifest),
            best_of(manifest),
            manifest.created_at,
            manifest.changed_at,
            manifest.version,
        )

    def counts(self, name: str) -> StoreCounts:
        """Sentences and entries without the removed ones."""
        snapshot = self._stores[name].snapshot()
        live = snapshot.live_sentences
        entries = int(snapshot.entry_mask(live).sum()) if snapshot.has_removals else len(snapshot)
        return StoreCounts(int(live.sum()), entries)

    def details(self, name: str) -> dict[str, Any]:
        """What `nearmt info` shows, without paths and addresses."""
        info = self._stores[name].info()
        model = Path(info["model"]["name"])
        return {
            **{key: info[key] for key in ("sentences", "entries", "units", "dropped", "origins", "health")},
            "model": model.name if model.is_absolute() else info["model"]["name"],
            "engine": self._runners[name].model.engine,
            "retrieval": info["retrieval"],
            "index": _without(info["index"], "file", "files", "uri", "collection"),
            "adaptation": _without(info["adaptation"], "files", "networks", "settings", "tried"),
        }

    def origins(self, name: str) -> list[Origin]:
        """Origins of the units, the largest first."""
        return origins(self._stores[name].snapshot())

    def writer(self, name: str) -> ThreadPoolExecutor:
        """The only thread that changes this store."""
        return self._writers[name]

    def add(self, name: str, pairs: Sequence[SentencePair], batch: EditBatch) -> Added:
        """Add or correct units. When it returns, they are on disk, and the next translation uses them."""
        return self._stores[name].add(list(pairs), batch=batch)

    def remove(
        self, name: str, *, unit_id: str | None, origin: str | None, source: str | None, target: str | None = None
    ) -> Removed:
        """Remove units. When it returns, no translation uses them any more."""
        return self._stores[name].remove(unit_id=unit_id, origin=origin, source=source, target=target)

    def public_error(self, error: NearMTError, files: Mapping[Path, str] | None = None) -> ApiError:
        """An error for the client: names of stores and of uploaded `files` replace their paths on the server."""
        found = from_nearmt(error)
        names = {folder: name for name, folder in self._folders.items()} | dict(files or {})
        message = found.message
        for path in sorted(names, key=lambda path: -len(str(path))):  # /a/b.xlf before /a/b
            message = message.replace(str(path), names[path])
        return ApiError(found.status_code, found.code, message, found.headers)

    def close(self, seconds: float) -> None:
        """Decode what is queued, then stop all threads."""
        for runner in self.runners:
            runner.batcher.close(seconds)
        for writer in self._writers.values():
            writer.shutdown(wait=True, cancel_futures=True)


def _without(described: dict[str, Any] | None, *names: str) -> dict[str, Any] | None:
    return None if described is None else {key: value for key, value in described.items() if key not in names}
