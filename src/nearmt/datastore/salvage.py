"""Reading what can be read of a damaged store.

Every column of a commit has a checksum. Where it does not fit, each sentence and each unit is checked by its own
hashes, and what can be worked out from another column is. States cannot: their sentences are left without any, for a
model to compute anew.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from nearmt.datastore.columns import REMOVALS, REMOVALS_FILE
from nearmt.datastore.damage import Part, parts_of
from nearmt.datastore.files import storage_errors
from nearmt.datastore.manifest import Manifest
from nearmt.datastore.recovery import load_or_recover
from nearmt.datastore.salvage_texts import mend_texts
from nearmt.datastore.salvage_units import mend_units
from nearmt.datastore.snapshot import Snapshot
from nearmt.datastore.units import Unit
from nearmt.datastore.verify import describe_problems, inspect

_TABLES = ("sentences.bin", "units.bin")
_ENTRY_COLUMNS = ("values.int32", "probabilities.float16", "positions.uint16")
_TOLD = 10  # lost sentences and units that are told one by one


class Salvaged(Snapshot):
    """A snapshot of a damaged store, mended in memory. What cannot be read of it does not count."""

    def __init__(self, folder: Path, manifest: Manifest, parts: Sequence[Part]) -> None:
        super().__init__(folder, manifest)
        counts = manifest.extent.counts
        self._commit_starts = np.array([part.sentences.start for part in parts], np.int64)
        self._ends = super().sentence_ends.copy()
        self.lost_sentences = np.zeros(counts.sentences, bool)
        self.unchecked_sentences = np.zeros(counts.sentences, bool)  # whose states have lost their checksums
        self.unchecked_texts = np.zeros(counts.sentences, bool)  # whose hashes are lost, in a file that was changed
        self.lost_units, self.incomplete_units = np.zeros(counts.units, bool), np.zeros(counts.units, bool)
        self.mended_units: dict[int, Unit] = {}
        self.readable_sources: dict[int, str] = {}  # of lost sentences
        for part in parts:
            mend_texts(self, part)
            self._mend_entries(part)
        without_number = mend_units(self, parts)
        self.removals, self.lost_removals = self._read_removals(parts, without_number)

    def _check_sizes(self) -> None:
        """Files may be too short."""

    def _map(self, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray:
        """Tables in full, with zeros where the file ends too soon; of other columns what is there."""
        path = self.folder / self.manifest.data_folder / name
        row_bytes = dtype.itemsize * int(np.prod(shape[1:], dtype=np.int64))
        there = min(path.stat().st_size // row_bytes, shape[0]) if path.exists() else 0
        if there == shape[0]:
            return super()._map(name, dtype, shape)
        found = super()._map(name, dtype, (there, *shape[1:]))
        if name not in _TABLES:
            return found
        table = np.zeros(shape, dtype)
        table[:there] = found
        return table

    # What mends it

    def text_bytes(self, start: int, end: int) -> bytes:
        """What stands in a range of the texts, as far as the file goes."""
        return self._texts[start:end].tobytes()

    def unit_bytes(self, start: int, end: int) -> bytes:
        """What stands in a range of the units' texts, as far as the file goes."""
        return self._unit_texts[start:end].tobytes()

    def _mend_entries(self, part: Part) -> None:
        """Say where the entries of each sentence stand; nowhere, if they cannot be believed."""
        if not part.sentences:
            return
        rows = slice(part.sentences.start, part.sentences.stop)
        starts = self._entry_starts(part)
        if starts is None:
            self.sentences["first_entry"][rows] = self._ends[rows] = part.first.entries
            return
        self.sentences["first_entry"][rows] = starts
        self._ends[rows] = np.append(starts, part.end.entries)[1:]
        if not part.is_sure(f"keys.{self.manifest.key_type}", *_ENTRY_COLUMNS):
            self.unchecked_sentences[rows] = True

    def _entry_starts(self, part: Part) -> np.ndarray | None:
        """Where each sentence's entries begin, if they were not changed."""
        if part.changed & {f"keys.{self.manifest.key_type}", *_ENTRY_COLUMNS}:
            return None
        stored: np.ndarray = self.sentences["first_entry"][part.sentences.start : part.sentences.stop].copy()
        if part.is_sure("sentences.bin"):
            return stored
        # Positions grow within a sentence. If they fall as often as there are borders, those are the borders.
        positions = self.positions[part.first.entries : part.end.entries].astype(np.int64)
        starts = part.first.entries + np.append(0, np.flatnonzero(np.diff(positions) <= 0) + 1)
        if len(positions) and len(starts) == len(stored):
            return starts
        ends = np.append(stored, part.end.entries)[1:]
        is_order = stored[0] == part.first.entries and bool((stored <= ends).all())
        return stored if is_order and "sentences.bin" not in part.changed else None

    def _read_removals(self, parts: Sequence[Part], without_number: np.ndarray) -> tuple[np.ndarray, int]:
        """The removals that can be read, and how many cannot and do not follow from anything else."""
        path = self.folder / self.manifest.data_folder / REMOVALS_FILE
        there = np.fromfile(path, REMOVALS) if path.exists() else np.zeros(0, REMOVALS)
        found, num_lost = [there[:0]], 0
        for part in parts:
            first, end = part.first.removals, part.end.removals
            read = there[first:end] if REMOVALS_FILE not in part.changed else there[:0]
            read = read[(read >= 0) & (read < len(self.units))]
            read = read[~without_number[read]]
            num_lost += end - first - len(read)
            found.append(read)
        removals = np.concatenate(found)
        if num_lost:
            replaced = self._replaced_units(removals)
            removals, num_lost = np.concatenate([removals, replaced]), max(0, num_lost - len(replaced))
        return removals, num_lost

    def _replaced_units(self, removals: np.ndarray) -> np.ndarray:
        """Units that a later one of the same identity took the place of, and that were not known to be removed."""
        alive = ~self.lost_units
        alive[removals] = False
        numbers = np.flatnonzero(alive)
        numbers = numbers[np.argsort(self.units["identity"][numbers], kind="stable")]
        identities = self.units["identity"][numbers]
        is_replaced = np.append(identities[1:] == identities[:-1], False)
        return np.sort(numbers[is_replaced[: len(numbers)]]).astype(REMOVALS)

    # As a snapshot

    def unit(self, number: int) -> Unit:
        return self.mended_units[number] if number in self.mended_units else super().unit(number)

    @property
    def commit_starts(self) -> np.ndarray:
        return self._commit_starts

    @property
    def sentence_ends(self) -> np.ndarray:
        return self._ends

    @cached_property
    def remaining_units(self) -> np.ndarray:
        """(units,) whether a unit was not removed, be its sentence lost or not."""
        remaining = ~self.lost_units
        remaining[self.removals] = False
        return remaining

    @cached_property
    def live_units(self) -> np.ndarray:
        alive = self.remaining_units.copy()
        numbers = np.flatnonzero(alive)
        alive[numbers[self.lost_sentences[self.units["sentence"][numbers]]]] = False
        return alive


@dataclass(frozen=True)
class Lost:
    """A sentence or a unit that is gone, as far as anything of it can be read."""

    source: str | None
    unit_id: str | None
    origin: str | None


@dataclass(frozen=True)
class Rescue:
    """What can be read of a store, and what is wrong with it."""

    manifest: Manifest
    readable: Salvaged
    problems: tuple[str, ...]
    damaged_files: tuple[str, ...]  # of the store's folder: the manifest, its copy, the index, networks
    has_sound_data: bool
    lost_sentences: int
    lost_units: int
    incomplete_units: int  # whose id, origin or date is gone
    lost_removals: int  # units that were removed may be back
    unchecked_sentences: int
    unchecked_texts: int
    lost: tuple[Lost, ...]  # the first of them


def salvage(folder: Path, on_segment: Callable[[int], None] = lambda number: None) -> Rescue:
    """Look what can be read."""
    manifest, problem = load_or_recover(folder)
    findings = inspect(folder, manifest, on_segment)
    with storage_errors(folder):
        readable = Salvaged(folder, manifest, parts_of(folder, manifest, findings))
    gone = readable.lost_sentences & readable.sentences_with(readable.remaining_units)
    lost_units = np.flatnonzero(readable.lost_units)
    lost_units = lost_units[~np.isin(lost_units, readable.removals)]
    told = [_lost_sentence(readable, number) for number in np.flatnonzero(gone)[:_TOLD].tolist()]
    told += [_lost_unit(readable, number) for number in lost_units[: _TOLD - len(told)].tolist()]
    return Rescue(
        manifest,
        readable,
        (*([problem] if problem else []), *describe_problems(findings)),
        (*([problem.split()[0]] if problem else []), *findings.files),
        not any(bad for _, bad in findings.segments),
        int(gone.sum()),
        len(lost_units),
        int((readable.incomplete_units & readable.live_units).sum()),
        readable.lost_removals,
        int((readable.unchecked_sentences & readable.live_sentences).sum()),
        int((readable.unchecked_texts & readable.live_sentences).sum()),
        tuple(told),
    )


def _lost_sentence(readable: Salvaged, number: int) -> Lost:
    named = np.flatnonzero(readable.remaining_units & (readable.units["sentence"] == number))
    unit = readable.unit(int(named[0]))
    return Lost(readable.readable_sources.get(number), unit.unit_id, unit.origin)


def _lost_unit(readable: Salvaged, number: int) -> Lost:
    unit = readable.mended_units[number]
    return Lost(None, unit.unit_id, unit.origin)
