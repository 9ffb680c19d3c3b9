"""Building a store from a translation memory: read, force-decode, append commit by commit, index."""

import contextlib
import itertools
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nearmt.building.compatibility import check_model, model_description
from nearmt.building.ingest import Ingestor, PendingCommit, StoredPairs
from nearmt.building.publish import discard_store
from nearmt.corpus import DropCounts, SentencePair, check_readable, read_pairs
from nearmt.datastore import (
    DIMS,
    KEY_TYPES,
    SENTENCES,
    BuildProgress,
    Languages,
    Manifest,
    Snapshot,
    has_manifest,
    sha256_of,
    storage_errors,
    write_lock,
)
from nearmt.errors import CorpusError, SettingError
from nearmt.models import Seq2Seq
from nearmt.progress import Progress, silent
from nearmt.retrieval.indexing import IndexSettings, index_snapshot
from nearmt.retrieval.lists.building import check_keys, is_lists

_READ_PAIRS = 1024
# Reasons of the ingestor not to store a new sentence → reasons in the manifest.
_DROPPED = {"unchanged": "duplicate", "duplicate": "duplicate", "replaced": "replaced", "too long": "too long"}


@dataclass(frozen=True)
class BuildSettings:
    """Settings of a build."""

    key_type: str = "int8"
    dims: int | None = DIMS  # of the stored keys; None stores states whole
    retrieval: str | None = None  # tokens, sentences, or both to choose in training; see IndexSettings
    segment_entries: int = 65_536  # entries per commit, roughly
    batch_tokens: int = 4096  # padded tokens per forward pass
    index: str | None = None  # lists, a faiss factory string, or milvus:TYPE; None chooses by keys and size
    uri: str | None = None  # address of Milvus
    num_probes: int | None = None  # the default depends on the index, like the next one's
    reranked: int | None = None  # candidates whose distances are computed exactly; 0 uses the index's own distances
    max_k: int = 32  # the K that recall is measured at
    memory: int | None = None  # bytes of memory for the index; a larger index stays on disk
    keep_identical: bool = False  # keep pairs whose source and target are the same

    @property
    def indexing(self) -> IndexSettings:
        return IndexSettings(
            self.index, self.num_probes, self.reranked, self.max_k, self.memory, self.uri, self.retrieval
        )

    def __post_init__(self) -> None:
        if self.dims is not None and self.dims < 1:
            raise SettingError(f"`dims` must be at least 1, not {self.dims}")
        if self.key_type not in KEY_TYPES:
            raise SettingError(f"`key_type` must be one of {', '.join(KEY_TYPES)}, not {self.key_type}")
        _ = self.indexing  # checks its settings


def describe_inputs(paths: Sequence[str | Path]) -> list[dict[str, Any]]:
    """Name, size and checksum of each input, to check that a resumed build reads the same files."""
    described: list[dict[str, Any]] = []
    for path in map(Path, paths):
        if str(path) == "-":
            described.append({"name": "-"})
            continue
        check_readable(path)
        if path.is_file():
            described.append({"name": path.name, "bytes": path.stat().st_size, "sha256": sha256_of(path)})
        else:
            described.append({"name": "-"})  # a pipe can be read only once, like standard input
    return described


class Builder:
    """Builds one store in a folder. Each step can be interrupted and resumed."""

    def __init__(
        self,
        folder: Path,
        model: Seq2Seq,
        settings: BuildSettings,
        progress: Progress = silent,
        ingestor: Ingestor | None = None,  # decodes in this process by default
    ) -> None:
        self.folder, self.model, self.settings, self.progress = folder, model, settings, progress
        self.ingestor = ingestor or Ingestor(model, settings.batch_tokens)

    def run(self, inputs: Sequence[str | Path], format: str | None = None, *, resume: bool = False) -> None:
        """Decode and index. A failed build can be resumed, unless the inputs of a new build are at fault."""
        is_resumed = resume and has_manifest(self.folder)
        if is_resumed:
            self.check_resumable(inputs, format)
        else:
            self.start(inputs, format)
        try:
            self.decode(inputs, format)
        except CorpusError:
            if not is_resumed:
                shutil.rmtree(self.folder, ignore_errors=True)
            raise
        self.build_index()

    def _check_index(self) -> None:
        """Refuse impossible settings before any work."""
        dims, width = self.settings.dims, self.model.width
        if is_lists(self.settings.index):
            check_keys(self.settings.key_type, is_reduced=dims is not None and dims < width)
        self.settings.indexing.check(width)

    def start(self, inputs: Sequence[str | Path], format: str | None = None) -> None:
        """Start a new build; an unfinished build in the folder is deleted.

        All files are read once before decoding starts, so that an error at the end of a large memory is reported
        within seconds and the progress has a total.
        """
        self._check_index()
        described = describe_inputs(inputs)
        is_stream = any(item["name"] == "-" for item in described)
        num_pairs = None if is_stream else self._count(inputs, format)
        manifest = Manifest(
            model=model_description(self.model),
            languages=Languages(self.model.source_lang, self.model.target_lang),
            width=self.model.width,
            key_type=self.settings.key_type,
            dims=self.settings.dims,
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
            inputs,
            source_lang=self.model.source_lang,
            target_lang=self.model.target_lang,
            drops=drops,
            format=format,
            keep_identical=self.settings.keep_identical,
        )

    def _reading(self, format: str | None) -> dict[str, Any]:
        return {"format": format, "keep_identical": self.settings.keep_identical}

    def check_resumable(self, inputs: Sequence[str | Path], format: str | None = None) -> None:
        """Refuse to resume a build with other inputs, another model or other settings."""
        self._check_index()
        manifest = Manifest.load(self.folder)
        check_model(manifest, self.model, self.folder)
        if manifest.model["engine"] != self.model.engine:
            raise SettingError(
                f"{self.folder} was started with the engine {manifest.model['engine']}: "
                f"it cannot be resumed with {self.model.engine}"
            )
        if manifest.key_type != self.settings.key_type:
            raise SettingError(
                f"{self.folder} was started with `key_type` {manifest.key_type}: "
                f"it cannot be resumed with {self.settings.key_type}"
            )
        if manifest.dims != self.settings.dims:
            raise SettingError(
                f"{self.folder} was started with `dims` {manifest.dims or 'full'}: "
                f"it cannot be resumed with {self.settings.dims or 'full'}"
            )
        described = describe_inputs(inputs)
        if described != manifest.build.inputs:
            raise SettingError(
                f"{self.folder} was started with {_names(manifest.build.inputs)} and cannot be resumed with "
                f"{_names(described)}, or the content changed: start over with `force`"
            )
        if manifest.build.reading != self._reading(format):
            reading = ", ".join(f"`{name}` {value}" for name, value in manifest.build.reading.items())
            raise SettingError(f"{self.folder} was started with {reading}: resume it with the same settings")
        if any(item["name"] == "-" for item in described) and not manifest.build.is_complete:
            raise SettingError("a build from standard input cannot be resumed: start over with `force`")

    def decode(self, inputs: Sequence[str | Path], format: str | None = None) -> Manifest:
        """Read and force-decode the pairs that are not stored yet, commit by commit."""
        with write_lock(self.folder):
            manifest = Manifest.load(self.folder)
            if manifest.build.is_complete:
                return manifest
            drops = DropCounts()
            pairs = self._read(inputs, format, drops)
            pairs_read = manifest.build.pairs_read
            for _ in itertools.islice(pairs, pairs_read):
                pass
            dropped = Counter(manifest.build.dropped)
            stored, first = StoredPairs(Snapshot(self.folder, manifest)), PendingCommit.after(manifest)
            commits = self.ingestor.pending_commits(pairs, stored, first, self.settings.segment_entries)
            with contextlib.closing(self.ingestor.append_all(self.folder, manifest, commits)) as appended:
                for pending, after in appended:
                    pairs_read += pending.pairs_read
                    for reason, count in pending.tally.items():
                        if reason in _DROPPED:
                            dropped[_DROPPED[reason]] += count
                    progress = replace(manifest.build, pairs_read=pairs_read, dropped=dict(dropped))
                    manifest = manifest.changed(extent=after.extent, key_range=after.key_range, build=progress)
                    manifest.save(self.folder)
                    self.progress("decoding", pairs_read, manifest.build.num_pairs)
            if not manifest.num_sentences:
                reasons = ", ".join(f"{n} {reason}" for reason, n in {**drops.as_dict(), **dropped}.items())
                raise CorpusError(
                    f"no usable pair in {_names(manifest.build.inputs)}" + (f" ({reasons})" if reasons else "")
                )
            dropped += Counter(drops.as_dict())
            finished = replace(manifest.build, pairs_read=pairs_read, dropped=dict(dropped), is_complete=True)
            manifest = manifest.changed(build=finished)
            manifest.save(self.folder)
            return manifest

    def build_index(self) -> Manifest:
        """Index the stored keys, measure the recall of the index, and commit both."""
        with write_lock(self.folder):
            manifest = Manifest.load(self.folder)
            settings = self.settings.indexing
            snapshot = Snapshot(self.folder, manifest)
            if self._is_indexed(snapshot, settings):
                return manifest
            indexes = index_snapshot(snapshot, settings, self.progress)
            manifest = indexes.added_to(manifest, adaptation=None)
            manifest.save(self.folder)
            return manifest

    @staticmethod
    def _is_indexed(snapshot: Snapshot, settings: IndexSettings) -> bool:
        """True if an interrupted build has made these indexes already."""
        manifest = snapshot.manifest
        if manifest.sentence_index is None or settings.retrieval == SENTENCES:
            return manifest.sentence_index is not None and manifest.index is None
        if manifest.adaptation is None and manifest.retrieval != settings.retrieval:
            return False
        return settings.has_made(manifest.index, snapshot)


def _names(inputs: Sequence[dict[str, Any]]) -> str:
    return ", ".join("standard input" if item["name"] == "-" else str(item["name"]) for item in inputs)
