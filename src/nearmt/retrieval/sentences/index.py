"""The sentence index: from a source text to the stored sentences that help to translate it.

The index has segments: one in files, named by the manifest, and smaller ones in memory for the sentences that were
added since. A look-up finds the same sentences however the store is divided into segments.
"""

from collections.abc import Callable, Sequence

import numpy as np

from nearmt.datastore import Snapshot
from nearmt.retrieval.sentences import selection
from nearmt.retrieval.sentences.segments import HASH_BITS, Segment, load_segment
from nearmt.retrieval.sentences.terms import terms_of

MAX_ENTRIES = 4000  # of the chosen sentences together
_CANDIDATES = 512  # sentences that are compared n-gram by n-gram
_POSTINGS = 8000  # read for a look-up; n-grams that are more frequent are left out
_DECAY = np.float32(0.7)
_IN_MEMORY = 2048  # sentences in the smallest segment; up to twice as many are compared without an index


class SentenceIndex:
    """Finds sentences of one snapshot. It holds no results, so threads can share it."""

    def __init__(self, snapshot: Snapshot, known: Sequence[Segment] = ()) -> None:
        self._snapshot = snapshot
        self._segments = list(known)
        self._extend()
        self.sizes = snapshot.sentence_sizes.astype(np.int32)  # (sentences,) entries of each

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

    def lengths_of(self, sentence_ids: np.ndarray) -> np.ndarray:
        """The number of terms of each sentence."""
        lengths = np.empty(len(sentence_ids), np.int64)
        for segment in (*self._segments, self._rest):
            is_inside = (sentence_ids >= segment.first) & (sentence_ids < segment.end)
            inside = sentence_ids[is_inside] - segment.first
            lengths[is_inside] = segment.starts[inside + 1] - segment.starts[inside]
        return lengths

    def terms_at(self, sentence_ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The terms of sentences, given in ascending order, one after the other, and where each begins."""
        starts = np.zeros(len(sentence_ids) + 1, np.int64)
        np.cumsum(self.lengths_of(sentence_ids), out=starts[1:])
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
                self._segments.append(Segment.read(self._snapshot, 0, end))
        while total - end >= _IN_MEMORY:
            segment = Segment.read(self._snapshot, end, end + _IN_MEMORY)
            while len(self._segments) > 1 and len(self._segments[-1]) <= len(segment):
                segment = self._segments.pop().joined(segment)
            self._segments.append(segment)
            end = segment.end
        self._rest = Segment.read(self._snapshot, end, total)

    def select(
        self, text: str, allowed: np.ndarray, max_entries: int = MAX_ENTRIES, excluded: np.ndarray | None = None
    ) -> np.ndarray:
        """Ids of the sentences that cover the n-grams of a text best, ascending.

        `allowed` (sentences,) is False for sentences that must not be found; `excluded` are the ids of some more.
        """

        def is_allowed(sentence_ids: np.ndarray) -> np.ndarray:
            found: np.ndarray = allowed[sentence_ids]
            return found if excluded is None else found & np.isin(sentence_ids, excluded, invert=True)

        terms = terms_of(text)
        candidates = self.candidates(terms, is_allowed, _CANDIDATES)
        if not len(candidates):
            return candidates
        shared, counts, num_ngrams = self._shared(terms, candidates)
        weights = np.log1p(len(candidates) / np.maximum(np.bincount(shared, minlength=num_ngrams), 1))
        costs = np.maximum(self.sizes[candidates], 1)
        chosen = selection.cover(shared, counts, weights.astype(np.float32), costs, _DECAY, max_entries)
        return np.sort(candidates[chosen])

    def candidates(self, terms: np.ndarray, is_allowed: Callable[[np.ndarray], np.ndarray], count: int) -> np.ndarray:
        """Ids of the sentences that share most with some terms, ascending: rare n-grams weigh more.

        `is_allowed` gets ids of sentences and returns which of them may be found. What a look-up costs does not depend
        on the number of sentences.
        """
        starts = np.array([0, len(terms)])
        ngrams = np.unique((selection.indexed_ngrams(terms, starts) >> HASH_BITS).astype(np.uint32))
        segments = [*self._segments, self._rest]
        ranges = [segment.ranges_of(ngrams) for segment in segments]
        frequencies = np.sum([ends - begins for begins, ends in ranges], axis=0)
        order = np.argsort(frequencies, kind="stable")
        order = order[frequencies[order] > 0]
        read = np.searchsorted(np.cumsum(frequencies[order]), _POSTINGS, side="right")
        order = order[: max(read, 1)]
        if not read:
            _keep_newest(ranges, order, _POSTINGS)
        weights = np.log1p(len(self.sizes) / np.maximum(frequencies[order], 1)).astype(np.float32)
        ids, scores = selection.score_table(sum(int((ends - begins)[order].sum()) for begins, ends in ranges))
        for segment, (begins, ends) in zip(segments, ranges, strict=True):
            selection.add_scores(begins[order], ends[order], weights, segment.postings, segment.first, ids, scores)
        slots = np.flatnonzero(ids >= 0)
        slots = slots[is_allowed(ids[slots])]
        near, of_near = ids[slots], scores[slots]
        if len(near) > count:
            limit = np.partition(of_near, len(near) - count)[len(near) - count]
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


def _keep_newest(ranges: Sequence[tuple[np.ndarray, np.ndarray]], order: np.ndarray, count: int) -> None:
    """Shorten the ranges of an n-gram that too many sentences have to its last postings."""
    for begins, ends in reversed(ranges):
        begins[order] = np.maximum(begins[order], ends[order] - count)
        count -= int((ends[order] - begins[order]).sum())
