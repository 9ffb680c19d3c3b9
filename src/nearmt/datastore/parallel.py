"""Entries that several processes write at once, each to its own range of the files.

The range of a commit's entries is known before they are computed. The entries take effect when the one writer of the
store appends the rest of the commit (`append_commit` with the `WrittenEntries`) and saves the manifest.
"""

import hashlib
import os
from pathlib import Path

from nearmt.datastore.columns import (
    Column,
    CommitData,
    WrittenEntries,
    columns_of,
    entry_contents,
    with_key_code,
)
from nearmt.datastore.files import storage_errors
from nearmt.datastore.manifest import Manifest


def prepare_entry_files(folder: Path, manifest: Manifest) -> None:
    """Create the files of the entries, and truncate them to their committed part."""
    data_folder = folder / manifest.data_folder
    with storage_errors(folder):
        data_folder.mkdir(exist_ok=True)
        for column in _entry_columns(manifest):
            with (data_folder / column.name).open("ab") as out:
                out.truncate(column.size_at(manifest.extent.counts))


def write_entries(folder: Path, manifest: Manifest, first_entry: int, data: CommitData) -> WrittenEntries:
    """Write the entries of a commit to their range and flush them. The rest of the files is left alone."""
    with storage_errors(folder):
        manifest = with_key_code(folder, manifest, data.keys)
    contents = entry_contents(folder, manifest, data)
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


def _entry_columns(manifest: Manifest) -> list[Column]:
    return [column for column in columns_of(manifest) if column.counted == "entries"]
