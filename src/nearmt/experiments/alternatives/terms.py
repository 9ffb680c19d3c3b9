"""Terms of a domain, found in a memory, and the share of them that translations get right.

A term is an n-gram of one to three words of the memory's target side, in lower case, that

- is in at least five sentences of the memory,
- is at least ten times as frequent there, per n-gram, as in text of other domains, where an n-gram that does not occur
  counts as half an occurrence,
- neither begins nor ends with one of the hundred most frequent words of that other text, nor with a number.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

MAX_WORDS = 3
MIN_SENTENCES = 5
MIN_RATIO = 10.0
NUM_COMMON_WORDS = 100
_WORD = re.compile(r"[^\W_]+(?:[’'-][^\W_]+)*")

Term = tuple[str, ...]


@dataclass(frozen=True)
class Terms:
    """The terms of one memory."""

    terms: frozenset[Term]

    @classmethod
    def of(cls, memory: Sequence[str], other: Sequence[str]) -> "Terms":
        """The terms of the target side of a memory; `other` is text of other domains in the same language."""
        counts, sentences = Counter[Term](), Counter[Term]()
        for text in memory:
            found = list(ngrams(words(text)))
            counts.update(found)
            sentences.update(set(found))
        elsewhere = Counter(ngram for text in other for ngram in ngrams(words(text)))
        common = {word for (word,) in _most_common_words(elsewhere)[:NUM_COMMON_WORDS]}
        totals, totals_elsewhere = _by_length(counts), _by_length(elsewhere)

        def is_term(ngram: Term) -> bool:
            if sentences[ngram] < MIN_SENTENCES or any(w in common or w.isdigit() for w in (ngram[0], ngram[-1])):
                return False
            length = len(ngram)
            share = counts[ngram] / totals[length]
            share_elsewhere = max(elsewhere[ngram], 0.5) / max(totals_elsewhere[length], 1)
            return share >= MIN_RATIO * share_elsewhere

        return cls(frozenset(ngram for ngram in sentences if is_term(ngram)))

    def __len__(self) -> int:
        return len(self.terms)

    def within(self, text: str) -> Counter[Term]:
        """How often each term is in a text."""
        return Counter(ngram for ngram in ngrams(words(text)) if ngram in self.terms)

    def recall(self, outputs: Iterable[str], references: Iterable[str]) -> float:
        """The share of the terms of the references that the outputs have; an occurrence counts once."""
        wanted, right = 0, 0
        for output, reference in zip(outputs, references, strict=True):
            expected = self.within(reference)
            wanted += expected.total()
            right += (expected & self.within(output)).total()
        return right / wanted if wanted else 0.0


def words(text: str) -> list[str]:
    """The words of a text in lower case, without punctuation."""
    return _WORD.findall(text.lower())


def ngrams(found: Sequence[str]) -> Iterator[Term]:
    """All n-grams of one to three words."""
    for length in range(1, MAX_WORDS + 1):
        for start in range(len(found) - length + 1):
            yield tuple(found[start : start + length])


def _most_common_words(counts: Counter[Term]) -> list[Term]:
    return [ngram for ngram, _ in counts.most_common() if len(ngram) == 1]


def _by_length(counts: Counter[Term]) -> Counter[int]:
    totals = Counter[int]()
    for ngram, count in counts.items():
        totals[len(ngram)] += count
    return totals
