"""Translation memories in, sentence pairs out.

Every format a memory comes in (TMX, XLIFF, PO, TSV, JSON lines, line-aligned text) is read here and leaves
as a stream of `SentencePair`. What is not a confirmed, non-empty pair is dropped and counted by reason.
Duplicates and length are not judged here.
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
