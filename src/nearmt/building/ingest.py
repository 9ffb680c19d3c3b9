"""Deciding what becomes of each new pair: a new sentence, another unit of a stored sentence, or a correction."""

import itertools
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from nearmt.building.corrections import CompetingUnits, EditBatch, UnitsBySource
from nearmt.building.extract import extract_entries, fits_model
from nearmt.corpus import SentencePair
from nearmt.datastore import (
    CommitData,
    Manifest,
    Snapshot,
    SortedColumn,
    Unit,
    append_commit,
    identity_hash,
    pair_hash,
)
from nearmt.models import Seq2Seq

_READ_PAIRS = 1024
_MAX_UNSORTED = 65_536  # new hashes are kept in a dictionary, up to this many


class _HashIndex:
    """Hash → number, for the rows of a snapshot and those added since."""

    def __init__(self, hashes: np.ndarray, numbers: np.ndarray) -> None:
        self._sorted = SortedColumn(hashes, numbers)
        self._recent: dict[int, int] = {}

    def find(self, code: int) -> int | None:
        """The latest number with this hash."""
        if code in self._recent:
            return self._recent[code]
        found = self._sorted.find(code)
        return int(found[-1]) if len(found) else None

    def add(self, code: int, number: int) -> None:
        self._recent[code] = number
        if len(self._recent) >= _MAX_UNSORTED:
            self._sorted = self._sorted.extended(list(self._recent), list(self._recent.values()))
            self._recent = {}


class StoredPairs:
    """The sentences and units of a store by their hashes, including those that are about to be committed.

    A sentence whose units were all removed can be added again without decoding. A sentence without states is not
    found here: when its pair is added, it is stored again with states.
    """

    def __init__(self, snapshot: Snapshot, *, with_sources: bool = False) -> None:
        alive = np.flatnonzero(snapshot.live_units)
        decoded = np.flatnonzero(snapshot.sentence_ends > snapshot.sentences["first_entry"])
        self.sentences = _HashIndex(np.asarray(snapshot.sentences["pair_hash"])[decoded], decoded)
        waiting = np.flatnonzero(snapshot.waiting_sentences)
        codes = snapshot.sentences["pair_hash"][waiting].tolist()
        self._waiting = dict(zip(codes, waiting.tolist(), strict=True))
        self._units = _HashIndex(np.asarray(snapshot.units["identity"])[alive], alive)
        self._snapshot = snapshot
        self._recent: dict[int, int] = {}  # unit → sentence
        self._removed: set[int] = set()
        self.by_source = UnitsBySource(snapshot) if with_sources else None

    @property
    def num_recent(self) -> int:
        """Units added after the snapshot."""
        return len(self._recent)

    def unit_with(self, identity: int) -> int | None:
        number = self._units.find(identity)
        return None if number in self._removed else number

    def pop_waiting_units(self, code: int) -> list[tuple[int, Unit]]:
        """Numbers and units of the sentence without states that has this pair hash. It now counts as decoded."""
        sentence = self._waiting.pop(code, None)
        if sentence is None:
            return []
        return [(number, self._snapshot.unit(number)) for number in self._snapshot.unit_numbers_of(sentence)]

    def add_unit(self, pair: SentencePair, identity: int, number: int, sentence_id: int) -> None:
        self._units.add(identity, number)
        self._recent[number] = sentence_id
        if self.by_source is not None:
            self.by_source.add(number, pair)

    def remove_unit(self, number: int) -> None:
        self._removed.add(number)
        if self.by_source is not None:
            self.by_source.remove(number)

    def sentence_of(self, unit: int) -> int:
        return self._recent[unit] if unit in self._recent else int(self._snapshot.units["sentence"][unit])


@dataclass(frozen=True)
class _TokenizedPair:
    pair: SentencePair
    source: list[int]
    target: list[int]


@dataclass
class PendingCommit:
    """The content of the next commit."""

    first_sentence: int
    first_unit: int
    pairs: list[SentencePair] = field(default_factory=list)
    sources: list[list[int]] = field(default_factory=list)
    targets: list[list[int]] = field(default_factory=list)
    units: list[Unit] = field(default_factory=list)
    removed_units: list[int] = field(default_factory=list)
    num_entries: int = 0
    pairs_read: int = 0
    tally: Counter[str] = field(default_factory=Counter)  # what became of the pairs
    competing: Counter[str] = field(default_factory=Counter)  # origin → new pairs that it has another target for

    @classmethod
    def after(cls, manifest: Manifest) -> "PendingCommit":
        counts = manifest.extent.counts
        return cls(counts.sentences, counts.units)

    def next(self) -> "PendingCommit":
        """An empty commit that follows this one."""
        return PendingCommit(self.first_sentence + len(self.pairs), self.first_unit + len(self.units))

    @property
    def is_empty(self) -> bool:
        return not self.units and not self.removed_units

    def remove(self, units: Sequence[int], stored: StoredPairs) -> None:
        for number in units:
            stored.remove_unit(number)
        self.removed_units += units

    def add_unit(self, pair: SentencePair, unit: Unit, stored: StoredPairs) -> None:
        stored.add_unit(pair, unit.identity, self.first_unit + len(self.units), unit.sentence_id)
        self.units.append(unit)

    def add_sentence(self, new: _TokenizedPair, stored: StoredPairs) -> int:
        """Add a sentence without its unit. Returns the sentence id."""
        sentence = self.first_sentence + len(self.pairs)
        stored.sentences.add(pair_hash(new.pair), sentence)
        self.pairs.append(new.pair)
        self.sources.append(new.source)
        self.targets.append(new.target)
        self.num_entries += len(new.target)
        return sentence


class Ingestor:
    """Decides what becomes of each pair, and force-decodes the new sentences."""

    def __init__(self, model: Seq2Seq, batch_tokens: int) -> None:
        self.model, self.batch_tokens = model, batch_tokens

    def pending_commits(
        self,
        pairs: Iterable[SentencePair],
        stored: StoredPairs,
        pending: PendingCommit,
        max_entries: int,
        batch: EditBatch | None = None,
    ) -> Iterator[PendingCommit]:
        """Divide pairs into commits of about `max_entries` target tokens, beginning with `pending`.

        New sentences and units are added to `stored`. With a `batch`, pairs without a unit id replace the units that
        were stored before it with the same source and origin.
        """
        unread = iter(pairs)
        while chunk := list(itertools.islice(unread, _READ_PAIRS)):
            sources = self.model.tokenize_sources([pair.source for pair in chunk])
            targets = self.model.tokenize_targets([pair.target for pair in chunk])
            for new in itertools.starmap(_TokenizedPair, zip(chunk, sources, targets, strict=True)):
                competing = _competing_units(new.pair, stored, batch)
                pending.pairs_read += 1
                pending.tally[self._add(new, stored, pending, competing)] += 1
                if pending.num_entries >= max_entries:
                    yield pending
                    pending = pending.next()
        if pending.pairs_read:
            yield pending

    def _add(self, new: _TokenizedPair, stored: StoredPairs, pending: PendingCommit, competing: CompetingUnits) -> str:
        """Add one pair to the pending commit. Returns what became of it."""
        pair = new.pair
        sentence, old_unit = stored.sentences.find(pair_hash(pair)), stored.unit_with(identity_hash(pair))
        is_stored = old_unit is not None and stored.sentence_of(old_unit) == sentence
        if is_stored or (competing.is_stored and sentence is not None):
            pending.remove(competing.replaced, stored)
            return "replaced" if competing.replaced else "unchanged"
        if sentence is None and not fits_model(self.model, new.source, new.target):
            return "too long"
        replaced = competing.replaced if old_unit is None else (old_unit,)
        pending.remove(replaced, stored)
        pending.tally["competing"] += bool(competing.origins)
        pending.competing.update(origin or "" for origin in competing.origins)
        is_new, had_no_states = sentence is None, False
        if sentence is None:
            sentence = pending.add_sentence(new, stored)
            had_no_states = _move_waiting_units(pair, sentence, old_unit, stored, pending)
        pending.add_unit(pair, Unit.of(pair, sentence, is_first=is_new), stored)
        if replaced and not had_no_states:
            return "replaced"
        return "added" if is_new else "duplicate"

    def append_all(
        self, folder: Path, manifest: Manifest, commits: Iterator[PendingCommit]
    ) -> Generator[tuple[PendingCommit, Manifest], None, None]:
        """Append the commits one by one. Yields each with the manifest to save."""
        for pending in commits:
            if not pending.is_empty:
                manifest = self.append(folder, manifest, pending)
            yield pending, manifest

    def append(self, folder: Path, manifest: Manifest, pending: PendingCommit) -> Manifest:
        """Decode a pending commit and append it. Saving the returned manifest commits it."""
        if pending.pairs:
            data = extract_entries(
                self.model,
                pending.pairs,
                pending.sources,
                pending.targets,
                key_type=manifest.key_type,
                batch_tokens=self.batch_tokens,
            )
        else:
            data = CommitData.without_entries(manifest.width)
        data = replace(data, units=pending.units, removed_units=pending.removed_units)
        return append_commit(folder, manifest, data)


def _move_waiting_units(
    pair: SentencePair, sentence: int, old_unit: int | None, stored: StoredPairs, pending: PendingCommit
) -> bool:
    """Move the units of a sentence without states to the new sentence. True if `old_unit` was among them."""
    has_old = False
    for number, unit in stored.pop_waiting_units(pair_hash(pair)):
        has_old |= number == old_unit
        if number != old_unit and stored.unit_with(unit.identity) == number:  # not replaced since
            pending.remove([number], stored)
            moved = replace(pair, unit_id=unit.unit_id, origin=unit.origin, changed_at=unit.changed_at)
            pending.add_unit(moved, replace(unit, sentence_id=sentence, is_first=False), stored)
    return has_old


def _competing_units(pair: SentencePair, stored: StoredPairs, batch: EditBatch | None) -> CompetingUnits:
    if batch is None or batch.keep_both or pair.unit_id is not None or stored.by_source is None:
        return CompetingUnits()
    return stored.by_source.competing_with(pair, batch)
