"""Building the index of a store and measuring its recall."""

from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from nearmt.datastore import (
    BOTH,
    LISTS,
    RETRIEVALS,
    SENTENCES,
    TOKENS,
    IndexRecord,
    Manifest,
    SentenceIndexRecord,
    Snapshot,
    storage_errors,
)
from nearmt.errors import SettingError
from nearmt.progress import Progress, silent
from nearmt.retrieval.index.faiss_index import build_index, check_factory, choose_factory, fewest_entries, save_index
from nearmt.retrieval.index.mapped import build_parts, bytes_in_memory, check_mapped, choose_mapped_factory
from nearmt.retrieval.index.milvus import (
    Connection,
    MilvusChoice,
    checked_uri,
    drop_collections,
    extend_collection,
    is_milvus,
    make_collection,
    owned_prefix,
)
from nearmt.retrieval.lists.building import (
    LIST_PROBES,
    build_lists,
    can_be_in_lists,
    check_keys,
    checked_lists,
    is_lists,
    lists_factory,
    suits_lists,
)
from nearmt.retrieval.modes import open_tokens
from nearmt.retrieval.recall import held_out_states, measure_recall
from nearmt.retrieval.search import PROBES, RERANKED
from nearmt.retrieval.sentences.building import build_sentence_index

_RECALL_QUERIES = 512
_MIN_ADDED = 1024  # new entries are added to a collection in batches of at least this size


@dataclass(frozen=True)
class IndexSettings:
    """The type of an index and how it is searched."""

    factory: str | None = None  # lists, a faiss factory string, or milvus:TYPE; None chooses by keys and size
    num_probes: int | None = None  # inverted lists that are searched; the default depends on the index
    reranked: int | None = None  # candidates whose distances are computed exactly; 0 keeps the distances of the index
    max_k: int = 32  # the K that recall is measured at
    memory: int | None = None  # bytes; a larger index is built in parts whose lists stay on disk
    uri: str | None = None  # of Milvus
    # Which indexes to build. That of sentences is always built; the default is tokens if one of its settings is given.
    retrieval: str | None = None

    def __post_init__(self) -> None:
        is_for_tokens = (self.factory, self.memory, self.uri) != (None, None, None)
        if self.retrieval is None:
            object.__setattr__(self, "retrieval", TOKENS if is_for_tokens else SENTENCES)
        if self.retrieval not in RETRIEVALS:
            raise SettingError(f"`retrieval` must be one of {', '.join(RETRIEVALS)}, not {self.retrieval}")
        if self.retrieval == SENTENCES and is_for_tokens:
            raise SettingError(
                "`index`, `memory` and `uri` are for an index of tokens: set `retrieval` to tokens or both"
            )
        if self.retrieval == SENTENCES and (self.num_probes, self.reranked) != (None, None):
            raise SettingError(
                "`num_probes` and `reranked` are for an index of tokens: set `retrieval` to tokens or both"
            )
        if is_lists(self.factory):
            object.__setattr__(self, "factory", checked_lists(str(self.factory)))
            if self.reranked:
                raise SettingError("`reranked` is not for lists, whose distances are exact: leave it out")
            if self.memory is not None:
                raise SettingError("`memory` is not for lists, which always stay on disk: leave it out")
        if is_milvus(self.factory) and self.uri is None:
            raise SettingError(f"`index` {self.factory} needs `uri`: the address of Milvus, or a file that ends in .db")
        if self.uri is not None:
            if not is_milvus(self.factory):
                raise SettingError("`uri` is the address of Milvus and needs `index` milvus")
            object.__setattr__(self, "uri", checked_uri(self.uri))
            MilvusChoice.parse(str(self.factory)).check(str(self.uri))
            if self.memory is not None:
                raise SettingError("`memory` limits an index in the store's folder and cannot be used with Milvus")

    @classmethod
    def of(cls, manifest: Manifest) -> "IndexSettings":
        """The settings that the index of a store was built with."""
        index = manifest.index
        if index is None:
            return cls(retrieval=manifest.retrieval)
        return cls(
            None if index.is_chosen else index.factory,
            None if index.num_probes == _default_probes(index) else index.num_probes,
            None if index.is_lists or index.reranked == RERANKED else index.reranked,
            index.recall.k if index.recall is not None else 32,
            index.memory,
            index.uri,
            BOTH if manifest.is_retrieval_chosen else manifest.retrieval,
        )

    @property
    def candidates(self) -> int:
        return RERANKED if self.reranked is None else self.reranked

    @property
    def milvus(self) -> MilvusChoice | None:
        """The type of the index in Milvus, if it is one."""
        return MilvusChoice.parse(self.factory) if self.factory is not None and is_milvus(self.factory) else None

    def uses_lists(self, snapshot: Snapshot) -> bool:
        """True if the entries of a snapshot are indexed in lists."""
        if self.factory is None:
            return self.memory is None and not self.reranked and suits_lists(snapshot)
        return is_lists(self.factory)

    def has_made(self, record: IndexRecord | None, snapshot: Snapshot) -> bool:
        """True if the index of a snapshot was made with these settings."""
        if record is None:
            return False
        if self.uses_lists(snapshot):
            same = lists_factory(self.factory, len(snapshot)) == record.factory
        else:
            same = (self.factory_for(len(snapshot), snapshot.key_code.dims), self.uri) == (record.factory, record.uri)
        probes = self.num_probes or _default_probes(record)
        reranked = self.reranked if self.reranked is not None or record.is_lists else RERANKED
        return same and probes == record.num_probes and (reranked or 0) == (record.reranked or 0)

    def factory_for(self, num_entries: int, width: int) -> str:
        if self.factory is None and self.is_mapped(num_entries, width):
            return choose_mapped_factory(num_entries, width)
        return str(self.milvus or self.factory or choose_factory(num_entries, width))

    def fewest_entries(self, width: int) -> int:
        """The minimum number of entries of the index."""
        is_faiss = self.factory is not None and self.milvus is None and not is_lists(self.factory)
        return fewest_entries(str(self.factory), width) if is_faiss else 0

    def is_mapped(self, num_entries: int, width: int) -> bool:
        """True if building the index in memory would exceed `memory`."""
        factory = self.factory or choose_factory(num_entries, width)
        return self.memory is not None and bytes_in_memory(factory, width, num_entries) > self.memory

    def check(self, width: int) -> None:
        """Refuse an index that faiss does not know or cannot keep on disk, and a Milvus that does not respond."""
        if self.milvus is not None:
            assert self.uri is not None
            with closing(Connection(self.uri)) as connection:
                connection.call("list_collections")
        elif self.factory is not None and not is_lists(self.factory):
            check_factory(self.factory, width)
            if self.memory is not None:
                check_mapped(self.factory, width)


def _default_probes(record: IndexRecord) -> int:
    return LIST_PROBES if record.is_lists else PROBES


def index_name(manifest: Manifest, ending: str = "") -> str:
    """The name of an index of this version of a store, without the ending of its files."""
    return f"index-{manifest.generation:06d}-{manifest.version:06d}" + (f"-{ending}" if ending else "")


@dataclass(frozen=True)
class Indexes:
    """The indexes of a store, and how translations use them."""

    index: IndexRecord | None  # of tokens
    sentence_index: SentenceIndexRecord
    retrieval: str
    is_retrieval_chosen: bool = False

    def as_dict(self) -> dict[str, Any]:
        return {
            "retrieval": self.retrieval,
            "index": self.index.as_dict() if self.index is not None else None,
            "sentence_index": asdict(self.sentence_index),
        }

    @property
    def files(self) -> tuple[str, ...]:
        return (*(self.index.files if self.index is not None else ()), *self.sentence_index.files)

    def added_to(self, manifest: Manifest, **changes: Any) -> Manifest:
        """The manifest of the commit that begins to use these indexes."""
        return manifest.changed(
            index=self.index,
            sentence_index=self.sentence_index,
            retrieval=self.retrieval,
            is_retrieval_chosen=self.is_retrieval_chosen,
            **changes,
        )


def index_snapshot(
    snapshot: Snapshot, settings: IndexSettings, progress: Progress = silent, home: Path | None = None
) -> Indexes:
    """Build the index of sentences, and that of tokens if wanted.

    `home` is the store's folder if the snapshot is in another one, as in a compaction. A store with both indexes goes
    on to use the one that its networks were trained with.
    """
    manifest = snapshot.manifest
    if is_lists(settings.factory):
        check_keys(manifest.key_type, is_reduced=can_be_in_lists(snapshot))
    with storage_errors(snapshot.folder):
        by_sentence = build_sentence_index(snapshot, index_name(manifest, "sentences"), progress)
    if settings.retrieval == SENTENCES:
        return Indexes(None, by_sentence, SENTENCES)
    assert settings.retrieval is not None
    is_chosen = settings.retrieval == BOTH
    used = manifest.retrieval if is_chosen and manifest.adaptation is not None else settings.retrieval
    return Indexes(_index_tokens(snapshot, settings, progress, home), by_sentence, used, is_chosen)


def _index_tokens(snapshot: Snapshot, settings: IndexSettings, progress: Progress, home: Path | None) -> IndexRecord:
    """Build an index of all entries, in the store's folder or in Milvus, and measure its recall."""
    total = len(snapshot)
    progress("indexing", 0, total)
    build = _in_milvus if settings.milvus is not None else _in_folder
    if settings.milvus is None and settings.uses_lists(snapshot):
        build = _in_lists
    record = replace(
        build(snapshot, settings, progress, home or snapshot.folder),
        is_chosen=settings.factory is None,
        memory=settings.memory,
    )
    if not total:
        return record
    indexed = Snapshot(snapshot.folder, replace(snapshot.manifest, index=record))
    states, excluded = held_out_states(snapshot, _RECALL_QUERIES)
    recall = measure_recall(open_tokens(indexed), states, excluded, min(settings.max_k, total))
    return replace(record, recall=recall)


def _in_lists(snapshot: Snapshot, settings: IndexSettings, progress: Progress, home: Path) -> IndexRecord:
    path = snapshot.folder / index_name(snapshot.manifest, LISTS)
    with storage_errors(snapshot.folder):
        return build_lists(snapshot, settings.factory, settings.num_probes or LIST_PROBES, path, progress)


def _in_folder(snapshot: Snapshot, settings: IndexSettings, progress: Progress, home: Path) -> IndexRecord:
    total, width = len(snapshot), snapshot.manifest.key_dims
    factory, path = settings.factory_for(total, width), snapshot.folder / f"{index_name(snapshot.manifest)}.faiss"

    def on_progress(done: int) -> None:
        progress("indexing", done, total)

    probes = settings.num_probes or PROBES
    with storage_errors(snapshot.folder):
        if settings.memory is not None and settings.is_mapped(total, width):
            record = build_parts(snapshot, factory, probes, settings.memory, path, on_progress)
        else:
            record = save_index(build_index(snapshot, factory, probes, on_progress), path)
    return replace(record, reranked=settings.candidates)


def _in_milvus(snapshot: Snapshot, settings: IndexSettings, progress: Progress, home: Path) -> IndexRecord:
    assert settings.milvus is not None
    assert settings.uri is not None
    total, probes = len(snapshot), settings.num_probes or PROBES
    record = make_collection(
        home, snapshot, settings.uri, settings.milvus, probes, lambda done: progress("indexing", done, total)
    )
    return replace(record, reranked=settings.candidates)


def extend_index(folder: Path, manifest: Manifest) -> Manifest:
    """Add new entries to an index in Milvus once there are enough, and commit; the caller holds the lock.

    A search compares entries that are not in the index one by one.
    """
    index = manifest.index
    if index is None or not index.is_milvus or manifest.num_entries - index.num_entries < _MIN_ADDED:
        return manifest
    extended = extend_collection(folder, Snapshot(folder, manifest))
    if extended is None:
        return manifest
    manifest = manifest.changed(index=extended)
    manifest.save(folder)
    return manifest


def forget_collections(folder: Path, before: Manifest, now: Manifest | None) -> None:
    """Drop the collections in Milvus that the store used before and does not use now."""
    old, new = before.index, now.index if now is not None else None
    if old is not None and old.is_milvus:
        assert old.uri is not None
        drop_collections(old.uri, owned_prefix(folder, before), new.collection if new is not None else None)
