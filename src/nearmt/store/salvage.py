"""Reading what is whole of a damaged store."""

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import numpy as np

from nearmt.errors import StoreDamagedError
from nearmt.store.columns import columns_of
from nearmt.store.extent import Counts, Extent, Segment
from nearmt.store.manifest import Manifest
from nearmt.store.snapshot import Snapshot
from nearmt.store.verify import describe_problems, inspect


class Salvaged(Snapshot):
    """A snapshot of a damaged store: sentences, units and removals of damaged segments do not count."""

    def __init__(
        self, folder: Path, manifest: Manifest, segments: list[tuple[Counts, Counts, bool]], lost: int
    ) -> None:
        super().__init__(folder, manifest)
        counts = manifest.extent.counts
        self._bad_sentences, self._bad_units = np.zeros(counts.sentences, bool), np.zeros(counts.units, bool)
        bad_removals = np.zeros(counts.removals, bool)
        ends = super().sentence_ends.copy()
        for first, end, is_whole in segments:
            if end.sentences > first.sentences:
                ends[end.sentences - 1] = end.entries
            if not is_whole:
                self._bad_sentences[first.sentences : end.sentences] = True
                self._bad_units[first.units : end.units] = True
                bad_removals[first.removals : end.removals] = True
        self.removals = np.array(self.removals[~bad_removals])
        self._ends = ends
        self._cut_off = lost

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

    @property
    def num_lost(self) -> int:
        """How many sentences are gone, those included that the files no longer reach."""
        return len(self.lost_sentences) + self._cut_off


def salvage(
    folder: Path, on_segment: Callable[[int], None] = lambda number: None
) -> tuple[Manifest, Salvaged, list[str]]:
    """The manifest, what can be read, and what is wrong."""
    manifest = Manifest.load(folder)
    findings = inspect(folder, manifest, on_segment)
    problems = describe_problems(findings)
    ranges = _ranges([segment for segment, _ in findings.segments], manifest.extent.counts)
    sizes = {
        column: path.stat().st_size if (path := folder / manifest.data_folder / column.name).exists() else 0
        for column in columns_of(manifest)
    }
    kept: list[tuple[Counts, Counts, bool]] = []
    for (first, end), (_, bad) in zip(ranges, findings.segments, strict=True):
        if any(column.size_at(end) > size for column, size in sizes.items()):
            break  # from here on a file is too short
        kept.append((first, end, not bad))
    reached = kept[-1][1] if kept else Counts()
    shorter = replace(manifest, extent=Extent(reached, len(kept)))  # without the log, which may be the damaged file
    try:
        rescued = Salvaged(folder, shorter, kept, manifest.num_sentences - reached.sentences)
    except StoreDamagedError as error:
        raise StoreDamagedError(f"{error}; nothing of it can be rescued") from error
    return manifest, rescued, problems


def _ranges(segments: list[Segment | None], total: Counts) -> list[tuple[Counts, Counts]]:
    """Where each segment begins and ends; one whose line was lost fills the room between its neighbours."""
    firsts = [segment.first if segment is not None else None for segment in segments]
    for i in range(len(firsts)):
        if firsts[i] is None:
            before = segments[i - 1] if i else None
            firsts[i] = before.end if before is not None else (Counts() if i == 0 else None)
    ends: list[Counts] = []
    following = total
    for i in reversed(range(len(segments))):
        ends.append(following)
        following = firsts[i] if firsts[i] is not None else following  # type: ignore[assignment]
    ends.reverse()
    return [(first if first is not None else end, end) for first, end in zip(firsts, ends, strict=True)]
