"""The similarity of texts in percent, as CAT tools count it: by edit distance over words.

Words are compared as the terms of the sentence index, so capitals, punctuation and the values of numbers do not count,
and scripts without spaces are compared character by character. Only equal texts are 100 % similar.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from rapidfuzz import process
from rapidfuzz.distance import Levenshtein

from nearmt.corpus import normalise_space
from nearmt.datastore import text_hash
from nearmt.retrieval.sentences.terms import terms_of_all

_SURROGATES, _NUM_SURROGATES = 0xD800, 0x800  # code points that no string may have


@dataclass(frozen=True)
class ComparedTexts:
    """Texts in the form in which they are compared."""

    terms: np.ndarray  # (terms,) uint32, of one text after the other
    starts: np.ndarray  # (texts + 1,) where the terms of each text begin
    hashes: np.ndarray  # (texts,) uint64, of the whole text with its white space normalised

    @classmethod
    def of(cls, texts: Sequence[str]) -> "ComparedTexts":
        clean = [normalise_space(text) for text in texts]
        return cls(*terms_of_all(clean), np.array([text_hash(text) for text in clean], np.uint64))

    def __len__(self) -> int:
        return len(self.hashes)

    def written(self, known: np.ndarray) -> list[str]:
        """One character for each term: its place among the `known` terms, or the same one for all other terms."""
        places = np.minimum(np.searchsorted(known, self.terms), len(known) - 1)
        characters = np.where(known[places] == self.terms, places + 1, 0) if len(known) else np.zeros_like(self.terms)
        characters = characters + _NUM_SURROGATES * (characters >= _SURROGATES)
        line = characters.astype("<u4").tobytes().decode("utf-32-le")
        starts = self.starts.tolist()
        return [line[start:end] for start, end in pairwise(starts)]


def percents(texts: ComparedTexts, others: ComparedTexts, workers: int = 1) -> np.ndarray:
    """(texts, others) similarities in percent, rounded down; 100 for equal texts, at most 99 for all others."""
    known = np.unique(texts.terms)  # other terms are equal to no term of the texts, so they need no names
    distances = process.cdist(
        texts.written(known), others.written(known), scorer=Levenshtein.distance, dtype=np.int32, workers=workers
    )
    longest = np.maximum(np.diff(texts.starts)[:, None], np.diff(others.starts)[None]).clip(min=1)
    found = np.minimum(100 * (longest - distances) // longest, 99)
    return np.where(texts.hashes[:, None] == others.hashes[None], 100, found)
