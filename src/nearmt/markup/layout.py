"""A sentence without its tags, and the positions of the tags in it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from nearmt.markup.entities import escape
from nearmt.markup.placeholders import find_placeholders, without_placeholders
from nearmt.markup.rules import Rules
from nearmt.markup.runs import Run
from nearmt.markup.sentences import Sentence, has_words

_WINDOW, _WINDOW_CHARS = 3, 200  # context on either side of a single tag: words, characters
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

    If there are marks, the text is on one line with single spaces, and the marks are positions in this line.
    """

    text: str
    marks: list[Mark]
    is_raw: bool

    def span(self, mark: Mark) -> str:
        """The text inside a pair."""
        return self.text[mark.start : mark.end]

    def bounds(self, mark: Mark) -> Range:
        """The range of the mark's parent, or of the whole sentence."""
        if mark.parent < 0:
            return 0, len(self.text)
        return self.marks[mark.parent].start, self.marks[mark.parent].end

    def left_of(self, mark: Mark) -> Range:
        """The range of the last words before a mark, inside its parent."""
        low = self.bounds(mark)[0]
        end = low + len(self.text[low : mark.start].rstrip())
        words = self.text[max(low, end - _WINDOW_CHARS) : end].split()[-_WINDOW:]
        return end - len(" ".join(words)), end

    def right_of(self, mark: Mark) -> Range:
        """The range of the first words after a mark, inside its parent."""
        high = self.bounds(mark)[1]
        start = high - len(self.text[mark.end : high].lstrip())
        words = self.text[start : min(high, start + _WINDOW_CHARS)].split()[:_WINDOW]
        return start, start + len(" ".join(words))


def _one_line(text: str) -> str:
    return " ".join(text.split())


class _Builder:
    """Collects the text and the marks of a sentence run by run."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.marks: list[Mark] = []
        self._length = 0
        self._opened = [-1]
        self._since_single: list[str] | None = None  # white space after a single tag; None after anything else

    def add_text(self, run: Run) -> None:
        self._add(run.text)
        if self._since_single is not None and run.text.isspace():
            self._since_single.append(run.source)
        else:
            self._since_single = None

    def _add(self, text: str) -> None:
        self.texts.append(text)
        self._length += len(text)

    def open(self, run: Run) -> None:
        self.marks.append(Mark(self._length, -1, run.source, parent=self._opened[-1]))
        self._opened.append(len(self.marks) - 1)
        self._since_single = None

    def close(self, run: Run) -> None:
        at = self._opened.pop()
        self.marks[at] = replace(self.marks[at], end=self._length, closing=run.source)
        self._since_single = None

    def add_single(self, run: Run, following: str) -> None:
        """Add a single tag; tags with only white space between them are joined. `following` is the next character."""
        before = self.texts[-1][-1:] if self.texts else ""
        is_glued = run.is_glued and following.isalnum()
        if self._since_single is not None:
            last = self.marks[-1]
            opening = "".join([last.opening, *self._since_single, run.source])
            is_glued = last.is_glued and is_glued and not self._since_single
            self.marks[-1] = replace(last, opening=opening, has_space_after=following.isspace(), is_glued=is_glued)
        else:
            mark = Mark(
                self._length,
                self._length,
                run.source,
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


def lay_out(sentence: Sentence) -> Layout:
    """Take the tags out of a sentence. A space replaces a single tag that was all there was between two words."""
    built = _Builder()
    runs = sentence.core.runs
    for run, following in zip(runs, _next_characters(runs), strict=True):
        if run.kind == "text":
            built.add_text(run)
        elif run.kind == "open":
            built.open(run)
        elif run.kind == "close":
            built.close(run)
        else:
            built.add_single(run, following)
    text, is_raw = "".join(built.texts), any(run.is_raw for run in runs)
    return Layout(*_on_one_line(text, built.marks), is_raw) if built.marks else Layout(text, [], is_raw)


def _next_characters(runs: list[Run]) -> list[str]:
    """For each run, the first character of the text after it; tags are skipped."""
    found, following = [], ""
    for run in reversed(runs):
        found.append(following)
        following = run.text[:1] or following
    return found[::-1]


def _on_one_line(text: str, marks: list[Mark]) -> tuple[str, list[Mark]]:
    """The text with single spaces, and the marks moved accordingly; pairs neither begin nor end with a space."""
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
    """Plain text escaped for this kind of markup."""
    if rules.kind == "text":
        return text
    if is_raw:
        return text.replace("]]>", "]]]]><![CDATA[>")
    return escape(text, is_html=rules.kind == "html")


@dataclass(frozen=True, slots=True)
class Fragment:
    """The text between two tags or placeholders. `wanted` is the part to translate; it is empty if there is none."""

    source: str
    wanted: str = ""
    before: str = ""
    after: str = ""
    is_raw: bool = False

    def filled(self, translation: str, rules: Rules) -> str:
        """The fragment with its translation, from which everything that looks like markup is removed."""
        clean = _as_fragment(without_placeholders(translation), self.wanted)
        return self.before + spelled(clean, rules, self.is_raw) + self.after if clean else self.source


def fragments_of(sentence: Sentence) -> Iterator[Fragment]:
    """The whole sentence in order: fragments to translate, and the tags and placeholders between them."""
    for run in sentence.core.runs:
        if run.kind != "text":
            yield Fragment(run.source)
            continue
        done = 0
        for start, end in find_placeholders(run.text):
            yield from _fragments(run, done, start)
            yield Fragment(run.slice(start, end).source)
            done = end
        yield from _fragments(run, done, len(run.text))


def _fragments(run: Run, start: int, end: int) -> Iterator[Fragment]:
    text = run.text[start:end]
    if not has_words(text):
        if text:
            yield Fragment(run.slice(start, end).source)
        return
    first = start + next(i for i, char in enumerate(text) if char.isalnum())
    last = start + len(text.rstrip())
    yield Fragment(
        run.slice(start, end).source,
        _one_line(run.text[first:last]),
        run.slice(start, first).source,
        run.slice(last, end).source,
        run.is_raw,
    )


def _as_fragment(translation: str, wanted: str) -> str:
    """A translated fragment without the capital letter and the full stop that models like to add."""
    text = translation.strip()
    if text[-1:] in _ENDS and wanted[-1:] not in _ENDS:
        text = text.rstrip(_ENDS).rstrip()
    first_word = text.split()[0] if text.split() else ""
    if wanted[:1].islower() and first_word[1:].islower():
        text = text[0].lower() + text[1:]
    return text
