"""Puts the tags of a sentence into its translation.

A pair goes around the translation of its content, a single tag next to the translation of the words beside it. If these
words repeat, the second occurrence in the source corresponds to the second in the output. A tag whose words are not
found is placed in proportion to its position in the source. Ranges never cut a word or a placeholder, never overlap
unless one contains the other, and a child stays inside its parent, so the result is well nested.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from rapidfuzz import fuzz

from nearmt.markup.layout import Layout, Mark, Range, spelled
from nearmt.markup.placeholders import find_placeholders
from nearmt.markup.rules import Rules

MAX_MARKS, MAX_CHARS = 32, 2000  # beyond these, fragments are translated: the search costs marks × characters
_MIN_SIMILARITY = 75.0  # rapidfuzz's ratio, of 100
_MIN_WINDOW_SIMILARITY = 85.0
_ENDS = ".!?,;:。！？…"

_MAX_NARROWED = 12  # words
_WORD = re.compile(r"\w+(?:[^\w\s]+\w+)*")


@dataclass(frozen=True, slots=True)
class _Found:
    range: Range
    score: float


def can_be_placed(layout: Layout) -> bool:
    """True if the sentence is short enough, with few enough marks, to search for each mark."""
    return not layout.marks or (len(layout.marks) <= MAX_MARKS and len(layout.text) <= MAX_CHARS)


def requests_of(layout: Layout) -> list[str]:
    """The texts to translate, besides the sentence itself, in order to place the marks."""
    wanted: list[Range] = []
    for mark in layout.marks:
        wanted += [(mark.start, mark.end)] if mark.is_pair else [layout.left_of(mark), layout.right_of(mark)]
    return [layout.text[start:end] for start, end in wanted]


def place(layout: Layout, output: str, known: Mapping[str, str], rules: Rules) -> str | None:
    """The translated sentence with its tags; None if there is no place for a pair."""
    placer = _Placer(layout, output, known)
    ranges = placer.ranges()
    if ranges is None:
        return None
    return _Writer(layout, output, ranges, rules).write(-1, (0, len(output)))


class _Placer:
    def __init__(self, layout: Layout, output: str, known: Mapping[str, str]) -> None:
        self._layout, self._output, self._known = layout, output, known
        self._held = find_placeholders(output)
        self._inside, self._source_inside = _forbidden_positions(output), _forbidden_positions(layout.text)
        self._ranges: dict[int, Range] = {}

    def ranges(self) -> dict[int, Range] | None:
        marks = self._layout.marks
        for index, mark in enumerate(marks):
            if mark.is_pair:
                found = self._find((mark.start, mark.end), mark, _MIN_SIMILARITY)
                span = found.range if found is not None else self._in_proportion(mark)
                if span is None:
                    return None
                self._ranges[index] = span
        for index, mark in enumerate(marks):
            if not mark.is_pair:
                at = self._allowed(self._position(mark), mark)
                self._ranges[index] = (at, at)
        return self._ranges

    def _bounds(self, mark: Mark) -> Range:
        return self._ranges.get(mark.parent, (0, len(self._output)))

    def _siblings(self, mark: Mark) -> list[Range]:
        marks = self._layout.marks
        return [span for index, span in self._ranges.items() if marks[index].parent == mark.parent]

    def _find(self, own: Range, mark: Mark, min_score: float) -> _Found | None:
        """The range in the output of the translation of a source range, free of the mark's siblings.

        Words that occur as often as in the source are matched by their order, others by their relative position.
        """
        wanted = " ".join(self._known.get(self._layout.text[slice(*own)], "").split())
        if mark.is_pair and self._layout.span(mark)[-1:] not in _ENDS:
            wanted = wanted.rstrip(_ENDS).rstrip()
        low, high = bounds = self._bounds(mark)
        if not wanted or low >= high:
            return None
        source = self._layout.text
        spans = _occurrences(wanted, self._output, bounds, self._inside)
        in_source = _occurrences(source[slice(*own)], source, self._layout.bounds(mark), self._source_inside)
        if own not in in_source and 0 < len(spans) <= len(in_source):
            return None  # part of a word; the occurrences found are the same text as whole words
        taken = self._siblings(mark) if mark.is_pair else []
        if len(spans) == len(in_source) and spans and self._is_free(nth := spans[in_source.index(own)], taken):
            return _Found(nth, 100.0)
        free = [span for span in spans if self._is_free(span, taken)]
        return self._nearest(free, own) or self._similar(wanted, bounds, taken, min_score)

    def _nearest(self, spans: list[Range], own: Range) -> _Found | None:
        start, end = map(self._proportional, own)
        best = min(spans, key=lambda span: abs(span[0] - start) + abs(span[1] - end), default=None)
        return _Found(best, 99.0) if best is not None else None

    def _similar(self, wanted: str, bounds: Range, taken: list[Range], min_score: float) -> _Found | None:
        text = self._output[slice(*bounds)]
        if len(wanted) > len(text):
            span = bounds
        else:
            found = fuzz.partial_ratio_alignment(_folded(wanted), _folded(text), score_cutoff=min_score)
            if found is None:
                return None
            span = (bounds[0] + found.dest_start, bounds[0] + found.dest_end)
        spans = [self._snapped(each, bounds) for each in self._narrowed(self._snapped(span, bounds))]
        spans = [each for each in spans if each[0] < each[1] and self._is_free(each, taken)]
        best = max((_Found(each, self._similarity(wanted, each)) for each in spans), key=_score, default=None)
        return best if best is not None and best.score >= min_score else None

    def _narrowed(self, span: Range) -> list[Range]:
        """The range and every range of whole words in it: a fragment on its own is often translated with more words."""
        words = [found.span() for found in _WORD.finditer(self._output, *span)]
        if len(words) > _MAX_NARROWED:
            return [span]
        return [span, *((first[0], last[1]) for at, first in enumerate(words) for last in words[at:])]

    def _similarity(self, wanted: str, span: Range) -> float:
        return float(fuzz.ratio(_folded(wanted), _folded(self._output[slice(*span)])))

    def _is_free(self, span: Range, taken: list[Range]) -> bool:
        return not any(start < span[1] and span[0] < end for start, end in taken)

    def _snapped(self, span: Range, bounds: Range) -> Range:
        """A range extended to whole words and placeholders, without white space at its ends."""
        text, (start, end) = self._output, span
        while start < end and text[start].isspace():
            start += 1
        while end > start and text[end - 1].isspace():
            end -= 1
        while bounds[0] < start and _is_inside_word(text, start):
            start -= 1
        while end < bounds[1] and _is_inside_word(text, end):
            end += 1
        for low, high in self._held:
            start = low if low < start < high else start
            end = high if low < end < high else end
        return start, end

    def _proportional(self, at: int) -> int:
        return round(at * len(self._output) / max(len(self._layout.text), 1))

    def _in_proportion(self, mark: Mark) -> Range | None:
        """Whole words at the relative position of the pair in the source; None if there are no free ones.

        A whole sentence with a tag that a reviewer may have to move reads better than one translated in fragments.
        """
        low, high = bounds = self._bounds(mark)
        start, end = (min(max(self._proportional(at), low), high) for at in (mark.start, mark.end))
        span = self._snapped((start, end), bounds)
        if self._layout.span(mark)[-1:] not in _ENDS:
            span = span[0], span[0] + len(self._output[slice(*span)].rstrip(_ENDS))
        return span if span[0] < span[1] and self._is_free(span, self._siblings(mark)) else None

    def _position(self, mark: Mark) -> int:
        guess = self._proportional(mark.start)
        if mark.is_glued:
            starts = [found.start() for found in re.finditer(r"\b\w", self._output)]
            return min(starts, key=lambda at: abs(at - guess), default=0)
        left = self._find(self._layout.left_of(mark), mark, _MIN_WINDOW_SIMILARITY)
        right = self._find(self._layout.right_of(mark), mark, _MIN_WINDOW_SIMILARITY)
        if left and (right is None or left.score >= right.score):
            return left.range[1]
        return right.range[0] if right else guess

    def _allowed(self, at: int, mark: Mark) -> int:
        """The nearest position inside the parent that is not inside a word, a placeholder or another pair."""
        low, high = self._bounds(mark)
        blocked = [span for span in self._siblings(mark) if span[0] < span[1]]
        places = [
            place
            for place in range(low, high + 1)
            if place not in self._inside and not any(start < place < end for start, end in blocked)
        ]
        return min(places, key=lambda place: abs(place - at), default=low)


def _forbidden_positions(text: str) -> frozenset[int]:
    """The positions at which a tag would cut a word or a placeholder."""
    held = {place for start, end in find_placeholders(text) for place in range(start + 1, end)}
    return frozenset(held.union(at for at in range(1, len(text)) if _is_inside_word(text, at)))


def _occurrences(wanted: str, text: str, bounds: Range, inside: frozenset[int]) -> list[Range]:
    """All occurrences of some words in the bounds, even overlapping: `die die` is twice in `die die die`."""
    if not wanted:
        return []
    pattern = r"\s+".join(re.escape(word) for word in wanted.split())
    found = re.compile(f"(?=({pattern}))", re.IGNORECASE).finditer(text, *bounds)
    return [match.span(1) for match in found if inside.isdisjoint({*match.span(1)}.difference(bounds))]


def _score(found: _Found) -> float:
    return found.score


def _is_word(char: str) -> bool:
    return char.isalnum() or char == "_"


def _is_inside_word(text: str, at: int) -> bool:
    return 0 < at < len(text) and _is_word(text[at - 1]) and _is_word(text[at])


def _folded(text: str) -> str:
    lower = text.lower()
    return lower if len(lower) == len(text) else text  # positions must not shift


class _Writer:
    """Writes the text with its tags in their new order."""

    def __init__(self, layout: Layout, output: str, ranges: Mapping[int, Range], rules: Rules) -> None:
        self._layout, self._output, self._ranges, self._rules = layout, output, ranges, rules

    def write(self, parent: int, bounds: Range) -> str:
        marks = self._layout.marks
        children = [index for index, mark in enumerate(marks) if mark.parent == parent]
        written: list[str] = []
        at = bounds[0]
        for index in sorted(children, key=lambda index: (self._ranges[index], index)):
            mark, (start, end) = marks[index], self._ranges[index]
            start, end = max(start, at), max(end, at)
            if mark.is_pair:
                written += [self._text(at, start), mark.opening, self.write(index, (start, end)), mark.closing]
                at = end
            else:
                at = self._write_single(mark, at, start, bounds, written)
        return "".join(written) + self._text(at, bounds[1])

    def _write_single(self, mark: Mark, at: int, place: int, bounds: Range, written: list[str]) -> int:
        """Write the text up to a single tag, and the tag with the spaces it had; return the position after it."""
        if mark.is_glued:
            written += [self._text(at, place), mark.opening]
            return place
        before, behind = self._output[at:place], place
        while behind < bounds[1] and self._output[behind].isspace():
            behind += 1
        had_gap = behind > place or before[-1:].isspace()
        kept = before.rstrip()
        needs_before = mark.has_space_before and (kept or at > bounds[0])
        is_word_next = behind < bounds[1] and (had_gap or _is_word(self._output[behind]))
        written += [spelled(kept, self._rules, self._layout.is_raw), " " if needs_before else "", mark.opening]
        written.append(" " if mark.has_space_after and is_word_next else "")
        return behind

    def _text(self, start: int, end: int) -> str:
        return spelled(self._output[start:end], self._rules, self._layout.is_raw)
