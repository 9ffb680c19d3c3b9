"""Copying the live data of a store into new files, for compaction and repair."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from nearmt.corpus import SentencePair
from nearmt.datastore.columns import CommitData, append_commit
from nearmt.datastore.commit_log import Extent
from nearmt.datastore.files import replace_file, storage_errors
from nearmt.datastore.keys import PROJECTION
from nearmt.datastore.manifest import Manifest
from nearmt.datastore.snapshot import Snapshot
from nearmt.datastore.units import Unit

_COPIED_ENTRIES = 65_536
_DECODED_SENTENCES = 8192
# Computes the data to store for some pairs. A pair may get no entries.
Decode = Callable[[Sequence[SentencePair]], CommitData]


class Copier:
    """Copies live sentences with their live units, in order, and maps old numbers to new ones."""

    def __init__(self, folder: Path, original: Path, like: Manifest) -> None:
        """`original` is the folder of the store to copy, and `like` its manifest."""
        self.folder = folder
        self.manifest = replace(like, generation=like.generation + 1, extent=Extent(), index=None, sentence_index=None)
        self._use_key_code(original, like)
        self._sentences = np.zeros(0, np.int64)  # old number → new number, -1 if not copied
        self._units = np.zeros(0, np.int64)
        self._removals = 0  # number of the original's removals that were applied

    def _use_key_code(self, original: Path, like: Manifest) -> None:
        """Code the copy's keys in the same way, with a copy of the principal components of reduced keys."""
        self.manifest = replace(self.manifest, key_range=like.key_range)
        if "projection" in (like.key_range or {}):
            source, target = original / like.data_folder, self.folder / self.manifest.data_folder
            with storage_errors(self.folder):
                target.mkdir(exist_ok=True)
                replace_file(target / PROJECTION, (source / PROJECTION).read_bytes())

    def copy(
        self,
        snapshot: Snapshot,
        on_copied: Callable[[int], None] = lambda sentences: None,
        decode: Decode | None = None,
    ) -> None:
        """Copy a first snapshot, or what a later snapshot has in addition.

        Sentences without states stay without them, unless `decode` computes them.
        """
        if self.manifest.lacks_key_code:  # an empty store gets its first keys while it is copied
            self._use_key_code(snapshot.folder, snapshot.manifest)
        done, units_done = len(self._sentences), len(self._units)
        self._sentences = np.concatenate([self._sentences, np.full(len(snapshot.sentences) - done, -1)])
        self._units = np.concatenate([self._units, np.full(len(snapshot.units) - units_done, -1)])
        wanted = snapshot.live_sentences.copy()
        wanted[:done] &= self._sentences[:done] < 0  # a removed sentence may have been added again
        chosen = np.flatnonzero(wanted)
        ends = snapshot.sentence_ends
        counts = ends[chosen] - snapshot.sentences["first_entry"][chosen]
        for group in _commit_groups(chosen, counts, snapshot.commit_starts):
            self._append(snapshot, group, ends, decode)
            on_copied(int(group[-1]) + 1)
        self._copy_further_units(snapshot, units_done)
        self._apply_removals(snapshot)

    def _append(self, snapshot: Snapshot, sentence_ids: np.ndarray, ends: np.ndarray, decode: Decode | None) -> None:
        first = self.manifest.num_sentences
        self._sentences[sentence_ids] = np.arange(first, first + len(sentence_ids))
        units: list[Unit] = []
        before = self.manifest.extent.counts.units
        for new, old in enumerate(sentence_ids.tolist(), first):
            numbers = snapshot.unit_numbers_of(old)
            self._units[numbers] = np.arange(len(numbers)) + before + len(units)
            units += [
                replace(snapshot.unit(number), sentence_id=new, is_first=at == 0) for at, number in enumerate(numbers)
            ]
        pairs = [snapshot.text(i) for i in sentence_ids.tolist()]
        starts, ends = snapshot.sentences["first_entry"][sentence_ids], ends[sentence_ids]
        if decode is not None and not (ends > starts).any():
            data = replace(decode(pairs), units=units)
        else:
            entries = np.concatenate([np.arange(a, b) for a, b in zip(starts, ends, strict=True)])
            data = CommitData(
                pairs,
                ends - starts,
                snapshot.keys[entries],
                snapshot.values[entries],
                snapshot.probabilities[entries],
                snapshot.positions[entries],
                units,
            )
        self.manifest = append_commit(self.folder, self.manifest, data)

    def _copy_further_units(self, snapshot: Snapshot, units_done: int) -> None:
        """Copy units that were added to sentences after these were copied."""
        late = [
            number
            for number in range(units_done, len(self._units))
            if self._units[number] < 0
            and snapshot.live_units[number]
            and self._sentences[snapshot.units["sentence"][number]] >= 0
        ]
        if late:
            before = self.manifest.extent.counts.units
            self._units[late] = np.arange(before, before + len(late))
            units = [
                replace(unit, sentence_id=int(self._sentences[unit.sentence_id]), is_first=False)
                for unit in map(snapshot.unit, late)
            ]
            data = CommitData.without_entries(self.manifest.width, units)
            self.manifest = append_commit(self.folder, self.manifest, data)

    def _apply_removals(self, snapshot: Snapshot) -> None:
        """Apply removals that were committed after the units were copied."""
        removed = self._units[snapshot.removals[self._removals :]]
        self._removals = len(snapshot.removals)
        gone = removed[removed >= 0].tolist()
        if gone:
            data = CommitData.without_entries(self.manifest.width, removed_units=gone)
            self.manifest = append_commit(self.folder, self.manifest, data)


def _commit_groups(chosen: np.ndarray, counts: np.ndarray, commit_starts: np.ndarray) -> Iterator[np.ndarray]:
    """Sentences in groups that are appended at once: by size, and separately those without entries.

    The latter are grouped by their original commits: decoding the same sentences together gives the same numbers.
    """
    has_entries = counts > 0
    borders = np.diff(has_entries) | (~has_entries[1:] & np.isin(chosen[1:], commit_starts))
    for run in np.split(np.arange(len(chosen)), np.flatnonzero(borders) + 1):
        sizes = (
            np.cumsum(counts[run]) // _COPIED_ENTRIES
            if counts[run].any()
            else np.arange(len(run)) // _DECODED_SENTENCES
        )
        for group in np.split(chosen[run], np.flatnonzero(np.diff(sizes)) + 1):
            if len(group):
                yield group
