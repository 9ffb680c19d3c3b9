"""The sentence index: from a source text to the stored sentences that help to translate it.

The index has segments: one in files, named by the manifest, and smaller ones in memory for the sentences that were
added since. A look-up finds the same sentences however the store is divided into segments.
"""

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from nearmt.datastore import SentenceIndexRecord, Snapshot, check_file, sha256_of
from nearmt.errors import StoreDamagedError
from nearmt.retrieval.sentences import selection
from nearmt.retrieval.sentences.terms import terms_of, terms_of_all

MAX_ENTRIES = 4000  # of the chosen sentences together
_CANDIDATES = 512  # sentences that are compared n-gram by n-gram
_POSTINGS = 30_000  # read for a look-up; frequent n-grams are left out
_DECAY = np.float32(0.7)
_IN_MEMORY = 2048  # sentences in the smallest segment; up to twice as many are compared without an index
_ARRAYS = {"terms": "<u4", "starts": "<i8", "ngrams": "<u4", "begins": "<i8", "postings": "<u4"}


@dataclass(frozen=True)
class Segment:
    """Consecutive sentences: their terms, and for every unigram and bigram the sentences that have it."""

    first: int  # sentence id
    terms: np.ndarray  # (terms,) uint32
    starts: np.ndarray  # (sentences + 1,) where each sentence's terms begin
    ngrams: np.ndarray  # (ngrams,) hashes, ascending
    begins: np.ndarray  # (ngrams + 1,) where each n-gram's postings begin
    postings: np.ndarray  # (postings,) sentences, relative to `first`, ascending for each n-gram

    @classmethod
    def of(cls, first: int, terms: np.ndarray, starts: np.ndarray) -> "Segment":
        """Index the terms of consecutive sentences."""
        pairs = np.unique(selection.indexed_ngrams(terms, starts))
        hashes = (pairs >> np.uint64(32)).astype(np.uint32)
        ngrams, begins = np.unique(hashes, return_index=True)
        begins = np.append(begins, len(hashes)).astype(np.int64)
        return cls(first, terms, starts, ngrams, begins, pairs.astype(np.uint32))

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def end(self) -> int:
        return self.first + len(self)

    def ranges_of(self, ngrams: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where the postings of n-grams begin and end; an empty range for those that no sentence has."""
        if not len(self.ngrams):
            return np.zeros(len(ngrams), np.int64), np.zeros(len(ngrams), np.int64)
        places = np.minimum(np.searchsorted(self.ngrams, ngrams), len(self.ngrams) - 1)
        begins = self.begins[places]
        return begins, np.where(self.ngrams[places] == ngrams, self.begins[places + 1], begins)

    def joined(self, other: "Segment") -> "Segment":
        """One segment of this one's sentences and those that follow."""
        starts = np.concatenate([self.starts, other.starts[1:] + self.starts[-1]])
        return Segment.of(self.first, np.concatenate([self.terms, other.terms]), starts)


class SentenceIndex:
    """Finds sentences of one snapshot. It holds no results, so threads can share it."""

    def __init__(self, snapshot: Snapshot, known: Sequence[Segment] = ()) -> None:
        self._snapshot = snapshot
        self._segments = list(known)
        self._extend()
        self._sizes = snapshot.sentence_ends - snapshot.sentences["first_entry"]  # (sentences,) entries of each
        self._scratch = threading.local()

    @classmethod
    def open(cls, snapshot: Snapshot) -> "SentenceIndex":
        """Load the index of a store; without one, all sentences are indexed in memory."""
        record = snapshot.manifest.sentence_index
        return cls(snapshot, [] if record is None else [load_segment(snapshot.folder, record)])

    def following(self, snapshot: Snapshot) -> "SentenceIndex":
        """The index of a later snapshot of the same data."""
        old, new = self._snapshot.manifest, snapshot.manifest
        if any(getattr(old, name) != getattr(new, name) for name in ("created_at", "generation", "sentence_index")):
            return SentenceIndex.open(snapshot)
        return SentenceIndex(snapshot, self._segments)

    @cached_property
    def lengths(self) -> np.ndarray:
        """(sentences,) the number of terms of each."""
        return np.concatenate([np.diff(segment.starts) for segment in (*self._segments, self._rest)])

    def terms_at(self, sentence_ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The terms of sentences, given in ascending order, one after the other, and where each begins."""
        starts = np.zeros(len(sentence_ids) + 1, np.int64)
        np.cumsum(self.lengths[sentence_ids], out=starts[1:])
        parts = []
        for segment in (*self._segments, self._rest):
            low, high = np.searchsorted(sentence_ids, [segment.first, segment.end])
            inside = sentence_ids[low:high] - segment.first
            shifts = segment.starts[inside] - starts[low:high]  # from a place in the result to one in the segment
            places = np.arange(starts[low], starts[high])
            parts.append(segment.terms[places + np.repeat(shifts, np.diff(starts[low : high + 1]))])
        return np.concatenate(parts), starts

    def _extend(self) -> None:
        """Index new sentences. Segments in memory are joined when they are of one size, so there are only a few."""
        total = len(self._snapshot.sentences)
        end = self._segments[-1].end if self._segments else 0
        if not self._segments and total:
            end = total // _IN_MEMORY * _IN_MEMORY  # all at once
            if end:
                self._segments.append(self._read(0, end))
        while total - end >= _IN_MEMORY:
            segment = self._read(end, end + _IN_MEMORY)
            while len(self._segments) > 1 and len(self._segments[-1]) <= len(segment):
                segment = self._segments.pop().joined(segment)
            self._segments.append(segment)
            end = segment.end
        terms, starts = terms_of_all([self._snapshot.sides(i)[0] for i in range(end, total)])
        self._rest = Segment.of(end, terms, starts)

    def _read(self, first: int, end: int) -> Segment:
        return Segment.of(first, *terms_of_all([self._snapshot.sides(i)[0] for i in range(first, end)]))

    def select(self, text: str, allowed: np.ndarray, max_entries: int = MAX_ENTRIES) -> np.ndarray:
        """Ids of the sentences that cover the n-grams of a text best, ascending.

        `allowed` (sentences,) is False for sentences that must not be found.
        """
        terms = terms_of(text)
        candidates = self.candidates(terms, allowed, _CANDIDATES)
        if not len(candidates):
            return candidates
        shared, counts, num_ngrams = self._shared(terms, candidates)
        weights = np.log1p(len(candidates) / np.maximum(np.bincount(shared, minlength=num_ngrams), 1))
        costs = np.maximum(self._sizes[candidates], 1)
        chosen = selection.cover(shared, counts, weights.astype(np.float32), costs, _DECAY, max_entries)
        return np.sort(candidates[chosen])

    def candidates(self, terms: np.ndarray, allowed: np.ndarray, count: int) -> np.ndarray:
        """Ids of the sentences that share most with some terms, ascending: rare n-grams weigh more."""
        starts = np.array([0, len(terms)])
        ngrams = np.unique((selection.indexed_ngrams(terms, starts) >> np.uint64(32)).astype(np.uint32))
        segments = [*self._segments, self._rest]
        ranges = [segment.ranges_of(ngrams) for segment in segments]
        frequencies = np.sum([ends - begins for begins, ends in ranges], axis=0)
        order = np.argsort(frequencies, kind="stable")
        order = order[frequencies[order] > 0]
        read = np.searchsorted(np.cumsum(frequencies[order]), _POSTINGS, side="right")
        order = order[: max(read, 1)]
        if not read:
            _keep_newest(ranges, order, _POSTINGS)
        weights = np.log1p(len(allowed) / np.maximum(frequencies[order], 1)).astype(np.float32)
        scores, touched = self._scratch_arrays()
        found = 0
        for segment, (begins, ends) in zip(segments, ranges, strict=True):
            found = selection.add_scores(
                begins[order],
                ends[order],
                weights,
                segment.postings,
                allowed,
                segment.first,
                scores,
                touched,
                found,
            )
        near = touched[:found].copy()
        of_near = scores[near]
        scores[near] = 0
        if found > count:
            limit = np.partition(of_near, found - count)[found - count]
            above, tied = near[of_near > limit], np.sort(near[of_near == limit])
            near = np.concatenate([above, tied[len(tied) - (count - len(above)) :]])  # the newest of equals
        return np.sort(near)

    def _shared(self, terms: np.ndarray, candidates: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
        """The n-grams that candidates share with some terms, how many each shares, and how many n-grams there are."""
        hashes, numbers, num_ngrams = selection.ngram_table(terms)
        parts = []
        for segment in (*self._segments, self._rest):
            low, high = np.searchsorted(candidates, [segment.first, segment.end])
            if high > low:
                inside = candidates[low:high] - segment.first
                parts.append(
                    selection.shared_ngrams(inside, segment.terms, segment.starts, hashes, numbers, num_ngrams)
                )
        return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts]), num_ngrams

    def _scratch_arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """Scores, all 0, and room for the ids of those that are not; one pair for each thread."""
        if not hasattr(self._scratch, "arrays"):
            total = len(self._snapshot.sentences)
            self._scratch.arrays = np.zeros(total, np.float32), np.empty(total, np.int64)
        arrays: tuple[np.ndarray, np.ndarray] = self._scratch.arrays
        return arrays


def _keep_newest(ranges: Sequence[tuple[np.ndarray, np.ndarray]], order: np.ndarray, count: int) -> None:
    """Shorten the ranges of an n-gram that too many sentences have to its last postings."""
    for begins, ends in reversed(ranges):
        begins[order] = np.maximum(begins[order], ends[order] - count)
        count -= int((ends[order] - begins[order]).sum())


def build_sentence_index(
    snapshot: Snapshot, name: str, on_progress: Callable[[int], None] = lambda sentences: None
) -> SentenceIndexRecord:
    """Index all sentences of a snapshot in files whose names begin with `name`."""
    total = len(snapshot.sentences)
    parts = []
    for first in range(0, total, _IN_MEMORY):
        end = min(first + _IN_MEMORY, total)
        parts.append(terms_of_all([snapshot.sides(i)[0] for i in range(first, end)]))
        on_progress(end)
    terms = np.concatenate([terms for terms, _ in parts]) if parts else np.zeros(0, np.uint32)
    starts = np.cumsum(np.concatenate([[0], *(np.diff(starts) for _, starts in parts)]), dtype=np.int64)
    segment = Segment.of(0, terms, starts)
    files, size = {}, 0
    for array, dtype in _ARRAYS.items():
        path = snapshot.folder / f"{name}-{array}.npy"
        _save(path, getattr(segment, array).astype(dtype, copy=False))
        files[path.name] = sha256_of(path)
        size += path.stat().st_size
    return SentenceIndexRecord(total, files, size)


def _save(path: Path, array: np.ndarray) -> None:
    """Write an array to a .npy file and flush it. np.save does not notice a disk that is full at the end of a file."""
    with path.open("wb") as out:
        np.lib.format.write_array_header_1_0(out, np.lib.format.header_data_from_array_1_0(array))
        out.write(np.ascontiguousarray(array).data)
        out.flush()
        os.fsync(out.fileno())


def load_segment(folder: Path, record: SentenceIndexRecord) -> Segment:
    """Map the files of an index, after checking them: compiled code does not validate what it reads."""
    arrays = []
    for name, checksum in record.files.items():
        check_file(folder / name, checksum)
        arrays.append(np.load(folder / name, mmap_mode="r"))
    try:
        return Segment(0, *arrays)
    except TypeError as error:
        raise StoreDamagedError(f"the sentence index of {folder} is incomplete: run nearmt verify") from error
