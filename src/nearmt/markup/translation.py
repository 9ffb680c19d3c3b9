"""Translating marked text: the whole sentence where its tags can be placed again, around them where not."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from nearmt.errors import MarkupError
from nearmt.markup.layout import Layout, Part, lay_out, parts_of, spelled
from nearmt.markup.pieces import parse, signature
from nearmt.markup.placeholders import count_placeholders
from nearmt.markup.placing import can_be_placed, place, requests_of
from nearmt.markup.rules import Kind, Rules, rules_for
from nearmt.markup.segments import Segment, has_words, split_segments

Translate = Callable[[list[str]], list[str]]
Way = Literal["whole", "pieces", "source"]


@dataclass(frozen=True, slots=True)
class Marked:
    """A translated text, and the least good way that one of its sentences needed.

    `whole`: sentences were translated as they are. `pieces`: around their tags or placeholders. `source`: even that
    did not keep them, so a sentence was left as it was.
    """

    text: str
    way: Way


def translate_marked(
    texts: Sequence[str], translate: Translate, kind: Kind | Rules = "text", *, language: str = "en"
) -> list[str]:
    """Translate texts so that every tag and placeholder of theirs is kept, exactly once and well nested.

    `translate` gets plain sentences, many at a time, in at most two calls. `language` is that of the texts; it is
    needed to find sentence ends. Text that is said to be XML and is not raises `MarkupError`.
    """
    return [marked.text for marked in translate_with_ways(texts, translate, kind, language=language)]


def translate_with_ways(
    texts: Sequence[str], translate: Translate, kind: Kind | Rules = "text", *, language: str = "en"
) -> list[Marked]:
    """As `translate_marked`, with the way that each text needed."""
    rules = kind if isinstance(kind, Rules) else rules_for(kind)
    plans = [_Plan(text, rules, language) for text in texts]
    sentences = [sentence for plan in plans for sentence in plan.sentences]
    known = _Known(translate)
    known.ask(request for sentence in sentences for request in sentence.first_requests())
    for sentence in sentences:
        sentence.try_whole(known.answers)
    known.ask(part.wanted for sentence in sentences if sentence.text is None for part in sentence.parts)
    for sentence in sentences:
        sentence.finish(known.answers)
    return [plan.result() for plan in plans]


class _Known:
    """Translations so far; nothing is asked for twice."""

    def __init__(self, translate: Translate) -> None:
        self._translate = translate
        self.answers: dict[str, str] = {}

    def ask(self, requests: Iterator[str]) -> None:
        wanted = list(dict.fromkeys(text for text in requests if text not in self.answers and has_words(text)))
        if wanted:
            self.answers.update(zip(wanted, self._translate(wanted), strict=True))


class _Sentence:
    """A segment on its way to a translation."""

    def __init__(self, segment: Segment, rules: Rules) -> None:
        self._segment, self._rules = segment, rules
        self._source = segment.source
        self._signature: Counter[str] | None = None
        self.text: str | None = None
        self.way: Way = "whole"
        self._layout: Layout | None = lay_out(segment)
        self.parts: list[Part] = []
        if not has_words(self._layout.text):
            self.text, self._layout = self._source, None
        elif not can_be_placed(self._layout):
            self._give_up_whole()

    def _give_up_whole(self) -> None:
        self._layout, self.parts, self.way = None, list(parts_of(self._segment)), "pieces"

    def first_requests(self) -> list[str]:
        if self._layout is None:
            return [part.wanted for part in self.parts]
        return [self._layout.text, *requests_of(self._layout)]

    def try_whole(self, known: dict[str, str]) -> None:
        """Take the translation of the whole sentence if all is kept in it."""
        if self._layout is None:
            return
        output = known[self._layout.text].strip()
        if output == self._layout.text.strip():  # a name, say: nothing moved
            self.text = self._source
            return
        if output and count_placeholders(output) == count_placeholders(self._layout.text):
            # What has no words is its own translation.
            spans = {text: known.get(text, text) for text in requests_of(self._layout)}
            placed = (
                place(self._layout, output, spans, self._rules)
                if self._layout.marks
                else spelled(output, self._rules, self._layout.is_raw)
            )
            if placed is not None and self._is_kept(placed):
                self.text = placed
                return
        self._give_up_whole()

    def finish(self, known: dict[str, str]) -> None:
        """Put the pieces together where the whole did not do."""
        if self.text is not None:
            return
        parts = [part.filled(known[part.wanted], self._rules) if part.wanted else part.source for part in self.parts]
        joined = "".join(parts)
        self.text, self.way = (joined, "pieces") if self._is_kept(joined) else (self._source, "source")

    def _is_kept(self, output: str) -> bool:
        if self._signature is None:
            self._signature = _signature(self._source, self._rules)
        return _signature(output, self._rules) == self._signature

    @property
    def whole_text(self) -> str:
        return f"{self._segment.before}{self.text}{self._segment.after}"


def _signature(text: str, rules: Rules) -> Counter[str] | None:
    """None for XML that is none: it is like nothing that came in."""
    try:
        return signature(text, rules)
    except MarkupError:
        return None


class _Plan:
    """A text: sentences to translate and what stands between them."""

    def __init__(self, text: str, rules: Rules, language: str) -> None:
        self._text, self._rules = text, rules
        found = split_segments(parse(text, rules), rules, language)
        self._items = [_Sentence(item, rules) if isinstance(item, Segment) else item for item in found]
        self.sentences = [item for item in self._items if isinstance(item, _Sentence)]

    def result(self) -> Marked:
        text = "".join(item if isinstance(item, str) else item.whole_text for item in self._items)
        ways = {sentence.way for sentence in self.sentences}
        if text != self._text and _signature(text, self._rules) != _signature(self._text, self._rules):
            return Marked(self._text, "source")
        return Marked(text, "source" if "source" in ways else "pieces" if "pieces" in ways else "whole")
