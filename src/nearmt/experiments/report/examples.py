"""Example sentences that show the effect of a memory, with the segments behind the changed words."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nearmt.corpus import SentencePair
from nearmt.evaluation.scores import sentence_chrf
from nearmt.translator import Translation, Translator

_SHORTEST, _LONGEST = 5, 16  # words: long enough to be informative, short enough to read
_CONTENT_WORD = 5  # letters: shorter words are mostly function words
_GOOD_CHRF = 70.0
_MOST_EXPLAINED = 10  # sentences that are translated again to find examples


@dataclass(frozen=True)
class Change:
    """Words of an output that the memory changed, and the segment with the largest weight for them."""

    words: str
    start: int  # position in the output
    end: int
    segment_source: str
    segment_target: str


@dataclass(frozen=True)
class Reason:
    """A segment of the memory, and the words of an output that it explains."""

    words: str
    segment_source: str
    segment_target: str


@dataclass(frozen=True)
class Example:
    """A test sentence translated without and with the memory."""

    source: str
    reference: str
    base: str
    adaptive: str
    changes: list[Change]

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> "Example":
        return cls(**{**content, "changes": [Change(**change) for change in content["changes"]]})


def pick_examples(
    translator: Translator, pairs: Sequence[SentencePair], outputs: Mapping[str, Sequence[str]], count: int = 3
) -> list[Example]:
    """Return the sentences of readable length that gained most by chrF.

    Good translations come first, and among them those in which the memory put a word of the reference that the model
    alone misses.
    """
    ranked = [i for gain, i in _gains(pairs, outputs) if gain > 0][::-1]
    ranked.sort(key=lambda i: sentence_chrf(outputs["adaptive"][i], pairs[i].target) < _GOOD_CHRF)  # stable
    examples: list[Example] = []
    others: list[Example] = []
    for i in ranked[:_MOST_EXPLAINED]:
        example = _explained(translator, pairs[i], outputs["base"][i])
        (examples if _corrects_a_word(example) else others).append(example)
        if len(examples) == count:
            break
    return [*examples, *others][:count]


def pick_misled(
    translator: Translator, pairs: Sequence[SentencePair], outputs: Mapping[str, Sequence[str]]
) -> list[Example]:
    """Return the sentence of readable length that lost most by chrF, or nothing if none did."""
    return [_explained(translator, pairs[i], outputs["base"][i]) for gain, i in _gains(pairs, outputs)[:1] if gain < 0]


def _gains(pairs: Sequence[SentencePair], outputs: Mapping[str, Sequence[str]]) -> list[tuple[float, int]]:
    """Return the change in chrF of each sentence of readable length with its row, the greatest loss first."""
    return sorted(
        (sentence_chrf(adaptive, pair.target) - sentence_chrf(base, pair.target), row)
        for row, (pair, base, adaptive) in enumerate(zip(pairs, outputs["base"], outputs["adaptive"], strict=False))
        if _SHORTEST <= len(pair.source.split()) <= _LONGEST
    )


def _explained(translator: Translator, pair: SentencePair, base: str) -> Example:
    translation = translator.explain(pair.source)
    return Example(pair.source, pair.target, base, translation.text, changed_words(translation, base))


def _corrects_a_word(example: Example) -> bool:
    expected = {word for word in _words(example.reference) if len(word) >= _CONTENT_WORD}
    return any(_words(change.words) & expected for change in example.changes)


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))


def changed_words(translation: Translation, base: str) -> list[Change]:
    """Return the words of an output that the model's own output lacks, each with the segment that supports it most."""
    known = _words(base)
    changes: list[Change] = []
    for token in translation.tokens:
        start, end = _word_around(translation.text, token.start, token.end)
        supporters = [neighbor for neighbor in token.neighbors if neighbor.token_id == token.token_id]
        if not supporters or start >= end or (changes and start < changes[-1].end):
            continue
        if _words(translation.text[start:end]) <= known:
            continue
        best = max(supporters, key=lambda neighbor: neighbor.weight).segment
        last = changes[-1] if changes else None
        if last is not None and last.end + 1 == start and last.segment_source == best.source:
            start = changes.pop().start  # the next word of the same segment
        changes.append(Change(translation.text[start:end], start, end, best.source, best.target))
    return changes


def reasons_for(changes: Sequence[Change]) -> list[Reason]:
    """Return each segment once, with the words that it explains. Function words alone do not count as a reason."""
    words: dict[tuple[str, str], dict[str, None]] = {}
    for change in changes:
        words.setdefault((change.segment_source, change.segment_target), {})[change.words] = None
    reasons = [Reason(" … ".join(found), *segment) for segment, found in words.items()]
    return [reason for reason in reasons if _has_content_word(reason.words)] or reasons


def _has_content_word(text: str) -> bool:
    return any(len(word) >= _CONTENT_WORD for word in _words(text))


def _word_around(text: str, start: int, end: int) -> tuple[int, int]:
    while start < end and text[start] == " ":
        start += 1
    while start > 0 and text[start - 1] != " ":
        start -= 1
    while end < len(text) and text[end] != " ":
        end += 1
    return start, end
