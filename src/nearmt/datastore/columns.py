"""The flat files of a store and how a commit is appended to them.

Every column is one file to which commits only append. The manifest says how much of it is committed. The next writer
truncates what a killed writer left after that.
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from nearmt.corpus import SentencePair
from nearmt.datastore.commit_log import LOG, CommitRecord, Counts, Extent, line_checksum
from nearmt.datastore.files import fsync_folder, sha256_of, storage_errors
from nearmt.datastore.hashing import pair_hash, text_hash
from nearmt.datastore.keys import KEY_TYPES, PROJECTION, KeyCode, fit_key_code
from nearmt.datastore.manifest import Manifest, now
from nearmt.datastore.units import UNIT, Unit

VALUES, PROBABILITIES, POSITIONS, REMOVALS = np.dtype("<i4"), np.dtype("<f2"), np.dtype("<u2"), np.dtype("<i8")
REMOVALS_FILE = "removals.int64"
SENTENCE = np.dtype(
    [
        ("first_entry", "<i8"),
        ("text_start", "<i8"),
        ("first_unit", "<i8"),
        ("pair_hash", "<u8"),
        ("source_hash", "<u8"),
        ("target_hash", "<u8"),
    ]
)


@dataclass(frozen=True)
class CommitData:
    """What one commit adds. Entries are in the order of the new sentences.

    Every new sentence comes with a unit that says where it is from. Further units give stored sentences another
    origin; removals delete units.
    """

    pairs: Sequence[SentencePair]  # the new sentences
    entry_counts: np.ndarray  # (sentences,)
    keys: np.ndarray  # (entries, width) floats, or already encoded
    values: np.ndarray  # (entries,) token ids
    probabilities: np.ndarray  # (entries,) the model's own probability of the value
    positions: np.ndarray  # (entries,) position in the target sentence
    units: Sequence[Unit] | None = None  # in order of arrival; None makes one for each pair
    removed_units: Sequence[int] = field(default=())

    @classmethod
    def without_entries(cls, width: int, units: Sequence[Unit] = (), removed_units: Sequence[int] = ()) -> "CommitData":
        """A commit without new sentences."""
        none = np.zeros(0, np.int64)
        return cls((), none, np.zeros((0, width), np.float16), none, none, none, units, removed_units)


@dataclass(frozen=True)
class Column:
    """One flat file: what its items are and how many bytes an item takes."""

    name: str
    counted: str  # a field of Counts
    item_bytes: int = 1

    def range_of(self, commit: CommitRecord) -> tuple[int, int]:
        """First byte and number of bytes of a commit's part."""
        first, count = getattr(commit.first, self.counted), getattr(commit.count, self.counted)
        return first * self.item_bytes, count * self.item_bytes

    def size_at(self, counts: Counts) -> int:
        """Size in bytes for these counts."""
        return int(getattr(counts, self.counted)) * self.item_bytes


def columns_of(manifest: Manifest) -> tuple[Column, ...]:
    """The files of a store's data folder without the log; those with one item per entry come first."""
    key_bytes = KEY_TYPES[manifest.key_type].itemsize * manifest.key_dims
    return (
        Column(f"keys.{manifest.key_type}", "entries", key_bytes),
        Column("values.int32", "entries", VALUES.itemsize),
        Column("probabilities.float16", "entries", PROBABILITIES.itemsize),
        Column("positions.uint16", "entries", POSITIONS.itemsize),
        Column("sentences.bin", "sentences", SENTENCE.itemsize),
        Column("texts.jsonl", "text_bytes"),
        Column("units.bin", "units", UNIT.itemsize),
        Column("units.jsonl", "unit_bytes"),
        Column(REMOVALS_FILE, "removals", REMOVALS.itemsize),
    )


def data_bytes(manifest: Manifest) -> int:
    """Committed bytes of a store's data folder."""
    columns = columns_of(manifest)
    return manifest.extent.log_bytes + sum(column.size_at(manifest.extent.counts) for column in columns)


def _text_lines(pairs: Sequence[SentencePair]) -> list[bytes]:
    return [
        (json.dumps({"source": pair.source, "target": pair.target}, ensure_ascii=False) + "\n").encode(
            "utf-8", "surrogatepass"
        )
        for pair in pairs
    ]


def _starts(lengths: Sequence[int], before: int) -> np.ndarray:
    ends = np.cumsum(np.array(lengths, dtype=np.int64))
    return before + ends - np.array(lengths, dtype=np.int64)


def _sentence_table(data: CommitData, units: Sequence[Unit], lines: list[bytes], before: Counts) -> np.ndarray:
    table = np.zeros(len(data.pairs), SENTENCE)
    table["first_entry"] = before.entries + np.cumsum(data.entry_counts) - data.entry_counts
    table["text_start"] = _starts([len(line) for line in lines], before.text_bytes)
    table["pair_hash"] = [pair_hash(pair) for pair in data.pairs]
    table["source_hash"] = [text_hash(pair.source) for pair in data.pairs]
    table["target_hash"] = [text_hash(pair.target) for pair in data.pairs]
    for number, unit in enumerate(units):
        if unit.is_first:
            table["first_unit"][unit.sentence_id - before.sentences] = before.units + number
    return table


def with_key_code(folder: Path, manifest: Manifest, keys: np.ndarray) -> Manifest:
    """The manifest with the coding of keys, set by the first keys of a store."""
    if manifest.lacks_key_code and len(keys):
        return replace(manifest, key_range=fit_key_code(folder, manifest, keys))
    return manifest


def entry_contents(folder: Path, manifest: Manifest, data: CommitData) -> dict[str, memoryview]:
    """The bytes of the entries for each column that has one item per entry."""
    return _as_bytes(
        {
            f"keys.{manifest.key_type}": KeyCode.of(folder, manifest).encode(data.keys),
            "values.int32": np.ascontiguousarray(data.values, VALUES),
            "probabilities.float16": np.ascontiguousarray(data.probabilities, PROBABILITIES),
            "positions.uint16": np.ascontiguousarray(data.positions, POSITIONS),
        }
    )


def _as_bytes(arrays: Mapping[str, np.ndarray]) -> dict[str, memoryview]:
    return {name: array.reshape(-1).view("u1").data for name, array in arrays.items()}


def _text_contents(before: Counts, data: CommitData) -> tuple[Counts, dict[str, bytes | memoryview]]:
    """The size of a commit, and its bytes for the columns of sentences, units and removals."""
    units = data.units
    if units is None:
        units = [Unit.of(pair, number, is_first=True) for number, pair in enumerate(data.pairs, before.sentences)]
    text_lines, unit_lines = _text_lines(data.pairs), [unit.line() for unit in units]
    records = np.array([unit.record() for unit in units], UNIT)
    if len(units):
        records["text_start"] = _starts([len(line) for line in unit_lines], before.unit_bytes)
    arrays = {
        "sentences.bin": _sentence_table(data, units, text_lines, before),
        "units.bin": records,
        REMOVALS_FILE: np.array(data.removed_units, REMOVALS),
    }
    contents: dict[str, bytes | memoryview] = {**_as_bytes(arrays)}
    contents["texts.jsonl"], contents["units.jsonl"] = b"".join(text_lines), b"".join(unit_lines)
    counts = Counts(
        entries=int(data.entry_counts.sum()),
        sentences=len(data.pairs),
        text_bytes=len(contents["texts.jsonl"]),
        units=len(units),
        unit_bytes=len(contents["units.jsonl"]),
        removals=len(data.removed_units),
    )
    return counts, contents


@dataclass(frozen=True)
class WrittenEntries:
    """Entries that a worker has already written to their range of the files."""

    sha256: dict[str, str]  # of each column's part
    key_range: dict[str, Any] | None  # how keys are coded, set by the first entries of the store


def append_commit(
    folder: Path, manifest: Manifest, data: CommitData, written: WrittenEntries | None = None
) -> Manifest:
    """Append `data` after the committed part of each file and flush it; saving the returned manifest commits it.

    With `written`, the entries are already in the files and only the rest of `data` is appended.
    """
    if written is None:
        with storage_errors(folder):
            manifest = with_key_code(folder, manifest, data.keys)
        entries = entry_contents(folder, manifest, data)
        checksums: dict[str, str] = {}
    else:
        manifest = replace(manifest, key_range=written.key_range)
        entries, checksums = {}, dict(written.sha256)
    before = manifest.extent
    count, texts = _text_contents(before.counts, data)
    contents = {**entries, **texts}
    commit = CommitRecord(before.counts, count, now(), checksums)
    data_folder = folder / manifest.data_folder
    with storage_errors(folder):
        is_new = not data_folder.exists()
        data_folder.mkdir(exist_ok=True)
        for column in columns_of(manifest):
            content = contents.get(column.name)
            path = data_folder / column.name
            if content is not None and (len(content) or not path.exists()):
                _write_at(path, column.range_of(commit)[0], content)
                checksums[column.name] = hashlib.sha256(content).hexdigest()
        line = commit.to_line(before.log_sha256)
        _write_at(data_folder / LOG, before.log_bytes, line)
        if is_new or not before.segments:
            fsync_folder(data_folder)
            fsync_folder(folder)
    extent = Extent(commit.end, before.segments + 1, before.log_bytes + len(line), line_checksum(line))
    return replace(manifest, extent=extent)


def _write_at(path: Path, start: int, content: bytes | memoryview) -> None:
    with path.open("r+b" if path.exists() else "w+b") as out:
        out.truncate(start)
        out.seek(start)
        out.write(content)
        out.flush()
        os.fsync(out.fileno())


def projection_problem(folder: Path, manifest: Manifest) -> str | None:
    """What is wrong with the principal components of reduced keys, if anything."""
    checksum = (manifest.key_range or {}).get("projection")
    path = folder / manifest.data_folder / PROJECTION
    if checksum is None:
        return None
    if not path.exists():
        return "is missing"
    return None if sha256_of(path) == checksum else "was changed"


def damaged_parts(folder: Path, manifest: Manifest, commit: CommitRecord) -> dict[str, str]:
    """Column → problem, for each column whose part of the commit is missing or does not match its checksum."""
    bad = {}
    projection = projection_problem(folder, manifest)
    for column in columns_of(manifest):
        path = folder / manifest.data_folder / column.name
        start, length = column.range_of(commit)
        if not length:
            continue
        if column.name.startswith("keys.") and projection is not None:
            bad[column.name] = f"cannot be read: {PROJECTION} {projection}"
        elif not path.exists() or path.stat().st_size < start + length:
            bad[column.name] = "is cut short" if path.exists() else "is missing"
        elif sha256_of(path, start, length) != commit.sha256.get(column.name):
            bad[column.name] = "was changed"
    return bad
