"""Example sentences that show the effect of a memory, with the segments behind the changed words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nearmt.corpus import SentencePair
from nearmt.evaluation.scores import sentence_chrf
from nearmt.translator import Translation, Translator

_SHORTEST, _LONGEST = 5, 16  # words: long enough to be informative, short enough to read


@dataclass(frozen=True)
class Change:
    """Words of an output that the memory changed, and the segment with the largest weight for them."""

    words: str
    start: int  # position in the output
    end: int
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
    """Return the sentences of readable length that gained most by chrF."""
    gains = []
    for i, pair in enumerate(pairs[: len(outputs["base"])]):
        base, adaptive = outputs["base"][i], outputs["adaptive"][i]
        if _SHORTEST <= len(pair.source.split()) <= _LONGEST:
            gains.append((sentence_chrf(adaptive, pair.target) - sentence_chrf(base, pair.target), i))
    results = []
    for _, i in sorted(gains, reverse=True)[:count]:
        translation = translator.explain(pairs[i].source)
        results.append(
            Example(pairs[i].source, pairs[i].target, outputs["base"][i], translation.text, changed_words(translation))
        )
    return results


def changed_words(translation: Translation) -> list[Change]:
    """Return the words of an output that the model alone would not have used, each with its best segment."""
    changes: list[Change] = []
    for token in translation.tokens:
        if token.is_models_first_choice or token.start == token.end or not token.neighbors:
            continue
        start, end = _word_around(translation.text, token.start, token.end)
        supporters = [neighbor for neighbor in token.neighbors if neighbor.token_id == token.token_id]
        if not supporters or (changes and start < changes[-1].end):
            continue
        best = max(supporters, key=lambda neighbor: neighbor.weight).segment
        last = changes[-1] if changes else None
        if last is not None and last.end + 1 == start and last.segment_source == best.source:
            start = changes.pop().start  # the next word of the same segment
        changes.append(Change(translation.text[start:end], start, end, best.source, best.target))
    return changes


def _word_around(text: str, start: int, end: int) -> tuple[int, int]:
    while start < end and text[start] == " ":
        start += 1
    while start > 0 and text[start - 1] != " ":
        start -= 1
    while end < len(text) and text[end] != " ":
        end += 1
    return start, end
