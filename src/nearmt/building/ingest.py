"""What becomes of a pair that comes into a store: a new sentence, another place of a known one, or a correction."""

import itertools
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from nearmt.building.corrections import Batch, Competition, UnitsBySource
from nearmt.building.extract import decode_segment
from nearmt.corpus import SentencePair
from nearmt.datastore import (
    Manifest,
    SegmentData,
    Snapshot,
    SortedColumn,
    Unit,
    append_segment,
    identity_hash,
    pair_hash,
)
from nearmt.models import Seq2Seq

_READ_PAIRS = 1024
_MERGED = 65_536  # so many new ones are kept in a dictionary before they are sorted in


class _Places:
    """Hash → number, for what a snapshot holds and what has come since."""

    def __init__(self, column: np.ndarray, places: np.ndarray) -> None:
        self._sorted = SortedColumn(column, places)
        self._recent: dict[int, int] = {}

    def find(self, code: int) -> int | None:
        if code in self._recent:
            return self._recent[code]
        found = self._sorted.find(code)
        return int(found[-1]) if len(found) else None

    def note(self, code: int, place: int) -> None:
        self._recent[code] = place
        if len(self._recent) >= _MERGED:
            self._sorted = self._sorted.extended(list(self._recent), list(self._recent.values()))
            self._recent = {}


class Known:
    """The sentences and units of a store, by what they say. Sentences whose units are all gone can come back.

    A sentence that waits for its states is as good as unknown: when its pair comes in, it is stored anew with states.
    """

    def __init__(self, snapshot: Snapshot, *, with_sources: bool = False) -> None:
        alive = np.flatnonzero(snapshot.live_units)
        decoded = np.flatnonzero(snapshot.sentence_ends > snapshot.sentences["first_entry"])
        self.sentences = _Places(np.asarray(snapshot.sentences["pair_hash"])[decoded], decoded)
        waiting = np.flatnonzero(snapshot.waiting_sentences)
        codes = snapshot.sentences["pair_hash"][waiting].tolist()
        self._waiting = dict(zip(codes, waiting.tolist(), strict=True))
        self.units = _Places(np.asarray(snapshot.units["identity"])[alive], alive)
        self._snapshot = snapshot
        self._recent: dict[int, int] = {}
        self._removed: set[int] = set()
        self.by_source = UnitsBySource(snapshot) if with_sources else None

    @property
    def num_recent(self) -> int:
        """Units that came after the snapshot was taken."""
        return len(self._recent)

    def unit_with(self, identity: int) -> int | None:
        number = self.units.find(identity)
        return None if number in self._removed else number

    def units_waiting(self, code: int) -> list[tuple[int, Unit]]:
        """The units, with their numbers, of a sentence that waits for its states; asked for once, when it gets them."""
        sentence = self._waiting.pop(code, None)
        if sentence is None:
            return []
        return [(number, self._snapshot.unit(number)) for number in self._snapshot.unit_numbers_of(sentence)]

    def note_unit(self, pair: SentencePair, identity: int, number: int, sentence_id: int) -> None:
        self.units.note(identity, number)
        self._recent[number] = sentence_id
        if self.by_source is not None:
            self.by_source.note(number, pair)

    def remove_unit(self, number: int) -> None:
        self._removed.add(number)
        if self.by_source is not None:
            self.by_source.remove(number)

    def sentence_of(self, unit: int) -> int:
        return self._recent[unit] if unit in self._recent else int(self._snapshot.units["sentence"][unit])


@dataclass
class Pending:
    """What the next commit will hold."""

    first_sentence: int
    first_unit: int
    pairs: list[SentencePair] = field(default_factory=list)
    sources: list[list[int]] = field(default_factory=list)
    targets: list[list[int]] = field(default_factory=list)
    units: list[Unit] = field(default_factory=list)
    removed_units: list[int] = field(default_factory=list)
    num_entries: int = 0
    pairs_read: int = 0
    tally: Counter[str] = field(default_factory=Counter)
    competing: Counter[str] = field(default_factory=Counter)  # origin of another target → new pairs that meet it

    @classmethod
    def behind(cls, manifest: Manifest) -> "Pending":
        counts = manifest.extent.counts
        return cls(counts.sentences, counts.units)

    def following(self) -> "Pending":
        """The next one, when this one is appended."""
        return Pending(self.first_sentence + len(self.pairs), self.first_unit + len(self.units))

    @property
    def is_empty(self) -> bool:
        return not self.units and not self.removed_units


class Ingestor:
    """Decides what becomes of each pair, and force-decodes the new sentences."""

    def __init__(self, model: Seq2Seq, batch_tokens: int) -> None:
        self.model, self.batch_tokens = model, batch_tokens

    def segments(
        self,
        pairs: Iterable[SentencePair],
        known: Known,
        pending: Pending,
        max_entries: int,
        batch: Batch | None = None,
    ) -> Iterator[Pending]:
        """Pairs in pieces of about `max_entries` target tokens, the first of which is `pending`.

        What is taken in is added to what is known. The tally of each piece says what became of its pairs. With a
        `batch`, pairs without a unit id replace what was stored before with their source and origin.
        """
        waiting = iter(pairs)
        while chunk := list(itertools.islice(waiting, _READ_PAIRS)):
            sources = self.model.tokenize_sources([pair.source for pair in chunk])
            targets = self.model.tokenize_targets([pair.target for pair in chunk])
            for pair, source, target in zip(chunk, sources, targets, strict=True):
                pending.pairs_read += 1
                pending.tally[self._take(pair, source, target, known, pending, batch)] += 1
                if pending.num_entries >= max_entries:
                    yield pending
                    pending = pending.following()
        if pending.pairs_read:
            yield pending

    def _take(
        self,
        pair: SentencePair,
        source: list[int],
        target: list[int],
        known: Known,
        pending: Pending,
        batch: Batch | None,
    ) -> str:
        code, identity = pair_hash(pair), identity_hash(pair)
        sentence, old_unit = known.sentences.find(code), known.unit_with(identity)
        met = _competition(pair, known, batch)
        is_there = old_unit is not None and known.sentence_of(old_unit) == sentence
        if is_there or (met.is_stored and sentence is not None):
            _remove(met.replaced, known, pending)
            return "replaced" if met.replaced else "unchanged"
        if sentence is None and not self._fits(source, target):
            return "too long"
        replaced = met.replaced if old_unit is None else (old_unit,)
        _remove(replaced, known, pending)
        pending.tally["competing"] += bool(met.origins)
        pending.competing.update(origin or "" for origin in met.origins)
        is_new, has_waited = sentence is None, False
        if sentence is None:
            sentence = pending.first_sentence + len(pending.pairs)
            known.sentences.note(code, sentence)
            pending.pairs.append(pair)
            pending.sources.append(source)
            pending.targets.append(target)
            pending.num_entries += len(target)
            has_waited = self._move_units(known, pair, old_unit, pending, sentence)
        known.note_unit(pair, identity, pending.first_unit + len(pending.units), sentence)
        pending.units.append(Unit.of(pair, sentence, is_first=is_new))
        if replaced and not has_waited:
            return "replaced"
        return "added" if is_new else "duplicate"

    @staticmethod
    def _move_units(known: Known, pair: SentencePair, old_unit: int | None, pending: Pending, sentence: int) -> bool:
        """Give a new sentence the units of the one that waited for its states; whether the pair's own is among them."""
        has_old = False
        for number, unit in known.units_waiting(pair_hash(pair)):
            has_old |= number == old_unit
            if number != old_unit and known.unit_with(unit.identity) == number:  # not replaced meanwhile
                pending.removed_units.append(number)
                known.remove_unit(number)
                moved = replace(pair, unit_id=unit.unit_id, origin=unit.origin, changed_at=unit.changed_at)
                known.note_unit(moved, unit.identity, pending.first_unit + len(pending.units), sentence)
                pending.units.append(replace(unit, sentence_id=sentence, is_first=False))
        return has_old

    def _fits(self, source: list[int], target: list[int]) -> bool:
        room = self.model.max_target_tokens - len(self.model.forced_prefix)
        return len(source) <= self.model.max_source_tokens and len(target) <= room

    def append_each(
        self, folder: Path, manifest: Manifest, pieces: Iterator[Pending]
    ) -> Generator[tuple[Pending, Manifest], None, None]:
        """Append one piece after the other, each with the manifest that then says how far the files count."""
        for pending in pieces:
            if not pending.is_empty:
                manifest = self.append(folder, manifest, pending)
            yield pending, manifest

    def append(self, folder: Path, manifest: Manifest, pending: Pending) -> Manifest:
        """Decode what is pending and append it. It counts once the manifest that this gives is saved."""
        if pending.pairs:
            data = decode_segment(
                self.model,
                pending.pairs,
                pending.sources,
                pending.targets,
                key_type=manifest.key_type,
                batch_tokens=self.batch_tokens,
            )
        else:
            data = SegmentData.without_entries(manifest.width)
        data = replace(data, units=pending.units, removed_units=pending.removed_units)
        return append_segment(folder, manifest, data)


def _remove(units: Sequence[int], known: Known, pending: Pending) -> None:
    for number in units:
        known.remove_unit(number)
    pending.removed_units += units


def _competition(pair: SentencePair, known: Known, batch: Batch | None) -> Competition:
    """What a pair without a unit id meets."""
    if batch is None or batch.keep_both or pair.unit_id is not None or known.by_source is None:
        return Competition()
    return known.by_source.competition(pair, batch)
