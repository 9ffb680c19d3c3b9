"""Mending the texts of a damaged store and the table of its sentences, each with the help of the other.

A line of the texts is whole in itself. A row of the table holds hashes of both sides and of the pair, so a line that
fits them is right whatever became of its neighbours; and rows can be made again from lines that are right.
"""

import json
from typing import TYPE_CHECKING

import numpy as np

from nearmt.datastore.damage import Part, lines_from
from nearmt.datastore.hashing import text_hash

if TYPE_CHECKING:
    from nearmt.datastore.salvage import Salvaged

Sides = tuple[str, str]


def mend_texts(readable: "Salvaged", part: Part) -> None:
    """Find the text of every sentence of a part. What is found is put into the table; the others are lost."""
    if part.is_sure("texts.jsonl", "sentences.bin"):
        return
    lines = _lines(readable, part)
    if part.is_sure("texts.jsonl") and len(lines) == len(part.sentences):
        for number, (start, sides) in zip(part.sentences, lines, strict=True):
            assert sides is not None
            _note(readable, number, start, sides)
        return
    by_hash = {text_hash(*sides): start for start, sides in lines if sides is not None}
    for at, number in enumerate(part.sentences):
        record = readable.sentences[number]
        for place in (int(record["text_start"]), by_hash.get(int(record["pair_hash"]), -1)):
            found = _sides_at(readable, part, place)
            if found is not None and _fits(record, found):
                _note(readable, number, place, found)
                break
        else:
            _by_place(readable, part, number, lines[at] if len(lines) == len(part.sentences) else None)


def _by_place(readable: "Salvaged", part: Part, number: int, line: tuple[int, Sides | None] | None) -> None:
    """Take the line that stands in a sentence's place if it is the row that was changed, and not the line."""
    record = readable.sentences[number]
    if line is not None and line[1] is not None and "sentences.bin" in part.changed:
        hashes = _hashes(line[1])
        if not any(int(record[name]) == found for name, found in hashes.items()):
            _note(readable, number, line[0], line[1])
            readable.unchecked_texts[number] = True
            return
    readable.lost_sentences[number] = True
    source = _readable_source(readable, part, record, line)
    if source:
        readable.readable_sources[number] = source


def _hashes(sides: Sides) -> dict[str, int]:
    return {"pair_hash": text_hash(*sides), "source_hash": text_hash(sides[0]), "target_hash": text_hash(sides[1])}


def _fits(record: np.void, sides: Sides) -> bool:
    """Whether a row's hash of the pair is a line's, or those of both sides are."""
    hashes = _hashes(sides)
    fitting = {name for name, found in hashes.items() if int(record[name]) == found}
    return "pair_hash" in fitting or len(fitting) == 2


def _note(readable: "Salvaged", number: int, start: int, sides: Sides) -> None:
    row = readable.sentences[number : number + 1]
    row["text_start"] = start
    for name, found in _hashes(sides).items():
        row[name] = found


def _lines(readable: "Salvaged", part: Part) -> list[tuple[int, Sides | None]]:
    """Where each line of a part begins, and what it says if it can be parsed."""
    content = readable.text_bytes(part.first.text_bytes, part.end.text_bytes)
    return [(start, _parse(line)) for start, line in lines_from(content, part.first.text_bytes)]


def _sides_at(readable: "Salvaged", part: Part, start: int) -> Sides | None:
    if not part.first.text_bytes <= start < part.end.text_bytes:
        return None
    return _parse(_rest_of_line(readable, part, start))


def _rest_of_line(readable: "Salvaged", part: Part, start: int) -> bytes:
    return readable.text_bytes(start, part.end.text_bytes).partition(b"\n")[0]


def _parse(line: bytes) -> Sides | None:
    try:
        texts = json.loads(line.decode("utf-8", "surrogatepass"))
        source, target = texts["source"], texts["target"]
    except (ValueError, TypeError, KeyError):
        return None
    return (source, target) if isinstance(source, str) and isinstance(target, str) else None


def _readable_source(
    readable: "Salvaged", part: Part, record: np.void, line: tuple[int, Sides | None] | None
) -> str | None:
    """The source of a lost sentence, or its line as it stands: enough for a person to know it again."""
    start = int(record["text_start"])
    if part.is_sure("sentences.bin") or part.first.text_bytes <= start < part.end.text_bytes:
        raw = _rest_of_line(readable, part, start)
    else:
        raw = _rest_of_line(readable, part, line[0]) if line is not None else b""
    sides = _parse(raw)
    return sides[0] if sides is not None else raw.decode("utf-8", "replace").removeprefix('{"source": "') or None
