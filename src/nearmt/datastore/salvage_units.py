"""Mending the units of a damaged store: the table of rows and the lines with their names, each from the other.

A row knows its sentence and holds hashes of id, origin and of what identifies the unit; a line holds id, origin and
date. The table of sentences knows the first unit of each. Where a name is lost the unit stays without it.
"""

import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from nearmt.corpus import SentencePair
from nearmt.datastore.damage import Part, lines_from
from nearmt.datastore.hashing import identity_hash, name_hash
from nearmt.datastore.units import UNIT, Unit, date_of, seconds_of

if TYPE_CHECKING:
    from nearmt.datastore.salvage import Salvaged

_FIELDS = ("unit_id", "origin", "changed_at")
_DAY = 86_400


@dataclass(frozen=True)
class _Names:
    """A unit's line."""

    unit_id: str | None
    origin: str | None
    changed_at: str | None
    start: int

    def fits(self, record: np.void) -> int:
        """How many of a row's two hashes of names are this line's."""
        given = name_hash(self.unit_id), name_hash(self.origin)
        return sum(int(record[field]) == code for field, code in zip(("unit_hash", "origin_hash"), given, strict=True))


def mend_units(readable: "Salvaged", parts: Sequence[Part]) -> np.ndarray:
    """Find sentence and names of every unit; gives a mask of those whose numbers mean nothing any more."""
    without_number = np.zeros(len(readable.units), bool)
    mender = _Mender(readable, without_number)
    for part in parts:
        if not part.is_sure("units.bin", "units.jsonl", "sentences.bin"):
            mender.mend(part)
    mender.find_sentences()
    mender.name_origins()
    return without_number


class _Mender:
    def __init__(self, readable: "Salvaged", without_number: np.ndarray) -> None:
        self.readable, self.without_number = readable, without_number
        self._homeless: dict[int, tuple[_Names, np.void]] = {}  # units whose row names no sentence that fits
        self._nameless: dict[int, bool] = {}  # units with hashes for names, and whether these are sure

    def mend(self, part: Part) -> None:
        if not part.units:
            return
        readable, has_rows = self.readable, part.is_sure("units.bin")
        lines = list(_lines(readable, part))
        by_place = lines if len(lines) == len(part.units) else [None] * len(part.units)
        sentence_of = self._first_units(part)
        rows = readable.units[part.units.start : part.units.stop].copy()
        for row, line, number in zip(rows, by_place, part.units, strict=True):
            names = self._names(part, row, line)
            if number in sentence_of:
                sentence: int | None = sentence_of[number]
            elif has_rows:
                sentence = int(row["sentence"])
            else:
                sentence = self._home(int(row["sentence"]), names, row)
            self._note(part, number, row, names, sentence, is_first=number in sentence_of)
        if not has_rows and not self._is_as_written(part):
            self._doubt_dates(part)

    def _first_units(self, part: Part) -> dict[int, int]:
        """Unit number → sentence, for the units that sentences of this part came with; the table is put right."""
        sentences, units = self.readable.sentences, self.readable.units
        if part.is_sure("sentences.bin"):
            return {int(sentences["first_unit"][number]): number for number in part.sentences}
        if part.is_sure("units.bin"):
            found = {n: int(units["sentence"][n]) for n in part.units if units["is_first"][n]}
        elif len(part.units) == len(part.sentences):
            found = dict(zip(part.units, part.sentences, strict=True))
        else:
            found = self._claims(part)
        for number, sentence in found.items():
            sentences["first_unit"][sentence] = number
        return found

    def _claims(self, part: Part) -> dict[int, int]:
        """The same where neither table is sure: what both say, then what one says; the rest get any number."""
        sentences, units = self.readable.sentences, self.readable.units
        of_units = {n: int(units["sentence"][n]) for n in part.units if units["is_first"][n] == 1}
        of_sentences = {int(sentences["first_unit"][sentence]): sentence for sentence in part.sentences}
        found = {number: sentence for number, sentence in of_units.items() if of_sentences.get(number) == sentence}
        there = set(found.values())
        claims = [*of_units.items(), *of_sentences.items()]
        for number, sentence in claims:
            if number in part.units and sentence in part.sentences and number not in found and sentence not in there:
                found[number] = sentence
                there.add(sentence)
        free = [number for number in part.units if number not in found]
        for number, sentence in zip(free, [s for s in part.sentences if s not in there], strict=False):
            found[number] = sentence
            self.without_number[number] = True
        return found

    def _names(self, part: Part, row: np.void, line: _Names | None) -> _Names | None:
        """A unit's line: the one in its place, or the one that its row says, if it can be believed."""
        if part.is_sure("units.jsonl"):
            return line
        at_start = _line_at(self.readable, part, int(row["text_start"]))
        for names in (at_start, line):
            if names is not None and names.fits(row) == 2:
                return _with_right_date(names, int(row["time"])) if part.is_sure("units.bin") else names
        is_row_changed = line is not None and line.fits(row) == 0 and "units.bin" in part.changed
        return line if is_row_changed else None

    def _pair(self, sentence: int, names: _Names) -> SentencePair | None:
        if not 0 <= sentence < len(self.readable.sentences) or self.readable.lost_sentences[sentence]:
            return None
        return SentencePair(*self.readable.sides(sentence), names.unit_id, names.origin)

    def _home(self, sentence: int, names: _Names | None, row: np.void) -> int | None:
        """The sentence that a row names, if the unit can be its."""
        if names is None:
            is_there = 0 <= sentence < len(self.readable.sentences) and int(row["identity"]) != 0
            return sentence if is_there else None
        pair = self._pair(sentence, names)
        return sentence if pair is not None and identity_hash(pair) == int(row["identity"]) else None

    def _note(
        self, part: Part, number: int, row: np.void, names: _Names | None, sentence: int | None, *, is_first: bool
    ) -> None:
        has_rows = part.is_sure("units.bin")
        is_named = names is not None and not self.without_number[number]
        known = names if is_named and names is not None else _Names(None, None, None, int(row["text_start"]))
        pair = self._pair(sentence, known) if sentence is not None else None
        identity = int(row["identity"])
        if not has_rows and pair is not None and (is_named or not identity):
            identity = identity_hash(pair)
        seconds = int(row["time"]) if has_rows else _time(row, known, part)
        unit = Unit(sentence or 0, known.unit_id, known.origin, known.changed_at, identity, seconds, is_first)
        self.readable.mended_units[number] = unit
        if sentence is None:
            self.readable.lost_units[number] = True
            if names is not None and identity:
                self._homeless[number] = names, row
        elif not is_named:
            self.readable.incomplete_units[number] = True
            self._nameless[number] = has_rows
        self._write_row(number, unit, known.start, row if not is_named else None)

    def _write_row(self, number: int, unit: Unit, start: int, hashes_of: np.void | None) -> None:
        row = self.readable.units[number : number + 1]
        row[0] = unit.record()
        row["text_start"] = start
        if hashes_of is not None:
            for field in ("unit_hash", "origin_hash"):
                row[field] = hashes_of[field]

    def _is_as_written(self, part: Part) -> bool:
        """Whether the rows of a part, as they were made again, fit the checksum of what was written."""
        rows = np.ascontiguousarray(self.readable.units[part.units.start : part.units.stop], UNIT)
        return hashlib.sha256(rows.tobytes()).hexdigest() == part.sha256.get("units.bin")

    def _doubt_dates(self, part: Part) -> None:
        """Dates that stand in the rows alone may be wrong, where the rows are known to be changed."""
        if "units.bin" in part.changed:
            for number in part.units:
                if self.readable.mended_units[number].changed_at is None:
                    self.readable.incomplete_units[number] = True

    def find_sentences(self) -> None:
        """Look through all sentences for those that further units belong to, by what identifies a unit."""
        if not self._homeless:
            return
        for sentence in np.flatnonzero(~self.readable.lost_sentences).tolist():
            for number, (names, row) in list(self._homeless.items()):
                pair = self._pair(sentence, names)
                if pair is not None and identity_hash(pair) == int(row["identity"]):
                    del self._homeless[number]
                    self.readable.lost_units[number] = False
                    unit = self.readable.mended_units[number]
                    found = replace(unit, sentence_id=sentence)
                    self.readable.mended_units[number] = found
                    self._write_row(number, found, names.start, None)
            if not self._homeless:
                break

    def name_origins(self) -> None:
        """Origins come again and again: another unit's line may tell which one a hash stands for."""
        units = self.readable.units
        names: dict[int, str | None] = {0: None}
        for code in {int(units["origin_hash"][number]) for number in self._nameless} - {0}:
            for number in np.flatnonzero(units["origin_hash"] == np.uint64(code)).tolist():
                if number not in self._nameless and not self.readable.lost_units[number]:
                    names[code] = self.readable.unit(number).origin
                    break
        for number, is_sure in self._nameless.items():
            code = int(units["origin_hash"][number])
            if code in names:
                self.readable.mended_units[number] = replace(self.readable.mended_units[number], origin=names[code])
                # A unit that never had an id has lost nothing.
                self.readable.incomplete_units[number] = not is_sure or bool(units["unit_hash"][number])


def _with_right_date(names: _Names, seconds: int) -> _Names:
    """A line whose hashed part fits, with the date that its row holds if the line says another."""
    stated = seconds_of(names.changed_at) if names.changed_at else seconds
    return names if stated == seconds else replace(names, changed_at=date_of(seconds))


def _time(row: np.void, names: _Names, part: Part) -> int:
    """When a unit was changed or added: by its line, by its row if that can be, or when its commit was made."""
    stated = seconds_of(names.changed_at) if names.changed_at else None
    if stated is not None:
        return stated
    if 0 < row["time"] < time.time() + _DAY:
        return int(row["time"])
    return (seconds_of(part.created_at) if part.created_at else None) or 0


def _lines(readable: "Salvaged", part: Part) -> Iterator[_Names | None]:
    """The lines of a part in order; None for one that cannot be parsed."""
    content = readable.unit_bytes(part.first.unit_bytes, part.end.unit_bytes)
    return (_parse(line, start) for start, line in lines_from(content, part.first.unit_bytes))


def _line_at(readable: "Salvaged", part: Part, start: int) -> _Names | None:
    if not part.first.unit_bytes <= start < part.end.unit_bytes:
        return None
    return _parse(readable.unit_bytes(start, part.end.unit_bytes).partition(b"\n")[0], start)


def _parse(line: bytes, start: int) -> _Names | None:
    try:
        texts: Any = json.loads(line.decode("utf-8", "surrogatepass"))
        unit_id, origin, changed_at = (texts.get(field) for field in _FIELDS)
    except (ValueError, AttributeError):
        return None
    is_line = all(name is None or isinstance(name, str) for name in (unit_id, origin, changed_at))
    return _Names(unit_id, origin, changed_at, start) if is_line else None
