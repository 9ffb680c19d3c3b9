"""Matches: stored sentences whose source is similar or equal to a text, with percentages as CAT tools count them."""

import copy
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np

from nearmt.corpus import normalise_space
from nearmt.datastore import Filter, Snapshot, SourceLookup, date_of, seconds_of, text_hash
from nearmt.errors import SettingError
from nearmt.retrieval.sentences.index import SentenceIndex
from nearmt.retrieval.sentences.similarity import ComparedTexts, percents

LIMIT = 5  # matches that are shown unless another number is given
MINIMUM = 50  # percent
_COMPARED = 128  # sentences that are compared with a text
_TAG = re.compile(r"</?[A-Za-z][^<>]*>")


@dataclass(frozen=True)
class Match:
    """A stored sentence that is similar to a text."""

    source: str
    target: str
    percent: int  # 100 only if the source is the text, apart from white space
    sentence_id: int
    unit_id: str | None
    origin: str | None
    changed_at: str  # ISO 8601 in UTC; when it was added, if it is unknown when it was changed
    store: str  # the store's folder


def find_matches(
    index: SentenceIndex,
    snapshot: Snapshot,
    text: str,
    newest: np.ndarray,
    limit: int,
    minimum: int,
    same: Sequence[int] | np.ndarray = (),
) -> list[Match]:
    """The sentences that are most similar to a text, best first; of equally similar ones the newest first.

    `newest` (sentences,) is the newest unit of each sentence that may be used, -1 where there is none: see
    `Filter.newest_units`. `same` are the sentences with this very source. The index alone may miss one of them if very
    many sentences have the same words.
    """
    without_tags = _TAG.sub(" ", text)
    variants = ComparedTexts.of([text] if without_tags == text else [text, without_tags])
    variants.hashes[:] = variants.hashes[0]  # without its tags, it is not the same text
    ids = np.asarray(same, np.int64)
    ids = ids[newest[ids] >= 0]
    for start, end in pairwise(variants.starts.tolist()):
        # A sentence that is too long or too short for the minimum must not take the place of a shorter match.
        shortest, longest = (end - start) * minimum / 100, (end - start) * 100 / minimum
        is_close = partial(_is_close, index, newest, shortest, longest)
        ids = np.union1d(ids, index.candidates(variants.terms[start:end], is_close, _COMPARED))
    if not len(ids):
        return []
    others = ComparedTexts(*index.terms_at(ids), np.asarray(snapshot.sentences["source_hash"][ids]))
    similarities = percents(variants, others).max(axis=0)  # with or without tags
    order = np.lexsort((newest[ids], snapshot.units["time"][newest[ids]], similarities))[::-1]
    order = order[similarities[order] >= minimum][:limit]
    return [_match(snapshot, int(newest[ids[at]]), int(similarities[at])) for at in order]


def _is_close(
    index: SentenceIndex, newest: np.ndarray, shortest: float, longest: float, sentence_ids: np.ndarray
) -> np.ndarray:
    """Which sentences may be used and have a length in these limits."""
    lengths = index.lengths_of(sentence_ids)
    found: np.ndarray = (newest[sentence_ids] >= 0) & (lengths >= shortest) & (lengths <= longest)
    return found


def _match(snapshot: Snapshot, unit_number: int, percent: int) -> Match:
    unit = snapshot.unit(unit_number)
    source, target = snapshot.sides(unit.sentence_id)
    return Match(
        source,
        target,
        percent,
        unit.sentence_id,
        unit.unit_id,
        unit.origin,
        date_of(unit.time),
        str(snapshot.folder),
    )


class MatchFinder:
    """Finds matches in one snapshot, or in the part of it that a filter allows. Threads can share it.

    What it needs is read when it is first used: exact matches only need the hashes of the sources.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        index: SentenceIndex | None = None,
        *,
        before: "MatchFinder | None" = None,
    ) -> None:
        self.snapshot = snapshot
        self._shared: _Shared = _Shared(snapshot, index, before._shared if before is not None else None)
        self._filter = Filter()
        self._newest: np.ndarray | None = None

    def filtered(self, wanted: Filter) -> "MatchFinder":
        """The same search, in a part of the store."""
        narrower = copy.copy(self)
        narrower._filter, narrower._newest = wanted, None
        return narrower

    def following(self, snapshot: Snapshot, index: SentenceIndex | None = None) -> "MatchFinder":
        """The finder of a later snapshot of the same store; keeps what was read already."""
        return MatchFinder(snapshot, index, before=self)

    @property
    def newest(self) -> np.ndarray:
        """(sentences,) the newest unit of each that may be used, -1 where there is none."""
        if self._newest is None:
            self._newest = self._filter.newest_units(self.snapshot)
        return self._newest

    def matches(self, text: str, limit: int = LIMIT, minimum: int = MINIMUM) -> list[Match]:
        """The best matches of a text, best first."""
        check_limits(limit, minimum)
        text = normalise_space(text)
        if not text:
            return []
        same = self._shared.sources().find(text_hash(text))
        return find_matches(self._shared.index(), self.snapshot, text, self.newest, limit, minimum, same)

    def exact(self, text: str) -> Match | None:
        """The newest stored sentence with this source, white space apart."""
        text = normalise_space(text)
        ids = self._shared.sources().find(text_hash(text))
        if not len(ids):
            return None
        units = self.newest[ids]
        units = units[units >= 0]
        order = np.lexsort((units, self.snapshot.units["time"][units]))[::-1]
        found = (_match(self.snapshot, int(units[at]), 100) for at in order)
        return next((match for match in found if match.source == text), None)


class _Shared:
    """What a finder and its filtered copies share: the sentence index and the hashes of the sources."""

    def __init__(self, snapshot: Snapshot, index: SentenceIndex | None, before: "_Shared | None") -> None:
        self._snapshot, self._index = snapshot, index
        self._sources: SourceLookup | None = None
        # Not `before` itself, which would keep all earlier snapshots.
        self._old_index: SentenceIndex | None = (before._index or before._old_index) if before is not None else None
        self._old_sources: SourceLookup | None = (
            (before._sources or before._old_sources) if before is not None else None
        )
        self._lock = threading.Lock()

    def index(self) -> SentenceIndex:
        with self._lock:
            if self._index is None:
                old, self._old_index = self._old_index, None
                self._index = old.following(self._snapshot) if old else SentenceIndex.open(self._snapshot)
            return self._index

    def sources(self) -> SourceLookup:
        with self._lock:
            if self._sources is None:
                old, self._old_sources = self._old_sources, None
                self._sources = old.following(self._snapshot) if old else SourceLookup(self._snapshot)
            return self._sources


def check_limits(limit: int, minimum: int) -> None:
    """Refuse impossible settings."""
    if limit < 1:
        raise SettingError(f"`limit` must be at least 1, not {limit}")
    if not 1 <= minimum <= 100:
        raise SettingError(f"`minimum` must be from 1 to 100 percent, not {minimum}")


def best_of_stores(
    finders: Sequence[MatchFinder], text: str, limit: int = LIMIT, minimum: int = MINIMUM
) -> list[Match]:
    """The best matches of a text in several stores; a pair in several stores is only found in the first of them."""
    found: dict[tuple[str, str], Match] = {}
    for finder in finders:
        for match in finder.matches(text, limit, minimum):
            found.setdefault((match.source, match.target), match)
    return sorted(found.values(), key=lambda match: (-match.percent, -(seconds_of(match.changed_at) or 0)))[:limit]


def first_exact(finders: Sequence[MatchFinder], text: str) -> Match | None:
    """The exact match of the first store that has one."""
    return next((match for finder in finders if (match := finder.exact(text)) is not None), None)
