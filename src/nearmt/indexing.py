"""Making the index of a store, and measuring what it misses."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nearmt.index.faiss_index import build_index, check_factory, choose_factory, save_index
from nearmt.index.parts import build_parts, bytes_in_memory, check_mapped, choose_mapped_factory
from nearmt.progress import Progress, silent
from nearmt.recall import held_out_states, measure_recall
from nearmt.retriever import PROBES, RERANKED, Retriever
from nearmt.store import Manifest, Snapshot, storage_errors

_RECALL_QUERIES = 512


@dataclass(frozen=True)
class IndexSettings:
    """Which index is made and how it is searched."""

    factory: str | None = None  # a faiss factory string; chosen by size if None
    num_probes: int = PROBES
    reranked: int = RERANKED  # candidates whose distances are measured exactly; 0 keeps the index's own
    max_k: int = 32  # the K that recall is measured at
    memory: int | None = None  # bytes; an index that takes more is made in parts whose lists stay on disk

    @classmethod
    def of(cls, manifest: Manifest) -> "IndexSettings":
        """What the index of a store was made with."""
        index = manifest.index or {}
        factory = None if index.get("is_chosen", True) else index["factory"]
        asked = {name: index[name] for name in ("num_probes", "reranked", "memory") if name in index}
        return cls(factory, max_k=index.get("recall", {}).get("k", 32), **asked)

    def factory_for(self, num_entries: int, width: int) -> str:
        if self.factory is None and self.is_mapped(num_entries, width):
            return choose_mapped_factory(num_entries, width)
        return self.factory or choose_factory(num_entries, width)

    def is_mapped(self, num_entries: int, width: int) -> bool:
        """Whether the index would take more memory than there may be."""
        factory = self.factory or choose_factory(num_entries, width)
        return self.memory is not None and bytes_in_memory(factory, width, num_entries) > self.memory

    def check(self, width: int) -> None:
        """Refuse a factory string that faiss does not understand, or that the memory would not do for."""
        if self.factory is not None:
            check_factory(self.factory, width)
            if self.memory is not None:
                check_mapped(self.factory, width)


def index_name(manifest: Manifest) -> str:
    """The file of an index made of a store as it is now; no other time gives the same."""
    return f"index-{manifest.generation:06d}-{manifest.version:06d}.faiss"


def index_snapshot(snapshot: Snapshot, settings: IndexSettings, progress: Progress = silent) -> dict[str, Any]:
    """Make an index of all entries, write it into the store's folder and measure what it misses.

    Gives what the manifest should say of it.
    """
    total, folder = len(snapshot), snapshot.folder
    factory = settings.factory_for(total, snapshot.manifest.width)
    progress("indexing", 0, total)
    with storage_errors(folder):
        description = {
            **_made(snapshot, factory, settings, lambda done: progress("indexing", done, total)),
            "reranked": settings.reranked,
            "is_chosen": settings.factory is None,
            **({} if settings.memory is None else {"memory": settings.memory}),
        }
    if not total:
        return description
    indexed = Snapshot(folder, replace(snapshot.manifest, index=description))
    states, excluded = held_out_states(snapshot, _RECALL_QUERIES)
    recall = measure_recall(Retriever(indexed), states, excluded, min(settings.max_k, total))
    return {**description, "recall": recall.as_dict()}


def _made(
    snapshot: Snapshot, factory: str, settings: IndexSettings, on_progress: Callable[[int], None]
) -> dict[str, Any]:
    """Make the index and write it. What grew in memory is given back: read again, it is as large as it needs to be."""
    path: Path = snapshot.folder / index_name(snapshot.manifest)
    if settings.memory is not None and settings.is_mapped(len(snapshot), snapshot.manifest.width):
        return build_parts(snapshot, factory, settings.num_probes, settings.memory, path, on_progress)
    return save_index(build_index(snapshot, factory, settings.num_probes, on_progress), path)
