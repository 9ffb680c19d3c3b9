"""The commit log: each line is confirmed by the next one, and the last by the manifest."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from nearmt.datastore.commit_log import CommitRecord, Counts, Extent, line_checksum, parse_line, read_log


def a_log(path: Path, count: int) -> tuple[list[CommitRecord], list[bytes], Extent]:
    records, lines, previous, end = [], [], "", Counts()
    for number in range(count):
        size = Counts(number + 1, 1, 10 * number, 2, 20, number)
        records.append(CommitRecord(end, size, f"2024-05-0{number + 1}T00:00:00Z", {"values.int32": f"{number}"}))
        lines.append(records[-1].to_line(previous))
        previous, end = line_checksum(lines[-1]), end + size
    path.write_bytes(b"".join(lines))
    return records, lines, Extent(end, count, len(b"".join(lines)), previous)


def test_counts_are_added_and_subtracted_field_by_field():
    one, other = Counts(1, 2, 3, 4, 5, 6), Counts(10, 20, 30, 40, 50, 60)
    assert one + other == Counts(11, 22, 33, 44, 55, 66)
    assert other - one == Counts(9, 18, 27, 36, 45, 54)


def test_an_extent_is_read_from_json():
    extent = Extent(Counts(1, 2, 3, 4, 5, 6), 7, 8, "nine")
    content = {**vars(extent), "counts": vars(extent.counts)}
    assert Extent.from_dict(json.loads(json.dumps(content))) == extent


def test_a_line_holds_the_record_and_the_checksum_of_the_line_before():
    record = CommitRecord(Counts(1), Counts(2), "2024-05-01T00:00:00Z", {"values.int32": "ab"})
    assert parse_line(record.to_line("before")) == (record, "before")
    assert record.to_line("before").endswith(b"}\n")
    assert record.end == Counts(3)


@pytest.mark.parametrize("line", [b"", b"{half", b"{}", b"[]", b'{"first": {"x": 1}, "count": {}}'])
def test_an_unreadable_line_is_not_a_record(line):
    assert parse_line(line) is None


def test_a_sound_log_is_read_whole(tmp_path):
    records, lines, extent = a_log(tmp_path / "log", 4)
    assert read_log(tmp_path / "log", extent) == list(zip(records, lines, strict=True))
    assert read_log(tmp_path / "log", Extent()) == []


def test_lines_after_the_committed_part_are_ignored(tmp_path):
    records, lines, extent = a_log(tmp_path / "log", 3)
    with (tmp_path / "log").open("ab") as log:
        log.write(b"more\n")
    assert read_log(tmp_path / "log", extent) == list(zip(records, lines, strict=True))


def test_a_missing_or_empty_log_is_one_unknown_record(tmp_path):
    _, _, extent = a_log(tmp_path / "log", 2)
    (tmp_path / "log").write_bytes(b"")
    assert read_log(tmp_path / "log", extent) == [(None, b"")]
    (tmp_path / "log").unlink()
    assert read_log(tmp_path / "log", extent) == [(None, b"")]


@pytest.mark.parametrize("changed", [0, 1, 3])
def test_a_changed_line_is_unknown_and_the_others_are_kept(tmp_path, changed):
    records, lines, extent = a_log(tmp_path / "log", 4)
    bad = lines[changed].replace(b"2024", b"2025")
    (tmp_path / "log").write_bytes(b"".join([*lines[:changed], bad, *lines[changed + 1 :]]))
    expected: list[tuple[CommitRecord | None, bytes]] = list(zip(records, lines, strict=True))
    expected[changed] = (None, bad)
    assert read_log(tmp_path / "log", extent) == expected


def test_consecutive_unreadable_lines_are_one_unknown_record(tmp_path):
    records, lines, extent = a_log(tmp_path / "log", 5)
    halves = [b"x" * (len(line) - 1) + b"\n" for line in lines]
    for bad in ([1, 2], [2, 3], [1, 2, 3], [3, 4]):
        content = [halves[i] if i in bad else lines[i] for i in range(5)]
        (tmp_path / "log").write_bytes(b"".join(content))
        joined = (None, b"".join(content[i] for i in bad))
        kept = [(records[i], lines[i]) for i in range(5)]
        assert read_log(tmp_path / "log", extent) == [*kept[: bad[0]], joined, *kept[bad[-1] + 1 :]]


def test_after_a_changed_line_only_the_next_one_is_accepted_unchecked(tmp_path):
    records, lines, extent = a_log(tmp_path / "log", 4)
    unreadable = b"x" * (len(lines[3]) - 1) + b"\n"
    changed = replace(records[1], created_at="2025-05-02T00:00:00Z").to_line(line_checksum(lines[0]))
    (tmp_path / "log").write_bytes(lines[0] + changed + lines[2] + unreadable)
    found = read_log(tmp_path / "log", extent)
    assert found == [(records[0], lines[0]), (None, changed), (records[2], lines[2]), (None, unreadable)]
