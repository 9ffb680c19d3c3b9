"""Reading what is whole of a damaged store.

A segment whose checksums fit counts. Where the log has lost a segment's checksums, what fits its own hashes counts.
What was removed stays away wherever the removals can be read, whatever else of their commit is damaged.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from nearmt.errors import StoreDamagedError
from nearmt.store.columns import REMOVALS, REMOVALS_FILE, columns_of
from nearmt.store.extent import LOG, Counts, Extent, Segment
from nearmt.store.files import storage_errors
from nearmt.store.hashing import name_hash, text_hash
from nearmt.store.manifest import Manifest
from nearmt.store.snapshot import Snapshot
from nearmt.store.verify import Findings, describe_problems, inspect


@dataclass(frozen=True)
class _Range:
    """What one segment wrote, and whether it can be read."""

    first: Counts
    end: Counts
    is_vouched: bool  # its checksums are known
    is_whole: bool  # they fit, its removals aside
    has_removals: bool  # its removals can be read


class Salvaged(Snapshot):
    """A snapshot of a damaged store: what cannot be read of its sentences and units does not count."""

    def __init__(self, folder: Path, manifest: Manifest, ranges: list[_Range], removals: np.ndarray) -> None:
        super().__init__(folder, manifest)
        counts = manifest.extent.counts
        self.removals = removals[(removals >= 0) & (removals < counts.units)]
        self._ends = super().sentence_ends.copy()
        self._bad_sentences, self._bad_units = np.zeros(counts.sentences, bool), np.zeros(counts.units, bool)
        for part in ranges:
            sentences, units = _slices(part)
            if part.end.sentences > part.first.sentences:
                self._ends[part.end.sentences - 1] = part.end.entries
            if not part.is_vouched:
                self._bad_units[units] = [not self._unit_fits(n) for n in range(units.start, units.stop)]
                self._bad_sentences[sentences] = [
                    not self._sentence_fits(n, part) for n in range(sentences.start, sentences.stop)
                ]
            elif not part.is_whole:
                self._bad_sentences[sentences] = self._bad_units[units] = True

    def _check_sizes(self) -> None:
        """Who made it knows how far the files reach."""

    def _sentence_fits(self, number: int, part: _Range) -> bool:
        """Whether a sentence fits its hashes and lies where it should."""
        record = self.sentences[number]
        first_unit = int(record["first_unit"])
        if not part.first.units <= first_unit < part.end.units or self.units["sentence"][first_unit] != number:
            return False
        if not part.first.entries <= record["first_entry"] < self._ends[number] <= part.end.entries:
            return False
        try:
            source, target = self._sides(number)
        except StoreDamagedError:
            return False
        hashes = text_hash(source, target), text_hash(source), text_hash(target)
        return hashes == (record["pair_hash"], record["source_hash"], record["target_hash"])

    def _unit_fits(self, number: int) -> bool:
        record = self.units[number]
        if not 0 <= record["sentence"] < len(self.sentences):
            return False
        try:
            unit = self.unit(number)
        except StoreDamagedError:
            return False
        return (name_hash(unit.unit_id), name_hash(unit.origin)) == (record["unit_hash"], record["origin_hash"])

    @property
    def sentence_ends(self) -> np.ndarray:
        return self._ends

    @cached_property
    def live_units(self) -> np.ndarray:
        alive = ~self._bad_units
        alive[self.removals] = False
        good = np.flatnonzero(alive)
        alive[good[self._bad_sentences[self.units["sentence"][good]]]] = False
        return alive

    @property
    def lost_sentences(self) -> list[int]:
        """The numbers of sentences that cannot be read."""
        found: list[int] = np.flatnonzero(self._bad_sentences).tolist()
        return found


@dataclass(frozen=True)
class Rescue:
    """What can be read of a store, and what is wrong with it."""

    manifest: Manifest
    readable: Salvaged
    problems: tuple[str, ...]
    lost_sentences: int
    lost_removals: int  # units that were removed may be back


def salvage(folder: Path, on_segment: Callable[[int], None] = lambda number: None) -> Rescue:
    """Look what is whole."""
    manifest = Manifest.load(folder)
    findings = inspect(folder, manifest, on_segment)
    data = folder / manifest.data_folder
    with storage_errors(folder):
        sizes = {
            column: path.stat().st_size if (path := data / column.name).exists() else 0
            for column in columns_of(manifest)
            if column.name != REMOVALS_FILE
        }
        ranges = _ranges(findings, manifest.extent.counts)
        removals, num_lost = _removals(data / REMOVALS_FILE, ranges)
    kept: list[_Range] = []
    for part in ranges:
        if any(column.size_at(part.end) > size for column, size in sizes.items()):
            break  # from here on a file is too short
        kept.append(part)
    reached = replace(kept[-1].end, removals=0) if kept else Counts()
    # Without the log, which may be the damaged file.
    shorter = replace(manifest, extent=Extent(reached, len(kept)))
    readable = Salvaged(folder, shorter, kept, removals)
    lost = len(readable.lost_sentences) + manifest.num_sentences - reached.sentences
    return Rescue(manifest, readable, tuple(describe_problems(findings)), lost, num_lost)


def _ranges(findings: Findings, total: Counts) -> list[_Range]:
    """Where each segment begins and ends; those whose lines were lost fill the room between their neighbours."""
    segments: list[Segment | None] = [segment for segment, _ in findings.segments]
    ranges = []
    for at, (segment, bad) in enumerate(findings.segments):
        before = segments[at - 1] if at else None
        behind = segments[at + 1] if at + 1 < len(segments) else None
        first = segment.first if segment else before.end if before else Counts()
        end = segment.end if segment else behind.first if behind else total
        others = set(bad) - {REMOVALS_FILE, LOG}
        ranges.append(_Range(first, end, segment is not None, not others, REMOVALS_FILE not in bad))
    return ranges


def _removals(path: Path, ranges: list[_Range]) -> tuple[np.ndarray, int]:
    """The removals that can be read, and how many cannot."""
    there = np.fromfile(path, REMOVALS) if path.exists() else np.zeros(0, REMOVALS)
    found, num_lost = [there[:0]], 0
    for part in ranges:
        count = part.end.removals - part.first.removals
        read = there[part.first.removals : part.end.removals] if part.has_removals else there[:0]
        found.append(read)
        num_lost += count - len(read)
    return np.concatenate(found), num_lost


def _slices(part: _Range) -> tuple[slice, slice]:
    """Its sentences and its units."""
    return slice(part.first.sentences, part.end.sentences), slice(part.first.units, part.end.units)
