"""The similarity of sentences to a memory, as CAT tools show it, and scores by similarity."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sacrebleu.metrics import CHRF

from nearmt.retrieval.sentences.similarity import ComparedTexts, percents

_COMPARED_AT_ONCE = 64
_LOWER_BOUNDS = (0, 50, 60, 70, 80, 90)


@dataclass(frozen=True)
class BestMatch:
    """The most similar text of a memory."""

    row: int
    percent: int


@dataclass(frozen=True)
class MatchBand:
    """The sentences whose best match lies in a range of percentages."""

    label: str
    sentences: int
    chrf: dict[str, float]  # method → corpus chrF of these sentences


def best_matches(
    texts: Sequence[str], memory: Sequence[str], on_done: Callable[[int], None] = lambda done: None
) -> list[BestMatch]:
    """The best match of each text in the memory."""
    found: list[BestMatch] = []
    others = ComparedTexts.of(memory)
    for start in range(0, len(texts), _COMPARED_AT_ONCE):
        some = ComparedTexts.of(texts[start : start + _COMPARED_AT_ONCE])
        similarities = percents(some, others, workers=-1)  # (texts, memory)
        best = similarities.argmax(axis=1)
        found += [BestMatch(int(row), int(similarities[number, row])) for number, row in enumerate(best)]
        on_done(len(found))
    return found


def match_bands(
    matches: Sequence[BestMatch], outputs: Mapping[str, Sequence[str]], references: Sequence[str]
) -> list[MatchBand]:
    """The scores of every method in each range of percentages that has sentences."""
    metric = CHRF()
    bands = []
    for lower, upper in zip(_LOWER_BOUNDS, (*_LOWER_BOUNDS[1:], 101), strict=True):
        rows = [row for row, match in enumerate(matches) if lower <= match.percent < upper]
        if not rows:
            continue
        wanted = [references[row] for row in rows]
        scores = {
            name: float(metric.corpus_score([texts[row] for row in rows], [wanted]).score)
            for name, texts in outputs.items()
        }
        bands.append(MatchBand(_label(lower, upper), len(rows), scores))
    return bands


def _label(lower: int, upper: int) -> str:
    if lower == 0:
        return f"under {upper} %"
    return f"{lower} % or more" if upper > 100 else f"{lower}–{upper} %"
