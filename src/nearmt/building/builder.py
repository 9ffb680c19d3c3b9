"""From a translation memory to a store: read, force-decode, append segment by segment, index, measure."""

import contextlib
import itertools
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nearmt.building.compatibility import check_model, model_description
from nearmt.building.ingest import Ingestor, Known, Pending
from nearmt.building.publish import discard_store
from nearmt.corpus import DropCounts, SentencePair, check_readable, read_pairs
from nearmt.datastore import (
    KEY_TYPES,
    BuildProgress,
    Languages,
    Manifest,
    Snapshot,
    sha256_of,
    storage_errors,
    write_lock,
)
from nearmt.errors import CorpusError, SettingError
from nearmt.models import Seq2Seq
from nearmt.progress import Progress, silent
from nearmt.retrieval.indexing import IndexSettings, index_snapshot
from nearmt.retrieval.search import PROBES, RERANKED

_READ_PAIRS = 1024
# What the tally of the ingestor calls each reason to store no new sentence. Of a duplicate the origin is kept.
_DROPPED = {"unchanged": "duplicate", "duplicate": "duplicate", "replaced": "replaced", "too long": "too long"}


@dataclass(frozen=True)
class BuildSettings:
    """How a store is made. Size is never given: it follows from the memory."""

    key_type: str = "float16"
    segment_entries: int = 65_536  # a commit at least so often
    batch_tokens: int = 4096  # padded tokens a forward pass
    index: str | None = None  # a faiss factory string, or milvus:TYPE; chosen by size if None
    uri: str | None = None  # where Milvus is
    num_probes: int = PROBES
    reranked: int = RERANKED  # candidates whose distances are measured exactly; 0 keeps the index's own
    max_k: int = 32  # the K that recall is measured at
    memory: int | None = None  # bytes that the index may take; a larger one stays on disk
    keep_identical: bool = False

    @property
    def indexing(self) -> IndexSettings:
        return IndexSettings(self.index, self.num_probes, self.reranked, self.max_k, self.memory, self.uri)

    def __post_init__(self) -> None:
        if self.key_type not in KEY_TYPES:
            raise SettingError(f"keys can be {' or '.join(KEY_TYPES)}, not {self.key_type}")
        _ = self.indexing  # what does not go together is refused now


def describe_inputs(paths: Sequence[str | Path]) -> list[dict[str, Any]]:
    """Name, size and checksum of each input, by which a resumed build knows its memory again."""
    described: list[dict[str, Any]] = []
    for path in map(Path, paths):
        if str(path) == "-":
            described.append({"name": "-"})
            continue
        check_readable(path)
        if path.is_file():
            described.append({"name": path.name, "bytes": path.stat().st_size, "sha256": sha256_of(path)})
        else:
            described.append({"name": "-"})  # a pipe: gone once it is read, as standard input is
    return described


class Builder:
    """Builds one store in a folder of its own, in steps that can each be cut off and gone on with."""

    def __init__(
        self,
        folder: Path,
        model: Seq2Seq,
        settings: BuildSettings,
        progress: Progress = silent,
        ingestor: Ingestor | None = None,  # another way to decode than in this process
    ) -> None:
        self.folder, self.model, self.settings, self.progress = folder, model, settings, progress
        self.ingestor = ingestor or Ingestor(model, settings.batch_tokens)

    def start(self, inputs: Sequence[str | Path], format: str | None = None) -> None:
        """Begin anew: whatever unfinished build stands in the folder is removed.

        Files are read once through before anything is decoded, so that a fault at the end of a large memory is known
        in seconds and not in hours, and the rest of the way can be told.
        """
        self.settings.indexing.check(self.model.width)
        described = describe_inputs(inputs)
        is_stream = any(item["name"] == "-" for item in described)
        num_pairs = None if is_stream else self._count(inputs, format)
        manifest = Manifest(
            model=model_description(self.model),
            languages=Languages(self.model.source_lang, self.model.target_lang),
            width=self.model.width,
            key_type=self.settings.key_type,
            build=BuildProgress(described, self._reading(format), num_pairs),
        )
        with storage_errors(self.folder):
            if self.folder.exists():
                discard_store(self.folder)
            self.folder.mkdir(parents=True)
        manifest.save(self.folder)

    def _count(self, inputs: Sequence[str | Path], format: str | None) -> int:
        count = 0
        for count, _ in enumerate(self._read(inputs, format, DropCounts()), 1):
            if count % _READ_PAIRS == 0:
                self.progress("reading", count, None)
        return count

    def _read(self, inputs: Sequence[str | Path], format: str | None, drops: DropCounts) -> Iterator[SentencePair]:
        return read_pairs(
            inputs, source_lang=self.model.source_lang, target_lang=self.model.target_lang, drops=drops, format=format,
            keep_identical=self.settings.keep_identical,
        )  # fmt: skip

    def _reading(self, format: str | None) -> dict[str, Any]:
        return {"format": format, "keep_identical": self.settings.keep_identical}

    def discard(self) -> None:
        """Leave nothing behind."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def check_resumable(self, inputs: Sequence[str | Path], format: str | None = None) -> None:
        """Refuse to go on with another memory, model, way of reading or kind of key."""
        self.settings.indexing.check(self.model.width)
        manifest = Manifest.load(self.folder)
        check_model(manifest, self.model, self.folder)
        if manifest.model["engine"] != self.model.engine:
            raise SettingError(
                f"{self.folder} was begun with the engine {manifest.model['engine']}, not {self.model.engine}: "
                "go on with the same"
            )
        if manifest.key_type != self.settings.key_type:
            raise SettingError(f"{self.folder} was begun with {manifest.key_type} keys: go on with the same")
        described = describe_inputs(inputs)
        if described != manifest.build.inputs:
            raise SettingError(
                f"{self.folder} was begun with {_names(manifest.build.inputs)}, which is not what was given now "
                f"({_names(described)}, or its content changed): start over with `force`"
            )
        if manifest.build.reading != self._reading(format):
            raise SettingError(f"{self.folder} was begun with {manifest.build.reading}: go on with the same")
        if any(item["name"] == "-" for item in described) and not manifest.build.is_complete:
            raise SettingError("a build from standard input cannot be resumed: start over with `force`")

    def decode(self, inputs: Sequence[str | Path], format: str | None = None) -> Manifest:
        """Read and force-decode what is not yet stored. Every segment is committed as it is done."""
        with write_lock(self.folder):
            manifest = Manifest.load(self.folder)
            if manifest.build.is_complete:
                return manifest
            drops = DropCounts()
            pairs = self._read(inputs, format, drops)
            pairs_read = manifest.build.pairs_read
            for _ in itertools.islice(pairs, pairs_read):
                pass
            own = Counter(manifest.build.dropped)
            known = Known(Snapshot(self.folder, manifest))
            pieces = self.ingestor.segments(pairs, known, Pending.behind(manifest), self.settings.segment_entries)
            with contextlib.closing(self.ingestor.append_each(self.folder, manifest, pieces)) as appended:
                for pending, after in appended:
                    pairs_read += pending.pairs_read
                    for reason, count in pending.tally.items():
                        if reason in _DROPPED:
                            own[_DROPPED[reason]] += count
                    progress = replace(manifest.build, pairs_read=pairs_read, dropped=dict(own))
                    manifest = manifest.changed(extent=after.extent, key_range=after.key_range, build=progress)
                    manifest.save(self.folder)
                    self.progress("decoding", pairs_read, manifest.build.num_pairs)
            if not manifest.num_sentences:
                told = ", ".join(f"{n} {reason}" for reason, n in {**drops.as_dict(), **own}.items())
                raise CorpusError(f"no usable pair in {_names(manifest.build.inputs)}" + (f" ({told})" if told else ""))
            dropped = dict(own + Counter(drops.as_dict()))
            finished = replace(manifest.build, pairs_read=pairs_read, dropped=dropped, is_complete=True)
            manifest = manifest.changed(build=finished)
            manifest.save(self.folder)
            return manifest

    def build_index(self) -> Manifest:
        """Index the stored keys, measure what the index misses, and commit both."""
        with write_lock(self.folder):
            manifest = Manifest.load(self.folder)
            settings = self.settings.indexing
            there, factory = manifest.index, settings.factory_for(manifest.num_entries, manifest.width)
            wanted = (factory, settings.num_probes, settings.reranked, settings.uri)
            if there is not None and wanted == (there.factory, there.num_probes, there.reranked, there.uri):
                return manifest
            index = index_snapshot(Snapshot(self.folder, manifest), settings, self.progress)
            manifest = manifest.changed(index=index, adaptation=None)
            manifest.save(self.folder)
            return manifest


def _names(inputs: Sequence[dict[str, Any]]) -> str:
    return ", ".join("standard input" if item["name"] == "-" else str(item["name"]) for item in inputs)
