"""The terms of a text: what the sentence index looks up and compares.

A term is a word in lower case, a single character of a script without spaces, or any number. Terms are 32-bit hashes,
the same on every machine.
"""

import re
import unicodedata
import zlib
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

# Thai to Tibetan, Myanmar, Khmer, and the scripts of Chinese and Japanese: words are not separated by spaces.
_UNSPACED = (
    "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f"
)
# Accents, vowel signs and joiners, which \w does not match: of Latin to Arabic, of India, of scripts without spaces.
_INSIDE = (
    "\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u0610-\u061a\u064b-\u065f\u0670\u0900-\u0963\u0971-\u0dff\u200c\u200d"
    "\u0e30-\u0e4e\u0eb0-\u0ecd\u0f71-\u0f84\u0f90-\u0fbc\u102b-\u103e\u17b4-\u17d3"
)
_TERM = re.compile(rf"[{_UNSPACED}]|\d+|(?:(?![\d{_UNSPACED}])[\w{_INSIDE}])+|[^\w\s]")
_MARKS = re.compile(rf"[^\w\s{_INSIDE}]")


@lru_cache(maxsize=1 << 18)
def _hash(term: str) -> int:
    return zlib.crc32(("0" if term.isdecimal() else term).encode("utf-8", "surrogatepass"))


def terms_of(text: str) -> np.ndarray:
    """The terms of a text in order, (terms,) uint32.

    Punctuation does not count, so that two texts which differ only in it have the same terms; a text of nothing else
    keeps it.
    """
    found = _TERM.findall(unicodedata.normalize("NFKC", text).casefold())
    words = [term for term in found if not _MARKS.fullmatch(term)]
    return np.array([_hash(term) for term in words or found], np.uint32)


def terms_of_all(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """The terms of several texts, one after the other, and where each begins: (terms,) and (texts + 1,) int64."""
    parts = [terms_of(text) for text in texts]
    starts = np.zeros(len(parts) + 1, np.int64)
    np.cumsum([len(part) for part in parts], out=starts[1:])
    return np.concatenate(parts) if parts else np.zeros(0, np.uint32), starts
