"""Making the index of a store, and measuring what it misses."""

from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from nearmt.datastore import IndexRecord, Manifest, Snapshot, storage_errors
from nearmt.errors import SettingError
from nearmt.progress import Progress, silent
from nearmt.retrieval.index.faiss_index import build_index, check_factory, choose_factory, fewest_entries, save_index
from nearmt.retrieval.index.milvus import (
    Connection,
    MilvusChoice,
    checked_uri,
    drop_collections,
    is_milvus,
    make_collection,
    owned_prefix,
    take_in,
)
from nearmt.retrieval.index.parts import build_parts, bytes_in_memory, check_mapped, choose_mapped_factory
from nearmt.retrieval.recall import held_out_states, measure_recall
from nearmt.retrieval.search import PROBES, RERANKED, Retriever

_RECALL_QUERIES = 512
_CARRIED = 1024  # so many new entries are carried into a collection at once; until then they are compared one by one


@dataclass(frozen=True)
class IndexSettings:
    """Which index is made and how it is searched."""

    factory: str | None = None  # a faiss factory string, or milvus:TYPE; chosen by size if None
    num_probes: int = PROBES
    reranked: int = RERANKED  # candidates whose distances are measured exactly; 0 keeps the index's own
    max_k: int = 32  # the K that recall is measured at
    memory: int | None = None  # bytes; an index that takes more is made in parts whose lists stay on disk
    uri: str | None = None  # where Milvus is

    def __post_init__(self) -> None:
        if is_milvus(self.factory) and self.uri is None:
            raise SettingError(f"--index {self.factory} needs --uri: where Milvus is, or a file that ends in .db")
        if self.uri is not None:
            if not is_milvus(self.factory):
                raise SettingError("--uri says where Milvus is: it goes with --index milvus")
            object.__setattr__(self, "uri", checked_uri(self.uri))
            MilvusChoice.parse(str(self.factory)).check(str(self.uri))
            if self.memory is not None:
                raise SettingError("--memory bounds an index in the store's folder: it does not go with Milvus")

    @classmethod
    def of(cls, manifest: Manifest) -> "IndexSettings":
        """What the index of a store was made with."""
        index = manifest.index
        if index is None:
            return cls()
        return cls(
            None if index.is_chosen else index.factory,
            index.num_probes,
            RERANKED if index.reranked is None else index.reranked,
            index.recall.k if index.recall is not None else 32,
            index.memory,
            index.uri,
        )

    @property
    def milvus(self) -> MilvusChoice | None:
        """Which of Milvus's indexes it is, if it is one."""
        return MilvusChoice.parse(self.factory) if self.factory is not None and is_milvus(self.factory) else None

    def factory_for(self, num_entries: int, width: int) -> str:
        if self.factory is None and self.is_mapped(num_entries, width):
            return choose_mapped_factory(num_entries, width)
        return str(self.milvus or self.factory or choose_factory(num_entries, width))

    def fewest_entries(self, width: int) -> int:
        """How many entries the index needs at least."""
        return fewest_entries(self.factory, width) if self.factory is not None and self.milvus is None else 0

    def is_mapped(self, num_entries: int, width: int) -> bool:
        """Whether the index would take more memory than there may be."""
        factory = self.factory or choose_factory(num_entries, width)
        return self.memory is not None and bytes_in_memory(factory, width, num_entries) > self.memory

    def check(self, width: int) -> None:
        """Refuse what faiss does not understand, or the memory would not do for, and a Milvus that is not there."""
        if self.milvus is not None:
            assert self.uri is not None
            with closing(Connection(self.uri)) as connection:
                connection.call("list_collections")
        elif self.factory is not None:
            check_factory(self.factory, width)
            if self.memory is not None:
                check_mapped(self.factory, width)


def index_name(manifest: Manifest) -> str:
    """The file of an index made of a store as it is now; no other time gives the same."""
    return f"index-{manifest.generation:06d}-{manifest.version:06d}.faiss"


def index_snapshot(
    snapshot: Snapshot, settings: IndexSettings, progress: Progress = silent, home: Path | None = None
) -> IndexRecord:
    """Make an index of all entries, in the store's folder or in Milvus, and measure what it misses.

    Gives what the manifest should say of it. `home` is the store's folder, where the snapshot is of another.
    """
    total = len(snapshot)
    progress("indexing", 0, total)
    made = _in_milvus if settings.milvus is not None else _in_folder
    record = replace(
        made(snapshot, settings, progress, home or snapshot.folder),
        reranked=settings.reranked,
        is_chosen=settings.factory is None,
        memory=settings.memory,
    )
    if not total:
        return record
    indexed = Snapshot(snapshot.folder, replace(snapshot.manifest, index=record))
    states, excluded = held_out_states(snapshot, _RECALL_QUERIES)
    recall = measure_recall(Retriever(indexed), states, excluded, min(settings.max_k, total))
    return replace(record, recall=recall)


def _in_folder(snapshot: Snapshot, settings: IndexSettings, progress: Progress, home: Path) -> IndexRecord:
    """What grew in memory is let go: read again, it is as large as it needs to be."""
    total, width = len(snapshot), snapshot.manifest.width
    factory, path = settings.factory_for(total, width), snapshot.folder / index_name(snapshot.manifest)

    def heard(done: int) -> None:
        progress("indexing", done, total)

    with storage_errors(snapshot.folder):
        if settings.memory is not None and settings.is_mapped(total, width):
            return build_parts(snapshot, factory, settings.num_probes, settings.memory, path, heard)
        return save_index(build_index(snapshot, factory, settings.num_probes, heard), path)


def _in_milvus(snapshot: Snapshot, settings: IndexSettings, progress: Progress, home: Path) -> IndexRecord:
    assert settings.milvus is not None
    assert settings.uri is not None
    total = len(snapshot)
    return make_collection(
        home, snapshot, settings.uri, settings.milvus, settings.num_probes,
        lambda done: progress("indexing", done, total),
    )  # fmt: skip


def carried(folder: Path, manifest: Manifest) -> Manifest:
    """Carry what gathered since into the index, if Milvus holds it, and commit that; the caller holds the lock.

    The store is whole without it: what is not carried is compared one by one.
    """
    index = manifest.index
    if index is None or not index.is_milvus or manifest.num_entries - index.num_entries < _CARRIED:
        return manifest
    extended = take_in(folder, Snapshot(folder, manifest))
    if extended is None:
        return manifest
    manifest = manifest.changed(index=extended)
    manifest.save(folder)
    return manifest


def forget_collections(folder: Path, before: Manifest, now: Manifest | None) -> None:
    """Drop what a folder's store had in Milvus and does not name any more."""
    old, new = before.index, now.index if now is not None else None
    if old is not None and old.is_milvus:
        assert old.uri is not None
        drop_collections(old.uri, owned_prefix(folder, before), new.collection if new is not None else None)
