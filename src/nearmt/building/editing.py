"""Adding, correcting and removing pairs of a store. When a call returns, its change is on disk."""

import itertools
import logging
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from nearmt.building.compaction import remove_leftovers
from nearmt.building.corrections import EditBatch
from nearmt.building.ingest import Ingestor, PendingCommit, StoredPairs
from nearmt.corpus import SentencePair
from nearmt.datastore import CommitData, Manifest, Snapshot, append_commit, date_of, units_matching, write_lock
from nearmt.errors import IndexUnavailableError, MissingExtraError, SettingError, StoreError
from nearmt.models import Seq2Seq
from nearmt.progress import Progress, silent
from nearmt.retrieval.indexing import extend_index

_LOCK_TIMEOUT = 30.0  # seconds to wait for another writer
_PAIRS_PER_COMMIT = 256  # the lock is released after each commit, so that other writers get their turn
_BATCH_TOKENS = 4096
_RETRY_SECONDS = 60.0  # until the next call to a Milvus that did not answer: other writers wait for the lock
_MAX_RECENT = 65_536  # units kept in dictionaries before the store is read again
_MAX_REPORTED = 1000  # removed units that are listed
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Added:
    """What became of the pairs of a call."""

    added: int  # new sentences
    replaced: int  # corrections: the unit, or the source from the same origin, had another target
    duplicates: int  # the pair was stored with another unit or origin; this one was added to it
    unchanged: int  # the pair was stored with this unit
    too_long: int
    dropped: dict[str, int] = field(default_factory=dict)  # pairs left out while reading, by reason
    competing: int = 0  # added pairs whose source has another target from another origin
    competing_origins: tuple[str, ...] = ()  # those origins, the most frequent first

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Removed:
    """What was removed."""

    units: int
    sentences: int
    pairs: tuple[SentencePair, ...] = field(default=(), repr=False, compare=False)  # for undoing; empty if too many

    def as_dict(self) -> dict[str, int]:
        return {"units": self.units, "sentences": self.sentences}


class Editor:
    """Changes one store. Keeps its hashes in memory between calls, so small additions to a large store are fast."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._stored: StoredPairs | None = None
        self._version: tuple[str, int] | None = None  # of the store when `_stored` was read
        self._next_index_update = 0.0  # monotonic time; in the future if Milvus did not answer

    def add(
        self, pairs: Iterable[SentencePair], model: Seq2Seq, progress: Progress = silent, batch: EditBatch | None = None
    ) -> Added:
        """Add pairs, a few hundred per commit.

        A pair replaces the stored unit with the same unit id, origin and source. A pair without a unit id replaces the
        units that were stored with its source and origin before the batch (by default, before this call). If the call
        is interrupted, the commits made so far stay; repeating the call adds the rest.
        """
        batch = batch or EditBatch()
        if isinstance(pairs, Sequence):
            batch.include(pairs)
        tally: Counter[str] = Counter()
        competing: Counter[str] = Counter()
        ingestor = Ingestor(model, _BATCH_TOKENS)
        unread, total = iter(pairs), len(pairs) if isinstance(pairs, Sequence) else None
        done = 0
        while chunk := list(itertools.islice(unread, _PAIRS_PER_COMMIT)):
            with write_lock(self.folder, wait=_LOCK_TIMEOUT):
                pending = self._commit(ingestor, chunk, batch)
            tally += pending.tally
            competing += pending.competing
            done += len(chunk)
            progress("adding", done, total)
        return Added(
            tally["added"],
            tally["replaced"],
            tally["duplicate"],
            tally["unchanged"],
            tally["too long"],
            competing=tally["competing"],
            competing_origins=tuple(origin for origin, _ in competing.most_common()),
        )

    def _commit(self, ingestor: Ingestor, chunk: list[SentencePair], batch: EditBatch) -> PendingCommit:
        batch.include(chunk)
        manifest = self._refresh(with_sources=any(pair.unit_id is None for pair in chunk) and not batch.keep_both)
        assert self._stored is not None
        stored, self._stored = self._stored, None  # read again if the commit fails
        (pending,) = ingestor.pending_commits(chunk, stored, PendingCommit.after(manifest), 1 << 62, batch)
        if not pending.is_empty:
            manifest = ingestor.append(self.folder, manifest, pending).changed()
            manifest.save(self.folder)
            manifest = self._update_remote_index(manifest)
        self._stored, self._version = stored, (manifest.created_at, manifest.version)
        return pending

    def _update_remote_index(self, manifest: Manifest) -> Manifest:
        """Add new entries to an index in Milvus. If that fails now, a later commit will do it."""
        if time.monotonic() < self._next_index_update:
            return manifest
        try:
            return extend_index(self.folder, manifest)
        except (IndexUnavailableError, MissingExtraError, StoreError) as error:
            self._next_index_update = time.monotonic() + _RETRY_SECONDS
            log.warning("new entries are not in the index of %s yet: %s", self.folder, error)
            return manifest

    def _refresh(self, *, with_sources: bool) -> Manifest:
        """Load the manifest, and read the store again if it was changed elsewhere."""
        manifest, stored = Manifest.load(self.folder), self._stored
        is_current = self._version == (manifest.created_at, manifest.version)
        if (
            stored is None
            or not is_current
            or stored.num_recent > _MAX_RECENT
            or (with_sources and stored.by_source is None)
        ):
            remove_leftovers(self.folder, manifest)
            self._stored = StoredPairs(Snapshot(self.folder, manifest), with_sources=with_sources)
        return manifest

    def remove(
        self,
        *,
        unit_id: str | None = None,
        origin: str | None = None,
        source: str | None = None,
        target: str | None = None,
    ) -> Removed:
        """Remove the units that match all given values. A sentence is removed with its last unit."""
        if unit_id is None and origin is None and source is None and target is None:
            raise SettingError("say what to remove with `unit_id`, `origin`, `source` or `target`")
        with write_lock(self.folder, wait=_LOCK_TIMEOUT):
            self._stored = None
            manifest = Manifest.load(self.folder)
            remove_leftovers(self.folder, manifest)
            before = Snapshot(self.folder, manifest)
            gone = units_matching(before, unit_id=unit_id, origin=origin, source=source, target=target)
            if not len(gone):
                return Removed(0, 0)
            data = CommitData.without_entries(manifest.width, removed_units=gone.tolist())
            manifest = append_commit(self.folder, manifest, data).changed()
            manifest.save(self.folder)
            after = Snapshot(self.folder, manifest)
            pairs = tuple(_pair(before, number) for number in gone.tolist()) if len(gone) <= _MAX_REPORTED else ()
            return Removed(len(gone), int(before.live_sentences.sum() - after.live_sentences.sum()), pairs)


def _pair(snapshot: Snapshot, number: int) -> SentencePair:
    """A unit as a pair that restores it when it is added again, its date included."""
    unit = snapshot.unit(number)
    text = snapshot.text(unit.sentence_id)
    return SentencePair(text.source, text.target, unit.unit_id, unit.origin, unit.changed_at or date_of(unit.time))
