"""Segments of the sentence index: the terms of consecutive sentences, and which of them have each n-gram."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nearmt.datastore import SentenceIndexRecord, Snapshot
from nearmt.errors import StoreDamagedError
from nearmt.retrieval.arrays import map_arrays
from nearmt.retrieval.sentences import selection
from nearmt.retrieval.sentences.terms import terms_of_all

_READ = 2048  # sentences that are read at a time
HASH_BITS = np.uint64(32)


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
        pairs = sorted_pairs(terms, starts)
        ngrams, begins = first_of_each(pairs)
        return cls(first, terms, starts, ngrams, np.append(begins, len(pairs)), pairs.astype(np.uint32))

    @classmethod
    def read(cls, snapshot: Snapshot, first: int, end: int) -> "Segment":
        """Index the sentences of a snapshot from `first` to `end`."""
        parts = [read_terms(snapshot, start, end) for start in range(first, end, _READ)]
        starts = np.cumsum(np.concatenate([[0], *(np.diff(starts) for _, starts in parts)]), dtype=np.int64)
        return cls.of(first, np.concatenate([np.zeros(0, np.uint32), *(terms for terms, _ in parts)]), starts)

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


def read_terms(snapshot: Snapshot, first: int, end: int) -> tuple[np.ndarray, np.ndarray]:
    """The terms of at most `_READ` sentences from `first` on and before `end`, and where each begins."""
    return terms_of_all([snapshot.sides(number)[0] for number in range(first, min(first + _READ, end))])


def sorted_pairs(terms: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """(pairs,) every n-gram of every sentence once, ascending: a hash in the high 32 bits, the sentence in the low."""
    pairs: np.ndarray = selection.indexed_ngrams(terms, starts)
    pairs.sort()
    found: np.ndarray = pairs[_is_first(pairs)]
    return found


def first_of_each(pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The hashes of sorted pairs, each once, and where each begins."""
    hashes = (pairs >> HASH_BITS).astype(np.uint32)
    begins = np.flatnonzero(_is_first(hashes))
    return hashes[begins], begins


def _is_first(values: np.ndarray) -> np.ndarray:
    """True where a sorted array has another value than before."""
    found = np.ones(len(values), bool)
    np.not_equal(values[1:], values[:-1], out=found[1:])
    return found


def load_segment(folder: Path, record: SentenceIndexRecord) -> Segment:
    """Map the files of an index."""
    try:
        return Segment(0, *map_arrays(folder, record.files))
    except TypeError as error:
        raise StoreDamagedError(f"the sentence index of {folder} is incomplete: run nearmt verify") from error
