"""Changing a store: adding, correcting and removing. What a call has returned from is on disk."""

import itertools
import logging
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from nearmt.building.compaction import sweep_all
from nearmt.building.corrections import Batch
from nearmt.building.ingest import Ingestor, Known, Pending
from nearmt.corpus import SentencePair
from nearmt.datastore import Manifest, SegmentData, Snapshot, append_segment, date_of, units_matching, write_lock
from nearmt.errors import IndexUnavailableError, MissingExtraError, SettingError, StoreError
from nearmt.models import Seq2Seq
from nearmt.progress import Progress, silent
from nearmt.retrieval.indexing import extend_index

_PATIENCE = 30.0  # seconds to wait for another writer
_PAIRS_A_COMMIT = 256  # the lock is held for so many at a time, so that others get their turn
_BATCH_TOKENS = 4096
_RESTING_SECONDS = 60.0  # an index that did not answer is not asked again so soon, while others wait for the lock
_MAX_RECENT = 65_536  # units remembered one by one before the store is read again
_MAX_TOLD = 1000  # removed units that are told one by one
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Added:
    """What became of the pairs that were handed in."""

    added: int  # new sentences
    replaced: int  # corrections: the unit, or the source from the same origin, was there with another target
    duplicates: int  # the pair was there under another unit or origin, which is noted
    unchanged: int  # the pair was there under this unit
    too_long: int
    dropped: dict[str, int] = field(default_factory=dict)  # what was left out when the pairs were read, by reason
    competing: int = 0  # added pairs whose source has another target from another origin
    competing_origins: tuple[str, ...] = ()  # these origins, the most frequent first

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Removed:
    """What is no longer there."""

    units: int
    sentences: int
    pairs: tuple[SentencePair, ...] = field(default=(), repr=False, compare=False)  # to add again; none if too many

    def as_dict(self) -> dict[str, int]:
        return {"units": self.units, "sentences": self.sentences}


class Editor:
    """Changes one store. Remembers what is in it between calls, so that small additions to a large store are quick."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known: Known | None = None
        self._version: tuple[str, int] | None = None  # of the store that is known
        self._carries_from = 0.0  # a time by the clock; later than now if the index did not answer

    def add(
        self, pairs: Iterable[SentencePair], model: Seq2Seq, progress: Progress = silent, batch: Batch | None = None
    ) -> Added:
        """Add pairs, a few hundred a commit.

        A pair with the unit id, origin and source of one that is there replaces it. A pair without a unit id replaces
        those that were there with its source and origin before the batch: by default, before this call. If the call is
        cut off, the commits made so far stay, and the same call made again does the rest.
        """
        batch = batch or Batch()
        if isinstance(pairs, Sequence):
            batch.include(pairs)
        tally: Counter[str] = Counter()
        competing: Counter[str] = Counter()
        ingestor = Ingestor(model, _BATCH_TOKENS)
        waiting, total = iter(pairs), len(pairs) if isinstance(pairs, Sequence) else None
        done = 0
        while chunk := list(itertools.islice(waiting, _PAIRS_A_COMMIT)):
            with write_lock(self.folder, wait=_PATIENCE):
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

    def _commit(self, ingestor: Ingestor, chunk: list[SentencePair], batch: Batch) -> Pending:
        batch.include(chunk)
        manifest = self._look(with_sources=any(pair.unit_id is None for pair in chunk) and not batch.keep_both)
        assert self._known is not None
        known, self._known = self._known, None  # until the commit is through, it is not known what is known
        (pending,) = ingestor.segments(chunk, known, Pending.behind(manifest), 1 << 62, batch)
        if not pending.is_empty:
            manifest = ingestor.append(self.folder, manifest, pending).changed()
            manifest.save(self.folder)
            manifest = self._carry(manifest)
        self._known, self._version = known, (manifest.created_at, manifest.version)
        return pending

    def _carry(self, manifest: Manifest) -> Manifest:
        """Take new entries into an index that is elsewhere. What cannot be taken in now is with a later commit."""
        if time.monotonic() < self._carries_from:
            return manifest
        try:
            return extend_index(self.folder, manifest)
        except (IndexUnavailableError, MissingExtraError, StoreError) as error:
            self._carries_from = time.monotonic() + _RESTING_SECONDS
            log.warning("new entries are not in the index of %s yet: %s", self.folder, error)
            return manifest

    def _look(self, *, with_sources: bool) -> Manifest:
        manifest = Manifest.load(self.folder)
        known = self._known
        is_current = known is not None and self._version == (manifest.created_at, manifest.version)
        if known is None or not is_current or known.num_recent > _MAX_RECENT or (with_sources and not known.by_source):
            sweep_all(self.folder, manifest)
            self._known = Known(Snapshot(self.folder, manifest), with_sources=with_sources)
        return manifest

    def remove(
        self,
        *,
        unit_id: str | None = None,
        origin: str | None = None,
        source: str | None = None,
        target: str | None = None,
    ) -> Removed:
        """Remove the units that fit all that is given. A sentence goes when its last unit does."""
        if unit_id is None and origin is None and source is None and target is None:
            raise SettingError("say what to remove: a unit id, an origin, a source text or a target text")
        with write_lock(self.folder, wait=_PATIENCE):
            self._known = None
            manifest = Manifest.load(self.folder)
            sweep_all(self.folder, manifest)
            before = Snapshot(self.folder, manifest)
            gone = units_matching(before, unit_id=unit_id, origin=origin, source=source, target=target)
            if not len(gone):
                return Removed(0, 0)
            data = SegmentData.without_entries(manifest.width, removed_units=gone.tolist())
            manifest = append_segment(self.folder, manifest, data).changed()
            manifest.save(self.folder)
            after = Snapshot(self.folder, manifest)
            told = tuple(_pair(before, number) for number in gone.tolist()) if len(gone) <= _MAX_TOLD else ()
            return Removed(len(gone), int(before.live_sentences.sum() - after.live_sentences.sum()), told)


def _pair(snapshot: Snapshot, number: int) -> SentencePair:
    """A unit as it would have to come in to be the same again: also with the date that it came to have."""
    unit = snapshot.unit(number)
    text = snapshot.text(unit.sentence_id)
    return SentencePair(text.source, text.target, unit.unit_id, unit.origin, unit.changed_at or date_of(unit.time))
