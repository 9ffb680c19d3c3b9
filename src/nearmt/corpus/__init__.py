"""Reads and writes parallel text.

Every supported format (TMX, XLIFF, PO, TSV, JSON lines, line-aligned text) is read as a stream of `SentencePair`.
Units that are empty or unconfirmed are dropped and counted by reason; duplicates and long sentences are not.
`extensions` is the only table of file endings, and `confirmation` the only policy for confirmed translations.
"""

from nearmt.corpus.extensions import FORMATS
from nearmt.corpus.formats import detect_format, read_pairs
from nearmt.corpus.pairs import DropCounts, PairSieve, SentencePair, normalise_space
from nearmt.corpus.streams import check_readable, read_lines
from nearmt.corpus.tmx_writer import write_tmx

__all__ = [
    "FORMATS",
    "DropCounts",
    "PairSieve",
    "SentencePair",
    "check_readable",
    "detect_format",
    "normalise_space",
    "read_lines",
    "read_pairs",
    "write_tmx",
]
