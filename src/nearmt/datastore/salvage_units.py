"""Restoring the units of a damaged store: the rows of the table and the lines with their names, from each other.

A row contains the sentence and hashes of the id, the origin and the unit's identity. A line contains id, origin and
date. The table of sentences contains the first unit of each. A unit whose id or origin is lost is kept without it.
"""

import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from nearmt.corpus import SentencePair
from nearmt.datastore.damage import CommitRange, lines_from
from nearmt.datastore.hashing import identity_hash, name_hash
from nearmt.datastore.units import UNIT, Unit, date_of, seconds_of

if TYPE_CHECKING:
    from nearmt.datastore.salvage import SalvagedSnapshot

_FIELDS = ("unit_id", "origin", "changed_at")
_DAY = 86_400


@dataclass(frozen=True)
class _Names:
    """The line of a unit."""

    unit_id: str | None
    origin: str | None
    changed_at: str | None
    start: int

    def num_matching(self, record: np.void) -> int:
        """How many of the row's hashes of id and origin match this line: 0 to 2."""
        given = name_hash(self.unit_id), name_hash(self.origin)
        return sum(int(record[field]) == code for field, code in zip(("unit_hash", "origin_hash"), given, strict=True))


def restore_units(readable: "SalvagedSnapshot", commits: Sequence[CommitRange]) -> np.ndarray:
    """Find the sentence and names of every unit. Returns a mask of the units whose original number is unknown."""
    unnumbered = np.zeros(len(readable.units), bool)
    restorer = _UnitRestorer(readable, unnumbered)
    for commit in commits:
        if not commit.is_intact("units.bin", "units.jsonl", "sentences.bin"):
            restorer.restore(commit)
    restorer.find_sentences()
    restorer.name_origins()
    return unnumbered


class _UnitRestorer:
    def __init__(self, readable: "SalvagedSnapshot", unnumbered: np.ndarray) -> None:
        self.readable, self.unnumbered = readable, unnumbered
        self._unassigned: dict[int, tuple[_Names, np.void]] = {}  # units whose row names no matching sentence
        self._unnamed: dict[int, bool] = {}  # units known only by hashes of their names → True if the hashes are intact

    def restore(self, commit: CommitRange) -> None:
        if not commit.units:
            return
        readable, has_rows = self.readable, commit.is_intact("units.bin")
        lines = list(_lines(readable, commit))
        by_position = lines if len(lines) == len(commit.units) else [None] * len(commit.units)
        sentence_of = self._first_units(commit)
        rows = readable.units[commit.units.start : commit.units.stop].copy()
        for row, line, number in zip(rows, by_position, commit.units, strict=True):
            names = self._names(commit, row, line)
            if number in sentence_of:
                sentence: int | None = sentence_of[number]
            elif has_rows:
                sentence = int(row["sentence"])
            else:
                sentence = self._checked_sentence(int(row["sentence"]), names, row)
            self._restore_unit(commit, number, row, names, sentence, is_first=number in sentence_of)
        if not has_rows and not self._matches_checksum(commit):
            self._mark_uncertain_dates(commit)

    def _first_units(self, commit: CommitRange) -> dict[int, int]:
        """Unit number → sentence, for the first units of the commit's sentences. Restores `first_unit` in the table."""
        sentences, units = self.readable.sentences, self.readable.units
        if commit.is_intact("sentences.bin"):
            return {int(sentences["first_unit"][number]): number for number in commit.sentences}
        if commit.is_intact("units.bin"):
            found = {n: int(units["sentence"][n]) for n in commit.units if units["is_first"][n]}
        elif len(commit.units) == len(commit.sentences):
            found = dict(zip(commit.units, commit.sentences, strict=True))
        else:
            found = self._infer_first_units(commit)
        for number, sentence in found.items():
            sentences["first_unit"][sentence] = number
        return found

    def _infer_first_units(self, commit: CommitRange) -> dict[int, int]:
        """The same if both tables are damaged: where both agree, then what one says, then any free number."""
        sentences, units = self.readable.sentences, self.readable.units
        of_units = {n: int(units["sentence"][n]) for n in commit.units if units["is_first"][n] == 1}
        of_sentences = {int(sentences["first_unit"][sentence]): sentence for sentence in commit.sentences}
        found = {number: sentence for number, sentence in of_units.items() if of_sentences.get(number) == sentence}
        assigned = set(found.values())
        claims = [*of_units.items(), *of_sentences.items()]
        for number, sentence in claims:
            is_in_commit = number in commit.units and sentence in commit.sentences
            if is_in_commit and number not in found and sentence not in assigned:
                found[number] = sentence
                assigned.add(sentence)
        free = [number for number in commit.units if number not in found]
        for number, sentence in zip(free, [s for s in commit.sentences if s not in assigned], strict=False):
            found[number] = sentence
            self.unnumbered[number] = True
        return found

    def _names(self, commit: CommitRange, row: np.void, line: _Names | None) -> _Names | None:
        """The line of a unit: at the start that its row gives, or at its position, if it matches the row."""
        if commit.is_intact("units.jsonl"):
            return line
        at_start = _line_at(self.readable, commit, int(row["text_start"]))
        for names in (at_start, line):
            if names is not None and names.num_matching(row) == 2:
                return _with_row_date(names, int(row["time"])) if commit.is_intact("units.bin") else names
        is_row_changed = line is not None and line.num_matching(row) == 0 and "units.bin" in commit.changed
        return line if is_row_changed else None

    def _pair(self, sentence: int, names: _Names) -> SentencePair | None:
        if not 0 <= sentence < len(self.readable.sentences) or self.readable.lost_sentences[sentence]:
            return None
        return SentencePair(*self.readable.sides(sentence), names.unit_id, names.origin)

    def _checked_sentence(self, sentence: int, names: _Names | None, row: np.void) -> int | None:
        """The sentence that a row names, if it matches the unit's identity."""
        if names is None:
            is_there = 0 <= sentence < len(self.readable.sentences) and int(row["identity"]) != 0
            return sentence if is_there else None
        pair = self._pair(sentence, names)
        return sentence if pair is not None and identity_hash(pair) == int(row["identity"]) else None

    def _restore_unit(
        self,
        commit: CommitRange,
        number: int,
        row: np.void,
        names: _Names | None,
        sentence: int | None,
        *,
        is_first: bool,
    ) -> None:
        has_rows = commit.is_intact("units.bin")
        is_named = names is not None and not self.unnumbered[number]
        known = names if is_named and names is not None else _Names(None, None, None, int(row["text_start"]))
        pair = self._pair(sentence, known) if sentence is not None else None
        identity = int(row["identity"])
        if not has_rows and pair is not None and (is_named or not identity):
            identity = identity_hash(pair)
        seconds = int(row["time"]) if has_rows else _time(row, known, commit)
        unit = Unit(sentence or 0, known.unit_id, known.origin, known.changed_at, identity, seconds, is_first)
        self.readable.restored_units[number] = unit
        if sentence is None:
            self.readable.lost_units[number] = True
            if names is not None and identity:
                self._unassigned[number] = names, row
        elif not is_named:
            self.readable.incomplete_units[number] = True
            self._unnamed[number] = has_rows
        self._write_row(number, unit, known.start, row if not is_named else None)

    def _write_row(self, number: int, unit: Unit, start: int, hashes_of: np.void | None) -> None:
        row = self.readable.units[number : number + 1]
        row[0] = unit.record()
        row["text_start"] = start
        if hashes_of is not None:
            for field in ("unit_hash", "origin_hash"):
                row[field] = hashes_of[field]

    def _matches_checksum(self, commit: CommitRange) -> bool:
        """True if the restored rows of a commit match the checksum of the original ones."""
        rows = np.ascontiguousarray(self.readable.units[commit.units.start : commit.units.stop], UNIT)
        return hashlib.sha256(rows.tobytes()).hexdigest() == commit.sha256.get("units.bin")

    def _mark_uncertain_dates(self, commit: CommitRange) -> None:
        """Mark units whose date is only in a changed row as incomplete."""
        if "units.bin" in commit.changed:
            for number in commit.units:
                if self.readable.restored_units[number].changed_at is None:
                    self.readable.incomplete_units[number] = True

    def find_sentences(self) -> None:
        """Find the sentences of unassigned units by the units' identity."""
        if not self._unassigned:
            return
        for sentence in np.flatnonzero(~self.readable.lost_sentences).tolist():
            for number, (names, row) in list(self._unassigned.items()):
                pair = self._pair(sentence, names)
                if pair is not None and identity_hash(pair) == int(row["identity"]):
                    del self._unassigned[number]
                    self.readable.lost_units[number] = False
                    unit = self.readable.restored_units[number]
                    found = replace(unit, sentence_id=sentence)
                    self.readable.restored_units[number] = found
                    self._write_row(number, found, names.start, None)
            if not self._unassigned:
                break

    def name_origins(self) -> None:
        """Restore the origins of unnamed units from other units with the same hash."""
        units = self.readable.units
        names: dict[int, str | None] = {0: None}
        for code in {int(units["origin_hash"][number]) for number in self._unnamed} - {0}:
            for number in np.flatnonzero(units["origin_hash"] == np.uint64(code)).tolist():
                if number not in self._unnamed and not self.readable.lost_units[number]:
                    names[code] = self.readable.unit(number).origin
                    break
        for number, is_intact in self._unnamed.items():
            code = int(units["origin_hash"][number])
            if code in names:
                self.readable.restored_units[number] = replace(self.readable.restored_units[number], origin=names[code])
                # A unit that never had an id is complete.
                self.readable.incomplete_units[number] = not is_intact or bool(units["unit_hash"][number])


def _with_row_date(names: _Names, seconds: int) -> _Names:
    """The line with the date of its intact row, if the line has another date."""
    stated = seconds_of(names.changed_at) if names.changed_at else seconds
    return names if stated == seconds else replace(names, changed_at=date_of(seconds))


def _time(row: np.void, names: _Names, commit: CommitRange) -> int:
    """When a unit was changed or added: from its line, from its row if plausible, or the time of its commit."""
    stated = seconds_of(names.changed_at) if names.changed_at else None
    if stated is not None:
        return stated
    if 0 < row["time"] < time.time() + _DAY:
        return int(row["time"])
    return (seconds_of(commit.created_at) if commit.created_at else None) or 0


def _lines(readable: "SalvagedSnapshot", commit: CommitRange) -> Iterator[_Names | None]:
    """The lines of a commit in order; None if a line cannot be parsed."""
    content = readable.unit_bytes(commit.first.unit_bytes, commit.end.unit_bytes)
    return (_parse(line, start) for start, line in lines_from(content, commit.first.unit_bytes))


def _line_at(readable: "SalvagedSnapshot", commit: CommitRange, start: int) -> _Names | None:
    if not commit.first.unit_bytes <= start < commit.end.unit_bytes:
        return None
    return _parse(readable.unit_bytes(start, commit.end.unit_bytes).partition(b"\n")[0], start)


def _parse(line: bytes, start: int) -> _Names | None:
    try:
        texts: Any = json.loads(line.decode("utf-8", "surrogatepass"))
        unit_id, origin, changed_at = (texts.get(field) for field in _FIELDS)
    except (ValueError, AttributeError):
        return None
    is_line = all(name is None or isinstance(name, str) for name in (unit_id, origin, changed_at))
    return _Names(unit_id, origin, changed_at, start) if is_line else None
