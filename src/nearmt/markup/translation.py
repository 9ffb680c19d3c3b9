"""Translates marked text: whole sentences where their tags can be placed again, else the fragments between tags."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from nearmt.errors import MarkupError
from nearmt.markup.layout import Fragment, Layout, fragments_of, lay_out, spelled
from nearmt.markup.placeholders import count_placeholders
from nearmt.markup.placing import can_be_placed, place, requests_of
from nearmt.markup.rules import Kind, Rules, rules_for
from nearmt.markup.runs import Parsed, parse, signature
from nearmt.markup.sentences import Sentence, has_words, sentences_of

Translate = Callable[[list[str]], list[str]]
Reuse = Callable[[str], str | None]
Way = Literal["whole", "pieces", "source"]


@dataclass(frozen=True, slots=True)
class Marked:
    """A translated text, and the worst way in which one of its sentences was translated.

    `whole`: every sentence was translated as a whole. `pieces`: a sentence was translated in fragments, around its tags
    or placeholders. `source`: a sentence was left untranslated, because even then they were not all kept.
    """

    text: str
    way: Way


def translate_marked(
    texts: Sequence[str], translate: Translate, kind: Kind | Rules = "text", *, language: str = "en"
) -> list[str]:
    """Translate texts and keep each of their tags and placeholders, exactly once and well nested.

    `translate` gets plain sentences, many at a time, in at most two calls. `language` is the language of the texts; it
    decides how sentences are split. Malformed XML raises `MarkupError`.
    """
    return [marked.text for marked in translate_with_ways(texts, translate, kind, language=language)]


def translate_with_ways(
    texts: Sequence[str],
    translate: Translate,
    kind: Kind | Rules = "text",
    *,
    language: str = "en",
    reuse: Reuse = lambda text: None,
) -> list[Marked]:
    """Like `translate_marked`, but also say in which way each text was translated.

    `reuse` may know the translation of a text of several sentences, which are then not translated one by one.
    """
    rules = kind if isinstance(kind, Rules) else rules_for(kind)
    plans = [_Plan(text, rules, language, reuse) for text in texts]
    sentences = [sentence for plan in plans for sentence in plan.sentences]
    known = _Known(translate)
    known.ask(request for sentence in sentences for request in sentence.first_requests())
    for sentence in sentences:
        sentence.try_whole(known.answers)
    known.ask(fragment.wanted for sentence in sentences if sentence.text is None for fragment in sentence.fragments)
    for sentence in sentences:
        sentence.finish(known.answers)
    return [plan.result() for plan in plans]


class _Known:
    """The translations so far; nothing is translated twice."""

    def __init__(self, translate: Translate) -> None:
        self._translate = translate
        self.answers: dict[str, str] = {}

    def ask(self, requests: Iterator[str]) -> None:
        wanted = list(dict.fromkeys(text for text in requests if text not in self.answers and has_words(text)))
        if wanted:
            self.answers.update(zip(wanted, self._translate(wanted), strict=True))


class _SentenceTranslation:
    """A sentence while it is being translated."""

    def __init__(self, sentence: Sentence, rules: Rules) -> None:
        self._sentence, self._rules = sentence, rules
        self._source = sentence.source
        self._signature: Counter[str] | None = None
        self.text: str | None = None
        self.way: Way = "whole"
        self._layout: Layout | None = lay_out(sentence)
        self.fragments: list[Fragment] = []
        if not has_words(self._layout.text):
            self.text, self._layout = self._source, None
        elif not can_be_placed(self._layout):
            self._give_up_whole()

    def _give_up_whole(self) -> None:
        self._layout, self.fragments, self.way = None, list(fragments_of(self._sentence)), "pieces"

    def first_requests(self) -> list[str]:
        if self._layout is None:
            return [fragment.wanted for fragment in self.fragments]
        return [self._layout.text, *requests_of(self._layout)]

    def try_whole(self, known: dict[str, str]) -> None:
        """Use the translation of the whole sentence if all tags and placeholders can be kept."""
        if self._layout is None:
            return
        output = known[self._layout.text].strip()
        if output == self._layout.text.strip():  # such as a name
            self.text = self._source
            return
        if output and count_placeholders(output) == count_placeholders(self._layout.text):
            # Text without words is its own translation.
            spans = {text: known.get(text, text) for text in requests_of(self._layout)}
            placed = (
                place(self._layout, output, spans, self._rules)
                if self._layout.marks
                else spelled(output, self._rules, self._layout.is_raw)
            )
            if placed is not None and self._keeps_all(placed):
                self.text = placed
                return
        self._give_up_whole()

    def finish(self, known: dict[str, str]) -> None:
        """Join the translated fragments if the whole sentence could not be used."""
        if self.text is not None:
            return
        filled = [
            fragment.filled(known[fragment.wanted], self._rules) if fragment.wanted else fragment.source
            for fragment in self.fragments
        ]
        joined = "".join(filled)
        self.text, self.way = (joined, "pieces") if self._keeps_all(joined) else (self._source, "source")

    def _keeps_all(self, output: str) -> bool:
        if self._signature is None:
            self._signature = _signature(self._source, self._rules)
        return _signature(output, self._rules) == self._signature

    @property
    def whole_text(self) -> str:
        return f"{self._sentence.before}{self.text}{self._sentence.after}"


def _signature(text: str, rules: Rules) -> Counter[str] | None:
    """The signature; None for malformed XML, which is equal to no signature."""
    try:
        return signature(text, rules)
    except MarkupError:
        return None


def _reused(parsed: Parsed, rules: Rules, reuse: Reuse) -> str | None:
    """The known translation of a whole text; None for one with tags or several lines, which it would not keep."""
    source, text = ("".join(getattr(run, side) for run in parsed.runs) for side in ("source", "text"))
    plain = text.strip()
    if any(run.kind != "text" or run.is_raw for run in parsed.runs) or "\n" in plain:
        return None
    known = reuse(plain)
    if known is None:
        return None
    before = source[: len(source) - len(source.lstrip())]
    reused = before + spelled(known, rules, False) + source[len(source.rstrip()) :]
    return reused if _signature(reused, rules) == _signature(source, rules) else None


class _Plan:
    """A text: its sentences and the unchanged text between them."""

    def __init__(self, text: str, rules: Rules, language: str, reuse: Reuse) -> None:
        self._text, self._rules = text, rules
        parsed = parse(text, rules)
        found = sentences_of(parsed, rules, language)
        if sum(isinstance(item, Sentence) for item in found) > 1:
            reused = _reused(parsed, rules, reuse)
            found = found if reused is None else [reused]
        self._items = [_SentenceTranslation(item, rules) if isinstance(item, Sentence) else item for item in found]
        self.sentences = [item for item in self._items if isinstance(item, _SentenceTranslation)]

    def result(self) -> Marked:
        text = "".join(item if isinstance(item, str) else item.whole_text for item in self._items)
        ways = {sentence.way for sentence in self.sentences}
        if text != self._text and _signature(text, self._rules) != _signature(self._text, self._rules):
            return Marked(self._text, "source")
        return Marked(text, "source" if "source" in ways else "pieces" if "pieces" in ways else "whole")
