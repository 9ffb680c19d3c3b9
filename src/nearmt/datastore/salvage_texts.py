"""Restoring the texts of a damaged store and the table of its sentences from each other.

A row of the table contains hashes of the source, the target and the pair, so a line of the texts that matches them is
intact. Rows can be restored from intact lines.
"""

import json
from typing import TYPE_CHECKING

import numpy as np

from nearmt.datastore.damage import CommitRange, lines_from
from nearmt.datastore.hashing import text_hash

if TYPE_CHECKING:
    from nearmt.datastore.salvage import SalvagedSnapshot

Sides = tuple[str, str]


def restore_texts(readable: "SalvagedSnapshot", commit: CommitRange) -> None:
    """Find the text of every sentence of a commit and restore its row; mark the others as lost."""
    if commit.is_intact("texts.jsonl", "sentences.bin"):
        return
    lines = _lines(readable, commit)
    if commit.is_intact("texts.jsonl") and len(lines) == len(commit.sentences):
        for number, (start, sides) in zip(commit.sentences, lines, strict=True):
            assert sides is not None
            _write_row(readable, number, start, sides)
        return
    by_hash = {text_hash(*sides): start for start, sides in lines if sides is not None}
    for at, number in enumerate(commit.sentences):
        record = readable.sentences[number]
        for start in (int(record["text_start"]), by_hash.get(int(record["pair_hash"]), -1)):
            found = _sides_at(readable, commit, start)
            if found is not None and _matches(record, found):
                _write_row(readable, number, start, found)
                break
        else:
            _restore_by_position(readable, commit, number, lines[at] if len(lines) == len(commit.sentences) else None)


def _restore_by_position(
    readable: "SalvagedSnapshot", commit: CommitRange, number: int, line: tuple[int, Sides | None] | None
) -> None:
    """Use the line at the sentence's position if the row was changed and not the line; otherwise it is lost."""
    record = readable.sentences[number]
    if line is not None and line[1] is not None and "sentences.bin" in commit.changed:
        hashes = _hashes(line[1])
        if not any(int(record[name]) == found for name, found in hashes.items()):
            _write_row(readable, number, line[0], line[1])
            readable.unchecked_texts[number] = True
            return
    readable.lost_sentences[number] = True
    source = _readable_source(readable, commit, record, line)
    if source:
        readable.readable_sources[number] = source


def _hashes(sides: Sides) -> dict[str, int]:
    return {"pair_hash": text_hash(*sides), "source_hash": text_hash(sides[0]), "target_hash": text_hash(sides[1])}


def _matches(record: np.void, sides: Sides) -> bool:
    """True if the hash of the pair matches, or those of both sides do."""
    hashes = _hashes(sides)
    matching = {name for name, found in hashes.items() if int(record[name]) == found}
    return "pair_hash" in matching or len(matching) == 2


def _write_row(readable: "SalvagedSnapshot", number: int, start: int, sides: Sides) -> None:
    row = readable.sentences[number : number + 1]
    row["text_start"] = start
    for name, found in _hashes(sides).items():
        row[name] = found


def _lines(readable: "SalvagedSnapshot", commit: CommitRange) -> list[tuple[int, Sides | None]]:
    """Start and content of each line of a commit; None if the line cannot be parsed."""
    content = readable.text_bytes(commit.first.text_bytes, commit.end.text_bytes)
    return [(start, _parse(line)) for start, line in lines_from(content, commit.first.text_bytes)]


def _sides_at(readable: "SalvagedSnapshot", commit: CommitRange, start: int) -> Sides | None:
    if not commit.first.text_bytes <= start < commit.end.text_bytes:
        return None
    return _parse(_rest_of_line(readable, commit, start))


def _rest_of_line(readable: "SalvagedSnapshot", commit: CommitRange, start: int) -> bytes:
    return readable.text_bytes(start, commit.end.text_bytes).partition(b"\n")[0]


def _parse(line: bytes) -> Sides | None:
    try:
        texts = json.loads(line.decode("utf-8", "surrogatepass"))
        source, target = texts["source"], texts["target"]
    except (ValueError, TypeError, KeyError):
        return None
    return (source, target) if isinstance(source, str) and isinstance(target, str) else None


def _readable_source(
    readable: "SalvagedSnapshot", commit: CommitRange, record: np.void, line: tuple[int, Sides | None] | None
) -> str | None:
    """The source of a lost sentence, or its raw line, so that the user can recognise it."""
    start = int(record["text_start"])
    if commit.is_intact("sentences.bin") or commit.first.text_bytes <= start < commit.end.text_bytes:
        raw = _rest_of_line(readable, commit, start)
    else:
        raw = _rest_of_line(readable, commit, line[0]) if line is not None else b""
    sides = _parse(raw)
    return sides[0] if sides is not None else raw.decode("utf-8", "replace").removeprefix('{"source": "') or None
