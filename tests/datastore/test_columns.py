"""A commit's bytes in each file, read back with plain NumPy and JSON, and what is flushed when."""

import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nearmt.corpus import SentencePair
from nearmt.datastore import CommitData, Languages, Manifest, Snapshot, append_commit
from nearmt.datastore import columns as columns_module
from nearmt.datastore.columns import (
    REMOVALS_FILE,
    SENTENCE,
    WrittenEntries,
    columns_of,
    damaged_parts,
    data_bytes,
    with_key_code,
)
from nearmt.datastore.commit_log import LOG, Counts, read_log
from nearmt.datastore.hashing import pair_hash, text_hash
from nearmt.datastore.units import UNIT, Unit
from nearmt.errors import StoreError

WIDTH = 3


def a_commit(texts: list[tuple[str, str]], counts: list[int], seed: int = 1, **more) -> CommitData:
    """Columns have wider types than the files, as they may come from a model."""
    rng, total = np.random.default_rng(seed), sum(counts)
    return CommitData(
        [SentencePair(source, target, f"id-{source}", "file.tmx", "2024-05-01T00:00:00Z") for source, target in texts],
        np.array(counts),
        rng.standard_normal((total, WIDTH)),
        rng.integers(0, 9999, total),
        rng.random(total),
        np.arange(total),
        **more,
    )


def a_manifest(**more) -> Manifest:
    return Manifest(model={}, languages=Languages("de", "en"), width=WIDTH, **more)


FIRST = a_commit([("grün", "green"), ("\udcff", "broken")], [2, 1])
SECOND = a_commit([("blau", "blue")], [4], seed=2)


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Manifest]:
    """A folder with two commits; the second also removes the first unit and gives sentence 1 another origin."""
    manifest = append_commit(tmp_path, a_manifest(), FIRST)
    units = [
        Unit.of(SentencePair("\udcff", "broken", "x", "other.tmx"), 1, is_first=False),
        Unit.of(SECOND.pairs[0], 2, is_first=True),
    ]
    return tmp_path, append_commit(tmp_path, manifest, replace(SECOND, units=units, removed_units=[0]))


def column(folder: Path, name: str, dtype) -> np.ndarray:
    return np.frombuffer((folder / "data-000001" / name).read_bytes(), dtype)


def test_entries_are_written_in_the_types_of_their_files(two):
    folder, manifest = two
    parts = (FIRST, SECOND)
    keys = np.concatenate([part.keys for part in parts]).astype("<f2")
    np.testing.assert_array_equal(column(folder, "keys.float16", "<f2").reshape(-1, WIDTH), keys)
    for name, field, dtype in (
        ("values.int32", "values", "<i4"),
        ("probabilities.float16", "probabilities", "<f2"),
        ("positions.uint16", "positions", "<u2"),
    ):
        expected = np.concatenate([getattr(part, field) for part in parts]).astype(dtype)
        np.testing.assert_array_equal(column(folder, name, dtype), expected)
    assert manifest.num_entries == 7


def test_sentences_know_their_entries_texts_units_and_hashes(two):
    folder, _ = two
    table = column(folder, "sentences.bin", SENTENCE)
    assert table["first_entry"].tolist() == [0, 2, 3]
    assert table["first_unit"].tolist() == [0, 1, 3]
    texts = (folder / "data-000001" / "texts.jsonl").read_bytes()
    assert "grün".encode() in texts, "not escaped"
    pairs = [*FIRST.pairs, *SECOND.pairs]
    for row, pair in zip(table, pairs, strict=True):
        line = texts[row["text_start"] :].split(b"\n")[0].decode("utf-8", "surrogatepass")
        assert json.loads(line) == {"source": pair.source, "target": pair.target}
        assert row["pair_hash"] == pair_hash(pair)
        assert row["source_hash"] == text_hash(pair.source)
        assert row["target_hash"] == text_hash(pair.target)


def test_units_know_their_sentence_and_text(two):
    folder, _ = two
    units = column(folder, "units.bin", UNIT)
    assert units["sentence"].tolist() == [0, 1, 1, 2]
    assert units["is_first"].tolist() == [1, 1, 0, 1]
    texts = (folder / "data-000001" / "units.jsonl").read_bytes()
    lines = [
        json.loads(texts[start:].split(b"\n")[0].decode("utf-8", "surrogatepass")) for start in units["text_start"]
    ]
    assert [line["unit_id"] for line in lines] == ["id-grün", "id-\udcff", "x", "id-blau"]
    assert [line["origin"] for line in lines] == ["file.tmx", "file.tmx", "other.tmx", "file.tmx"]
    assert column(folder, REMOVALS_FILE, "<i8").tolist() == [0]


def test_the_extent_counts_what_was_written(two):
    folder, manifest = two
    data = folder / "data-000001"
    size = {path.name: path.stat().st_size for path in data.iterdir()}
    assert manifest.extent.counts == Counts(7, 3, size["texts.jsonl"], 4, size["units.jsonl"], 1)
    assert (manifest.extent.segments, manifest.extent.log_bytes) == (2, size[LOG])
    assert manifest.num_sentences == 3
    assert data_bytes(manifest) == sum(size.values())
    expected = {one.name: size[one.name] for one in columns_of(manifest)}
    assert {one.name: one.size_at(manifest.extent.counts) for one in columns_of(manifest)} == expected
    last = (data / LOG).read_bytes().splitlines(keepends=True)[-1]
    assert manifest.extent.log_sha256 == hashlib.sha256(last).hexdigest()


def test_the_log_has_the_range_time_and_checksums_of_every_commit(two, monkeypatch):
    folder, manifest = two
    data = folder / "data-000001"
    (first, first_line), (second, _) = read_log(data / LOG, manifest.extent)
    assert first.first == Counts()
    assert first.end == second.first
    assert second.end == manifest.extent.counts
    assert len(first.created_at) == len("2024-05-01T00:00:00Z")
    for commit in (first, second):
        assert commit is not None
        for one in columns_of(manifest):
            start, length = one.range_of(commit)
            content = (data / one.name).read_bytes()[start : start + length]
            assert commit.sha256.get(one.name, hashlib.sha256(b"").hexdigest()) == hashlib.sha256(content).hexdigest()
    previous = json.loads((data / LOG).read_bytes().splitlines()[1])["previous"]
    assert previous == hashlib.sha256(first_line).hexdigest()


def test_every_file_is_there_after_the_first_commit(tmp_path):
    manifest = append_commit(tmp_path, a_manifest(), FIRST)
    names = {one.name for one in columns_of(manifest)} | {LOG}
    assert {path.name for path in (tmp_path / "data-000001").iterdir()} == names


def test_a_commit_without_entries_adds_units_and_removals_only(two):
    folder, manifest = two
    unit = Unit.of(SentencePair("blau", "blue", "y", "third.tmx"), 2, is_first=False)
    after = append_commit(folder, manifest, CommitData.without_entries(WIDTH, [unit], [1, 2]))
    added = after.extent.counts - manifest.extent.counts
    assert added == Counts(0, 0, 0, 1, len(unit.line()), 2)
    assert column(folder, REMOVALS_FILE, "<i8").tolist() == [0, 1, 2]
    empty = CommitData.without_entries(WIDTH)
    assert not empty.units
    assert len(empty.removed_units) == 0
    assert empty.keys.shape == (0, WIDTH)
    assert empty.keys.dtype == np.float16
    for array in (empty.entry_counts, empty.values, empty.probabilities, empty.positions):
        assert array.shape == (0,)
        assert array.dtype == np.int64
    last = append_commit(folder, after, empty)
    assert last.extent.counts == after.extent.counts
    assert last.extent.segments == 4
    last.save(folder)
    snapshot = Snapshot.open(folder)
    assert [unit.origin for unit in snapshot.units_of(2)] == ["file.tmx", "third.tmx"]


def test_bytes_after_the_committed_part_are_overwritten(two):
    folder, manifest = two
    sizes = {path.name: path.stat().st_size for path in (folder / "data-000001").iterdir()}
    append_commit(folder, manifest, a_commit([("lost", "lost")] * 5, [3] * 5))  # its manifest is not saved
    append_commit(folder, manifest, a_commit([("a", "b")], [1]))
    grown = {path.name: path.stat().st_size - sizes[path.name] for path in (folder / "data-000001").iterdir()}
    assert grown["keys.float16"] == 2 * WIDTH
    assert grown["values.int32"] == 4
    assert grown["sentences.bin"] == SENTENCE.itemsize


def test_entries_written_by_a_worker_are_only_recorded(tmp_path):
    sums, span = {"keys.int8": "aa", "values.int32": "bb"}, {"lowest": [0.0] * WIDTH, "extent": [1.0] * WIDTH}
    manifest = append_commit(tmp_path, a_manifest(key_type="int8"), FIRST, WrittenEntries(sums, span))
    data = tmp_path / "data-000001"
    assert not (data / "keys.int8").exists()
    assert (data / "texts.jsonl").exists()
    assert manifest.key_range == span
    assert manifest.num_entries == 3
    ((record, _),) = read_log(data / LOG, manifest.extent)
    assert sums.items() <= record.sha256.items()
    assert "sentences.bin" in record.sha256
    assert set(sums) == {"keys.int8", "values.int32"}, "not changed"


def test_the_range_of_int8_keys_is_set_once_by_the_first_keys(tmp_path):
    keys = np.arange(12.0).reshape(4, WIDTH)
    manifest = with_key_code(tmp_path, a_manifest(key_type="int8"), keys)
    assert manifest.key_range is not None
    assert with_key_code(tmp_path, manifest, keys * 5) is manifest
    for unchanged in (a_manifest(key_type="float16"), a_manifest(key_type="float32")):
        assert with_key_code(tmp_path, unchanged, keys) is unchanged
    empty = a_manifest(key_type="int8")
    assert with_key_code(tmp_path, empty, keys[:0]) is empty


def test_folders_are_flushed_with_the_first_commit_only(tmp_path, monkeypatch):
    flushed = []
    monkeypatch.setattr(columns_module, "fsync_folder", lambda folder: flushed.append(folder))
    manifest = append_commit(tmp_path, a_manifest(), FIRST)
    assert flushed == [tmp_path / "data-000001", tmp_path]
    flushed.clear()
    append_commit(tmp_path, a_manifest(), FIRST)  # the folder is there, but nothing in it was committed
    assert flushed == [tmp_path / "data-000001", tmp_path]
    flushed.clear()
    append_commit(tmp_path, manifest, SECOND)
    assert flushed == []
    append_commit(tmp_path, replace(manifest, generation=2), SECOND)
    assert flushed == [tmp_path / "data-000002", tmp_path]


def test_every_file_is_flushed_after_it_was_written(tmp_path, monkeypatch):
    synced = []

    def fsync(descriptor: int) -> None:
        status = os.fstat(descriptor)
        synced.append((status.st_ino, status.st_size))

    monkeypatch.setattr("os.fsync", fsync)
    append_commit(tmp_path, a_manifest(), FIRST)
    files = [path.stat() for path in (tmp_path / "data-000001").iterdir()]
    written = {(status.st_ino, status.st_size) for status in files}
    assert written <= set(synced)


def test_a_disk_error_names_the_store(tmp_path, monkeypatch):
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(columns_module, "_write_at", refuse)
    with pytest.raises(StoreError) as refused:
        append_commit(tmp_path, a_manifest(), FIRST)
    assert str(refused.value) == f"{tmp_path}: the disk is full"


def test_damage_is_found_in_the_commit_that_it_hits(two):
    folder, manifest = two
    data = folder / "data-000001"
    first, second = (record for record, _ in read_log(data / LOG, manifest.extent))
    assert first is not None
    assert second is not None
    assert damaged_parts(folder, manifest, first) == damaged_parts(folder, manifest, second) == {}
    values = bytearray((data / "values.int32").read_bytes())
    values[0] ^= 1
    (data / "values.int32").write_bytes(values)
    with (data / "keys.float16").open("r+b") as keys:
        keys.truncate(7 * 2 * WIDTH - 1)
    (data / REMOVALS_FILE).unlink()
    assert damaged_parts(folder, manifest, first) == {"values.int32": "was changed"}, "which removes nothing"
    assert damaged_parts(folder, manifest, second) == {"keys.float16": "is cut short", REMOVALS_FILE: "is missing"}
    without_removals = replace(second, count=replace(second.count, sentences=0, removals=0), sha256={})
    assert damaged_parts(folder, manifest, without_removals)["units.jsonl"] == "was changed"
