"""Takes a part of a memory or of a dev set so that neighbouring sentences of a document stay together."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path

from nearmt.building.builder import describe_inputs
from nearmt.corpus import DropCounts, SentencePair, read_pairs
from nearmt.datastore import Languages
from nearmt.outputs import writing_text

_BLOCK = 500  # pairs, if the files do not show where documents end
_MOVED_BY = 0.1  # of the pairs: how far the border of a dev set may move to the end of a document


def cut(pairs: Sequence[SentencePair], share: float) -> int:
    """Return where to cut pairs in two so that the first part has about this share.

    That is between two documents (pairs of different origin) if there is such a border nearby.
    """
    wanted = round(share * len(pairs))
    borders = [row for row in range(1, len(pairs)) if pairs[row - 1].origin != pairs[row].origin]
    nearest = min(borders, key=lambda row: abs(row - wanted), default=wanted)
    return nearest if abs(nearest - wanted) <= _MOVED_BY * len(pairs) else wanted


def blocks(total: int, wanted: int) -> list[range]:
    """Return evenly spaced blocks of rows that together have the wanted number."""
    if wanted >= total:
        return [range(total)]
    count = -(-wanted // _BLOCK)
    lengths = [wanted // count + (number < wanted % count) for number in range(count)]
    found: list[range] = []
    for number, length in enumerate(lengths):
        start = sum(lengths[:number]) + number * (total - wanted) // max(count - 1, 1)
        found.append(range(start, start + length))
    return found


def limited_memory(memory: Sequence[Path], languages: Languages, wanted: int, folder: Path) -> Path:
    """Write evenly spaced blocks of a memory to a file, once, and return it."""
    made_from = [*(item["sha256"] for item in describe_inputs(memory)), languages.source, languages.target, wanted]
    name = hashlib.sha256(json.dumps(made_from).encode()).hexdigest()[:16]
    path = folder / "memories" / f"{name}.jsonl"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        total = sum(1 for _ in _read(memory, languages))
        with writing_text(path, overwrite=True) as out:
            for pair in _chosen(_read(memory, languages), blocks(total, wanted)):
                out.write(json.dumps(asdict(pair), ensure_ascii=False) + "\n")
    return path


def _chosen(pairs: Iterator[SentencePair], rows: Sequence[range]) -> Iterator[SentencePair]:
    position = 0
    for block in rows:
        yield from islice(pairs, block.start - position, block.stop - position)
        position = block.stop


def _read(memory: Sequence[Path], languages: Languages) -> Iterator[SentencePair]:
    return read_pairs(memory, source_lang=languages.source, target_lang=languages.target, drops=DropCounts())
