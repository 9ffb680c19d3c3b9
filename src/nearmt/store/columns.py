"""The flat files of a store and how a segment is appended to them.

Every column is one file to which commits only append; the manifest says how far it counts. What a killed
writer left behind that point is cut off by the next one.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nearmt.corpus import SentencePair
from nearmt.store.files import fsync_folder, sha256_of, storage_errors
from nearmt.store.manifest import Manifest, Segment, now

KEY_TYPES: dict[str, np.dtype[Any]] = {"float16": np.dtype("<f2"), "float32": np.dtype("<f4")}
VALUES, PROBABILITIES, POSITIONS = np.dtype("<i4"), np.dtype("<f2"), np.dtype("<u2")
SENTENCE = np.dtype(
    [
        ("first_entry", "<i8"),
        ("text_start", "<i8"),
        ("pair_hash", "<u8"),
        ("source_hash", "<u8"),
        ("target_hash", "<u8"),
    ]
)


def text_hash(*texts: str) -> int:
    """64 bits that stand for a text, or for several in order."""
    digest = hashlib.blake2b(digest_size=8)
    for text in texts:
        encoded = text.encode()
        digest.update(len(encoded).to_bytes(8, "little"))
        digest.update(encoded)
    return int.from_bytes(digest.digest(), "little")


def pair_hash(pair: SentencePair) -> int:
    """What makes two pairs duplicates: both texts."""
    return text_hash(pair.source, pair.target)


@dataclass(frozen=True)
class SegmentData:
    """Sentences with their entries, ready to be appended. Entries stand in the sentences' order."""

    pairs: Sequence[SentencePair]
    entry_counts: np.ndarray  # (sentences,)
    keys: np.ndarray  # (entries, width)
    values: np.ndarray  # (entries,) token ids
    probabilities: np.ndarray  # (entries,) the model's own probability of the value
    positions: np.ndarray  # (entries,) position in the target sentence


@dataclass(frozen=True)
class Column:
    """One flat file: its name and what of it belongs to a segment, in bytes."""

    name: str
    bytes_per_entry: int = 0
    bytes_per_sentence: int = 0

    def range_of(self, segment: Segment) -> tuple[int, int]:
        """First byte and number of bytes of a segment's part."""
        if not self.bytes_per_entry and not self.bytes_per_sentence:
            return segment.first_text_byte, segment.num_text_bytes
        return (
            segment.first_entry * self.bytes_per_entry + segment.first_sentence * self.bytes_per_sentence,
            segment.num_entries * self.bytes_per_entry + segment.num_sentences * self.bytes_per_sentence,
        )


def columns_of(manifest: Manifest) -> tuple[Column, ...]:
    """The files of a store's data folder."""
    key_bytes = KEY_TYPES[manifest.key_type].itemsize * manifest.width
    return (
        Column(f"keys.{manifest.key_type}", bytes_per_entry=key_bytes),
        Column("values.int32", bytes_per_entry=VALUES.itemsize),
        Column("probabilities.float16", bytes_per_entry=PROBABILITIES.itemsize),
        Column("positions.uint16", bytes_per_entry=POSITIONS.itemsize),
        Column("sentences.bin", bytes_per_sentence=SENTENCE.itemsize),
        Column("texts.jsonl"),
    )


def _encode_texts(pairs: Sequence[SentencePair]) -> list[bytes]:
    lines = []
    for pair in pairs:
        fields = {"source": pair.source, "target": pair.target, "unit_id": pair.unit_id, "origin": pair.origin,
                  "changed_at": pair.changed_at}  # fmt: skip
        present = {name: value for name, value in fields.items() if value is not None}
        lines.append((json.dumps(present, ensure_ascii=False) + "\n").encode("utf-8", "surrogatepass"))
    return lines


def _sentence_table(data: SegmentData, lines: list[bytes], manifest: Manifest) -> np.ndarray:
    table = np.zeros(len(data.pairs), SENTENCE)
    table["first_entry"] = manifest.num_entries + np.cumsum(data.entry_counts) - data.entry_counts
    lengths = np.array([len(line) for line in lines], dtype=np.int64)
    table["text_start"] = manifest.num_text_bytes + np.cumsum(lengths) - lengths
    table["pair_hash"] = [pair_hash(pair) for pair in data.pairs]
    table["source_hash"] = [text_hash(pair.source) for pair in data.pairs]
    table["target_hash"] = [text_hash(pair.target) for pair in data.pairs]
    return table


def append_segment(folder: Path, manifest: Manifest, data: SegmentData) -> Segment:
    """Append `data` behind what `manifest` counts, flushed to disk. It counts once a manifest names it."""
    lines = _encode_texts(data.pairs)
    arrays: dict[str, np.ndarray] = {
        f"keys.{manifest.key_type}": np.ascontiguousarray(data.keys, KEY_TYPES[manifest.key_type]),
        "values.int32": np.ascontiguousarray(data.values, VALUES),
        "probabilities.float16": np.ascontiguousarray(data.probabilities, PROBABILITIES),
        "positions.uint16": np.ascontiguousarray(data.positions, POSITIONS),
        "sentences.bin": _sentence_table(data, lines, manifest),
    }
    contents: dict[str, bytes | memoryview] = {name: array.view("u1").data for name, array in arrays.items()}
    contents["texts.jsonl"] = b"".join(lines)
    segment = Segment(
        first_entry=manifest.num_entries,
        num_entries=len(data.values),
        first_sentence=manifest.num_sentences,
        num_sentences=len(data.pairs),
        first_text_byte=manifest.num_text_bytes,
        num_text_bytes=len(contents["texts.jsonl"]),
        created_at=now(),
        sha256={},
    )
    data_folder = folder / manifest.data_folder
    with storage_errors(folder):
        data_folder.mkdir(exist_ok=True)
        for column in columns_of(manifest):
            start, _ = column.range_of(segment)
            content = contents[column.name]
            path = data_folder / column.name
            with path.open("r+b" if path.exists() else "w+b") as out:
                out.truncate(start)
                out.seek(start)
                out.write(content)
                out.flush()
                os.fsync(out.fileno())
            segment.sha256[column.name] = hashlib.sha256(content).hexdigest()
        if not manifest.segments:
            fsync_folder(data_folder)
            fsync_folder(folder)
    return segment


def damaged_parts(folder: Path, manifest: Manifest, segment: Segment) -> list[str]:
    """The columns whose part of `segment` is missing or not what was written."""
    bad = []
    for column in columns_of(manifest):
        path = folder / manifest.data_folder / column.name
        start, length = column.range_of(segment)
        if not path.exists() or path.stat().st_size < start + length:
            bad.append(f"{column.name} is cut short" if path.exists() else f"{column.name} is missing")
        elif sha256_of(path, start, length) != segment.sha256[column.name]:
            bad.append(f"{column.name} was changed")
    return bad
