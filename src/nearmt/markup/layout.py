"""One sentence without its tags, and where in it they were."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from nearmt.markup.entities import escape
from nearmt.markup.pieces import Piece
from nearmt.markup.placeholders import find_placeholders, without_placeholders
from nearmt.markup.rules import Rules
from nearmt.markup.segments import Segment, has_words

_WINDOW, _WINDOW_CHARS = 3, 200  # words on either side of a single tag that say where it belongs
_ENDS = ".!?。！？…"

Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Mark:
    """A pair of tags around text[start:end], or a single tag at start == end."""

    start: int
    end: int
    opening: str
    closing: str = ""
    parent: int = -1
    is_pair: bool = True
    has_space_before: bool = False
    has_space_after: bool = False
    is_glued: bool = False


@dataclass(frozen=True, slots=True)
class Layout:
    """The plain text of a sentence, as the model gets it, and its marks, parents before their children.

    The text of a sentence with marks is on one line, with single spaces; the marks are positions in that.
    """

    text: str
    marks: list[Mark]
    is_raw: bool

    def span(self, mark: Mark) -> str:
        """What a pair encloses."""
        return self.text[mark.start : mark.end]

    def room(self, mark: Mark) -> Range:
        """What the mark's parent encloses."""
        if mark.parent < 0:
            return 0, len(self.text)
        return self.marks[mark.parent].start, self.marks[mark.parent].end

    def left_of(self, mark: Mark) -> Range:
        """The last words before a mark, inside its parent."""
        low = self.room(mark)[0]
        end = low + len(self.text[low : mark.start].rstrip())
        words = self.text[max(low, end - _WINDOW_CHARS) : end].split()[-_WINDOW:]
        return end - len(" ".join(words)), end

    def right_of(self, mark: Mark) -> Range:
        """The first words behind a mark, inside its parent."""
        high = self.room(mark)[1]
        start = high - len(self.text[mark.end : high].lstrip())
        words = self.text[start : min(high, start + _WINDOW_CHARS)].split()[:_WINDOW]
        return start, start + len(" ".join(words))


def _one_line(text: str) -> str:
    return " ".join(text.split())


class _Builder:
    """Takes pieces one after the other."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.marks: list[Mark] = []
        self._length = 0
        self._opened = [-1]
        self._since_single: list[str] | None = None  # the white space behind a single tag, as long as it is only that

    def add_text(self, piece: Piece) -> None:
        self._add(piece.text)
        if self._since_single is not None and piece.text.isspace():
            self._since_single.append(piece.source)
        else:
            self._since_single = None

    def _add(self, text: str) -> None:
        self.texts.append(text)
        self._length += len(text)

    def open(self, piece: Piece) -> None:
        self.marks.append(Mark(self._length, -1, piece.source, parent=self._opened[-1]))
        self._opened.append(len(self.marks) - 1)
        self._since_single = None

    def close(self, piece: Piece) -> None:
        at = self._opened.pop()
        self.marks[at] = replace(self.marks[at], end=self._length, closing=piece.source)
        self._since_single = None

    def add_single(self, piece: Piece, following: str) -> None:
        """Single tags with only white space between them go together. `following` is the next character of text."""
        before = self.texts[-1][-1:] if self.texts else ""
        is_glued = piece.is_glued and following.isalnum()
        if self._since_single is not None:
            last = self.marks[-1]
            opening = "".join([last.opening, *self._since_single, piece.source])
            is_glued = last.is_glued and is_glued and not self._since_single
            self.marks[-1] = replace(last, opening=opening, has_space_after=following.isspace(), is_glued=is_glued)
        else:
            mark = Mark(
                self._length,
                self._length,
                piece.source,
                parent=self._opened[-1],
                is_pair=False,
                has_space_before=before.isspace(),
                has_space_after=following.isspace(),
                is_glued=is_glued,
            )
            self.marks.append(mark)
        if not is_glued and before.isalnum() and following.isalnum():
            self._add(" ")
        self._since_single = []


def lay_out(segment: Segment) -> Layout:
    """Take the tags out. Where a single tag alone parted two words, a space parts them."""
    built = _Builder()
    pieces = segment.core.pieces
    for piece, following in zip(pieces, _next_characters(pieces), strict=True):
        if piece.kind == "text":
            built.add_text(piece)
        elif piece.kind == "open":
            built.open(piece)
        elif piece.kind == "close":
            built.close(piece)
        else:
            built.add_single(piece, following)
    text, is_raw = "".join(built.texts), any(piece.is_raw for piece in pieces)
    return Layout(*_on_one_line(text, built.marks), is_raw) if built.marks else Layout(text, [], is_raw)


def _next_characters(pieces: list[Piece]) -> list[str]:
    """For each piece the first character of the text behind it, whatever tags are between."""
    found, following = [], ""
    for piece in reversed(pieces):
        found.append(following)
        following = piece.text[:1] or following
    return found[::-1]


def _on_one_line(text: str, marks: list[Mark]) -> tuple[str, list[Mark]]:
    """The text with single spaces, and the marks where they are in it; pairs have no space at their edges."""
    line = _one_line(text)
    positions, length, is_gap = [], 0, True
    for char in text:
        positions.append(min(length, len(line)))
        length += not (is_gap and char.isspace())
        is_gap = char.isspace()
    positions.append(len(line))
    moved = []
    for mark in marks:
        start, end = positions[mark.start], positions[mark.end]
        start += start < end and line[start] == " "
        end -= start < end and line[end - 1] == " "
        moved.append(replace(mark, start=start, end=end))
    return line, moved


def spelled(text: str, rules: Rules, is_raw: bool) -> str:
    """Plain text as it stands in this kind of markup."""
    if rules.kind == "text":
        return text
    if is_raw:
        return text.replace("]]>", "]]]]><![CDATA[>")
    return escape(text, is_html=rules.kind == "html")


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of a sentence between tags and placeholders. `wanted` is what to translate of it, if anything."""

    source: str
    wanted: str = ""
    before: str = ""
    after: str = ""
    is_raw: bool = False

    def filled(self, translation: str, rules: Rules) -> str:
        """The stretch with a translation in it, from which all that looks like markup was taken."""
        clean = _as_part(without_placeholders(translation), self.wanted)
        return self.before + spelled(clean, rules, self.is_raw) + self.after if clean else self.source


def parts_of(segment: Segment) -> Iterator[Part]:
    """The stretches of a sentence that can be translated one by one, and all between them."""
    for piece in segment.core.pieces:
        if piece.kind != "text":
            yield Part(piece.source)
            continue
        done = 0
        for start, end in find_placeholders(piece.text):
            yield from _part(piece, done, start)
            yield Part(piece.part(start, end).source)
            done = end
        yield from _part(piece, done, len(piece.text))


def _part(piece: Piece, start: int, end: int) -> Iterator[Part]:
    text = piece.text[start:end]
    if not has_words(text):
        if text:
            yield Part(piece.part(start, end).source)
        return
    first = start + next(i for i, char in enumerate(text) if char.isalnum())
    last = start + len(text.rstrip())
    yield Part(
        piece.part(start, end).source,
        _one_line(piece.text[first:last]),
        piece.part(start, first).source,
        piece.part(last, end).source,
        piece.is_raw,
    )


def _as_part(translation: str, wanted: str) -> str:
    """A translation of a fragment without the looks of a sentence that models give it."""
    text = translation.strip()
    if text[-1:] in _ENDS and wanted[-1:] not in _ENDS:
        text = text.rstrip(_ENDS).rstrip()
    first_word = text.split()[0] if text.split() else ""
    if wanted[:1].islower() and first_word[1:].islower():
        text = text[0].lower() + text[1:]
    return text
