"""The similarity of sentences to a memory, as CAT tools show it, and scores by similarity."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import islice
from typing import Any

from nearmt.evaluation.scores import bleu, chrf
from nearmt.retrieval.sentences.similarity import ComparedTexts, percents

FEW_SENTENCES = 30  # with fewer, a score is mostly luck
_COMPARED_AT_ONCE = 64
_MEMORY_AT_ONCE = 50_000
_LOWER_BOUNDS = (0, 50, 70, 85, 95)


@dataclass(frozen=True)
class BestMatch:
    """The most similar text of a memory."""

    row: int
    percent: int


@dataclass(frozen=True)
class MatchBand:
    """The sentences whose best match lies in a range of percentages, scored as a corpus of their own."""

    label: str
    sentences: int
    bleu: dict[str, float]  # method → corpus BLEU of these sentences
    chrf: dict[str, float]

    @property
    def is_small(self) -> bool:
        return self.sentences < FEW_SENTENCES

    def gains(self, metric: str = "bleu", baseline: str = "base") -> dict[str, float]:
        """Method → how much higher it scores than the baseline; empty without the baseline."""
        scores: dict[str, float] = getattr(self, metric)
        if baseline not in scores:
            return {}
        return {name: score - scores[baseline] for name, score in scores.items() if name != baseline}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "MatchBand":
        return cls(**{field.name: content[field.name] for field in fields(cls)})

    def as_dict(self) -> dict[str, Any]:
        gains = {"bleu_gain": self.gains("bleu"), "chrf_gain": self.gains("chrf")}
        return {**asdict(self), **gains, "is_small": self.is_small}


def best_matches(
    texts: Sequence[str], memory: Iterable[str], on_done: Callable[[int], None] = lambda done: None
) -> list[BestMatch]:
    """The best match of each text in the memory, which is read once, a part at a time; of equal ones the first.

    `on_done` is called with the number of texts of the memory that have been compared.
    """
    groups = [ComparedTexts.of(texts[at : at + _COMPARED_AT_ONCE]) for at in range(0, len(texts), _COMPARED_AT_ONCE)]
    found = [BestMatch(0, -1)] * len(texts)
    first, remaining = 0, iter(memory)
    while part := list(islice(remaining, _MEMORY_AT_ONCE)):
        others = ComparedTexts.of(part)
        for number, group in enumerate(groups):
            similarities = percents(group, others, workers=-1)  # (texts, part of the memory)
            for row, best in enumerate(similarities.argmax(axis=1), number * _COMPARED_AT_ONCE):
                percent = int(similarities[row % _COMPARED_AT_ONCE, best])
                if percent > found[row].percent:
                    found[row] = BestMatch(first + int(best), percent)
        first += len(part)
        on_done(first)
    return found


def match_bands(
    matches: Sequence[BestMatch], outputs: Mapping[str, Sequence[str]], references: Sequence[str]
) -> list[MatchBand]:
    """The scores of every method in each range of percentages that has sentences."""
    bands = []
    for lower, upper in zip(_LOWER_BOUNDS, (*_LOWER_BOUNDS[1:], 101), strict=True):
        rows = [row for row, match in enumerate(matches) if lower <= match.percent < upper]
        if not rows:
            continue
        wanted = [references[row] for row in rows]
        chosen = {name: [texts[row] for row in rows] for name, texts in outputs.items()}
        bands.append(
            MatchBand(
                f"{lower}–{min(upper, 100)} %",
                len(rows),
                {name: bleu(texts, wanted) for name, texts in chosen.items()},
                {name: chrf(texts, wanted) for name, texts in chosen.items()},
            )
        )
    return bands
