"""Reading the intact data of a damaged store.

Every column of a commit has a checksum. If it does not match, each sentence and each unit is checked by its own hashes
and restored from other columns where possible. Lost states cannot be restored here: a model has to compute them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from nearmt.datastore.columns import REMOVALS, REMOVALS_FILE, projection_problem
from nearmt.datastore.damage import CommitRange, commit_ranges
from nearmt.datastore.files import storage_errors
from nearmt.datastore.manifest import Manifest
from nearmt.datastore.recovery import load_or_recover
from nearmt.datastore.salvage_texts import restore_texts
from nearmt.datastore.salvage_units import restore_units
from nearmt.datastore.snapshot import Snapshot
from nearmt.datastore.units import Unit
from nearmt.datastore.verify import describe_problems, inspect

_TABLES = ("sentences.bin", "units.bin")
_ENTRY_COLUMNS = ("values.int32", "probabilities.float16", "positions.uint16")
_MAX_REPORTED = 10  # lost sentences and units that are listed


class SalvagedSnapshot(Snapshot):
    """A snapshot of a damaged store, restored in memory. Sentences and units that cannot be read are not live."""

    def __init__(self, folder: Path, manifest: Manifest, commits: Sequence[CommitRange]) -> None:
        super().__init__(folder, manifest)
        counts = manifest.extent.counts
        self._commit_starts = np.array([commit.sentences.start for commit in commits], np.int64)
        self._ends = super().sentence_ends.copy()
        self.lost_sentences = np.zeros(counts.sentences, bool)
        self.unchecked_sentences = np.zeros(counts.sentences, bool)  # the checksums of their states are lost
        self.unchecked_texts = np.zeros(counts.sentences, bool)  # read from a damaged file, and their hashes are lost
        self.lost_units, self.incomplete_units = np.zeros(counts.units, bool), np.zeros(counts.units, bool)
        self.restored_units: dict[int, Unit] = {}
        self.readable_sources: dict[int, str] = {}  # of lost sentences
        for commit in commits:
            restore_texts(self, commit)
            self._restore_entries(commit)
        unnumbered = restore_units(self, commits)
        self.removals, self.lost_removals = self._read_removals(commits, unnumbered)

    def _check_sizes(self) -> None:
        """Skipped: files may be too short."""

    def _map(self, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray:
        """Map a column as far as the file goes; tables are padded with zeros to their full length."""
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

    # Restoring

    def text_bytes(self, start: int, end: int) -> bytes:
        """A range of the sentence texts, as far as the file goes."""
        return self._texts[start:end].tobytes()

    def unit_bytes(self, start: int, end: int) -> bytes:
        """A range of the unit texts, as far as the file goes."""
        return self._unit_texts[start:end].tobytes()

    def _restore_entries(self, commit: CommitRange) -> None:
        """Set the entry range of each sentence; an empty range if its states are damaged."""
        if not commit.sentences:
            return
        rows = slice(commit.sentences.start, commit.sentences.stop)
        starts = self._entry_starts(commit)
        if starts is None:
            self.sentences["first_entry"][rows] = self._ends[rows] = commit.first.entries
            return
        self.sentences["first_entry"][rows] = starts
        self._ends[rows] = np.append(starts, commit.end.entries)[1:]
        if not commit.is_intact(f"keys.{self.manifest.key_type}", *_ENTRY_COLUMNS):
            self.unchecked_sentences[rows] = True

    def _entry_starts(self, commit: CommitRange) -> np.ndarray | None:
        """The first entry of each sentence; None if the states are damaged."""
        if commit.changed & {f"keys.{self.manifest.key_type}", *_ENTRY_COLUMNS}:
            return None
        stored: np.ndarray = self.sentences["first_entry"][commit.sentences.start : commit.sentences.stop].copy()
        if commit.is_intact("sentences.bin"):
            return stored
        # Positions increase within a sentence. If the number of decreases fits, these are the sentence borders.
        positions = self.positions[commit.first.entries : commit.end.entries].astype(np.int64)
        starts = commit.first.entries + np.append(0, np.flatnonzero(np.diff(positions) <= 0) + 1)
        if len(positions) and len(starts) == len(stored):
            return starts
        ends = np.append(stored, commit.end.entries)[1:]
        is_ordered = stored[0] == commit.first.entries and bool((stored <= ends).all())
        return stored if is_ordered and "sentences.bin" not in commit.changed else None

    def _read_removals(self, commits: Sequence[CommitRange], unnumbered: np.ndarray) -> tuple[np.ndarray, int]:
        """The removals that can be read or inferred, and the number of the others."""
        path = self.folder / self.manifest.data_folder / REMOVALS_FILE
        there = np.fromfile(path, REMOVALS) if path.exists() else np.zeros(0, REMOVALS)
        found, num_lost = [there[:0]], 0
        for commit in commits:
            first, end = commit.first.removals, commit.end.removals
            read = there[first:end] if REMOVALS_FILE not in commit.changed else there[:0]
            read = read[(read >= 0) & (read < len(self.units))]
            read = read[~unnumbered[read]]
            num_lost += end - first - len(read)
            found.append(read)
        removals = np.concatenate(found)
        if num_lost:
            replaced = self._replaced_units(removals)
            removals, num_lost = np.concatenate([removals, replaced]), max(0, num_lost - len(replaced))
        return removals, num_lost

    def _replaced_units(self, removals: np.ndarray) -> np.ndarray:
        """Units that a later unit of the same identity replaced, other than the known removals."""
        alive = ~self.lost_units
        alive[removals] = False
        numbers = np.flatnonzero(alive)
        numbers = numbers[np.argsort(self.units["identity"][numbers], kind="stable")]
        identities = self.units["identity"][numbers]
        is_replaced = np.append(identities[1:] == identities[:-1], False)
        return np.sort(numbers[is_replaced[: len(numbers)]]).astype(REMOVALS)

    # The interface of a snapshot

    def unit(self, number: int) -> Unit:
        return self.restored_units[number] if number in self.restored_units else super().unit(number)

    @property
    def commit_starts(self) -> np.ndarray:
        return self._commit_starts

    @property
    def sentence_ends(self) -> np.ndarray:
        return self._ends

    @cached_property
    def remaining_units(self) -> np.ndarray:
        """(units,) True if the unit was not removed, even if its sentence is lost."""
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
    """What can be read of a lost sentence or unit."""

    source: str | None
    unit_id: str | None
    origin: str | None


@dataclass(frozen=True)
class Salvage:
    """What can be read of a damaged store, and its problems."""

    manifest: Manifest
    readable: SalvagedSnapshot
    problems: tuple[str, ...]
    damaged_files: tuple[str, ...]  # in the store's folder: manifest, its copy, index, networks
    is_data_intact: bool
    lost_sentences: int
    lost_units: int
    incomplete_units: int  # without their id, origin or date
    lost_removals: int  # this many removed units may be live again
    unchecked_sentences: int
    unchecked_texts: int
    lost: tuple[Lost, ...]  # the first of the lost sentences and units


def salvage(folder: Path, on_commit: Callable[[int], None] = lambda number: None) -> Salvage:
    """Read what is intact and restore what other columns imply."""
    manifest, problem = load_or_recover(folder)
    findings = inspect(folder, manifest, on_commit)
    ranges = commit_ranges(folder, manifest, findings)
    if projection_problem(folder, manifest) is not None:  # no key can be decoded: new keys get a new coding
        keys = f"keys.{manifest.key_type}"
        ranges = [replace(commit, changed=commit.changed | {keys}) for commit in ranges]
        manifest = replace(manifest, key_range=None)
    with storage_errors(folder):
        readable = SalvagedSnapshot(folder, manifest, ranges)
    gone = readable.lost_sentences & readable.sentences_with(readable.remaining_units)
    lost_units = np.flatnonzero(readable.lost_units)
    lost_units = lost_units[~np.isin(lost_units, readable.removals)]
    lost = [_lost_sentence(readable, number) for number in np.flatnonzero(gone)[:_MAX_REPORTED].tolist()]
    lost += [_lost_unit(readable, number) for number in lost_units[: _MAX_REPORTED - len(lost)].tolist()]
    return Salvage(
        manifest,
        readable,
        (*([problem] if problem else []), *describe_problems(findings)),
        (*([problem.split()[0]] if problem else []), *findings.files),
        not any(bad for _, bad in findings.commits),
        int(gone.sum()),
        len(lost_units),
        int((readable.incomplete_units & readable.live_units).sum()),
        readable.lost_removals,
        int((readable.unchecked_sentences & readable.live_sentences).sum()),
        int((readable.unchecked_texts & readable.live_sentences).sum()),
        tuple(lost),
    )


def _lost_sentence(readable: SalvagedSnapshot, number: int) -> Lost:
    named = np.flatnonzero(readable.remaining_units & (readable.units["sentence"] == number))
    unit = readable.unit(int(named[0]))
    return Lost(readable.readable_sources.get(number), unit.unit_id, unit.origin)


def _lost_unit(readable: SalvagedSnapshot, number: int) -> Lost:
    unit = readable.restored_units[number]
    return Lost(None, unit.unit_id, unit.origin)
