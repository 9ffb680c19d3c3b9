"""Entries written by many processes at once, each at the place that is its own; the texts follow in order.

Where a segment's entries stand is known before they are worked out, so nobody waits for anybody. They count once the
one writer of the store has appended their texts and saved the manifest, as with every other segment.
"""

import hashlib
import os
from dataclasses import dataclass, replace
from pathlib import Path

from nearmt.datastore.columns import Column, SegmentData, append_beside, columns_of, entry_contents, with_key_range
from nearmt.datastore.files import storage_errors
from nearmt.datastore.manifest import Manifest


@dataclass(frozen=True)
class WrittenEntries:
    """What is to be known of entries that stand in their place."""

    sha256: dict[str, str]  # of each column's part
    key_range: dict[str, list[float]] | None  # of one-byte keys, learned from the first entries of the store


def make_room(folder: Path, manifest: Manifest) -> None:
    """Make the entries' files, and cut off what a killed build left behind what counts."""
    data_folder = folder / manifest.data_folder
    with storage_errors(folder):
        data_folder.mkdir(exist_ok=True)
        for column in _entry_columns(manifest):
            with (data_folder / column.name).open("ab") as out:
                out.truncate(column.size_at(manifest.extent.counts))


def write_entries(folder: Path, manifest: Manifest, first_entry: int, data: SegmentData) -> WrittenEntries:
    """Put a segment's entries in their place and flush them; whatever else stands in the files is left alone."""
    manifest = with_key_range(manifest, data.keys)
    contents = entry_contents(manifest, data)
    checksums = {}
    with storage_errors(folder):
        for column in _entry_columns(manifest):
            with (folder / manifest.data_folder / column.name).open("r+b") as out:
                out.seek(first_entry * column.item_bytes)
                out.write(contents[column.name])
                out.flush()
                os.fsync(out.fileno())
            checksums[column.name] = hashlib.sha256(contents[column.name]).hexdigest()
    return WrittenEntries(checksums, manifest.key_range)


def append_written(folder: Path, manifest: Manifest, data: SegmentData, written: WrittenEntries) -> Manifest:
    """Append the texts of a segment whose entries are written; of `data` keys and values are not looked at."""
    return append_beside(folder, replace(manifest, key_range=written.key_range), data, {}, written.sha256)


def _entry_columns(manifest: Manifest) -> list[Column]:
    return [column for column in columns_of(manifest) if column.counted == "entries"]
