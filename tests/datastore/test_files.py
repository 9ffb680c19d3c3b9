"""Checksums, atomic replacement, locks and errors of the disk."""

import ctypes
import errno
import hashlib
import os
import sys
from pathlib import Path

import pytest

from nearmt.datastore import files
from nearmt.datastore.files import (
    build_lock,
    check_file,
    compaction_lock,
    exchange,
    folder_bytes,
    fsync_file,
    fsync_folder,
    replace_file,
    sha256_of,
    storage_errors,
    write_lock,
)
from nearmt.errors import StoreDamagedError, StoreError, StoreLockedError

CONTENT = bytes(range(256))


@pytest.mark.parametrize("chunk", [1, 7, 256, 4096])
@pytest.mark.parametrize(
    ("start", "length"), [(0, None), (10, None), (0, 0), (0, 1), (3, 20), (250, 6), (250, 999), (256, None), (300, 4)]
)
def test_the_checksum_of_a_part_of_a_file(tmp_path, monkeypatch, chunk, start, length):
    monkeypatch.setattr(files, "_CHUNK", chunk)
    (tmp_path / "x").write_bytes(CONTENT)
    end = len(CONTENT) if length is None else start + length
    assert sha256_of(tmp_path / "x", start, length) == hashlib.sha256(CONTENT[start:end]).hexdigest()


def test_the_checksum_of_a_whole_file(tmp_path):
    (tmp_path / "x").write_bytes(CONTENT)
    expected = hashlib.sha256(CONTENT).hexdigest()
    assert sha256_of(tmp_path / "x") == expected
    check_file(tmp_path / "x", expected)
    with pytest.raises(StoreDamagedError) as changed:
        check_file(tmp_path / "x", "0" * 64)
    assert str(changed.value) == f"{tmp_path / 'x'} was changed: run nearmt verify"
    with pytest.raises(StoreDamagedError) as missing:
        check_file(tmp_path / "y", expected)
    assert str(missing.value) == f"{tmp_path / 'y'} is missing or cannot be read: run nearmt verify"


def file_number(path: Path) -> int:
    return path.stat().st_ino


@pytest.fixture
def synced(monkeypatch) -> list[int]:
    """The numbers of the files and folders that were flushed, in order."""
    numbers: list[int] = []
    fsync = os.fsync

    def recorded(descriptor: int) -> None:
        numbers.append(os.fstat(descriptor).st_ino)
        fsync(descriptor)

    monkeypatch.setattr("os.fsync", recorded)
    return numbers


def test_files_and_folders_are_flushed(tmp_path, synced):
    (tmp_path / "x").write_bytes(b"1")
    fsync_folder(tmp_path)
    fsync_file(tmp_path / "x")
    assert synced == [file_number(tmp_path), file_number(tmp_path / "x")]


def test_a_flushed_folder_is_closed(tmp_path, monkeypatch):
    flushed: list[int] = []
    monkeypatch.setattr("os.fsync", flushed.append)
    fsync_folder(tmp_path)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(flushed[0])


def test_a_replaced_file_and_its_name_are_flushed(tmp_path, synced):
    replace_file(tmp_path / "x", b"old")
    assert synced[-1] == file_number(tmp_path)
    replace_file(tmp_path / "x", b"new")
    assert (tmp_path / "x").read_bytes() == b"new"
    assert synced.count(file_number(tmp_path)) == 2
    replace_file(tmp_path / "x", b"newer", flush_name=False)
    assert (tmp_path / "x").read_bytes() == b"newer"
    assert synced.count(file_number(tmp_path)) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux swaps names")
def test_two_folders_swap_their_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    one, other = Path("one"), Path("ö")
    one.mkdir()
    other.mkdir()
    (one / "a").touch()
    assert exchange(one, other) is True
    assert (other / "a").exists()
    assert list(one.iterdir()) == []
    ctypes.set_errno(0)
    with pytest.raises(FileNotFoundError) as refused:
        exchange(one, Path("missing"))
    assert refused.value.filename == "missing"
    assert refused.value.strerror == os.strerror(errno.ENOENT)


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOSYS])
def test_swapping_is_reported_as_impossible_where_the_system_cannot(tmp_path, monkeypatch, code):
    class Library:
        @staticmethod
        def renameat2(*_: object) -> int:
            return -1

    monkeypatch.setattr("ctypes.CDLL", lambda *_, **options: Library if options == {"use_errno": True} else None)
    monkeypatch.setattr("ctypes.get_errno", lambda: code)
    assert exchange(tmp_path, tmp_path) is False
    monkeypatch.delattr(Library, "renameat2")
    assert exchange(tmp_path, tmp_path) is False


def test_the_size_of_a_folder_includes_its_folders(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "x").write_bytes(b"123")
    (tmp_path / "a" / "y").write_bytes(b"4567")
    (tmp_path / "a" / "b" / "z").write_bytes(b"8")
    (tmp_path / "a" / "gone").symlink_to(tmp_path / "nowhere")
    assert folder_bytes(tmp_path) == 8
    assert folder_bytes(tmp_path / "missing") == 0


@pytest.mark.parametrize(
    ("lock", "name", "message"),
    [
        (write_lock, "lock", "another process is writing to this store; try again later"),
        (compaction_lock, "compaction-lock", "another process is compacting this store"),
    ],
)
def test_a_lock_is_held_by_one_and_released(tmp_path, lock, name, message):
    with lock(tmp_path):
        assert (tmp_path / name).exists()
        with pytest.raises(StoreLockedError) as refused, lock(tmp_path):
            pass
        assert str(refused.value) == f"{tmp_path}: {message}"
    with pytest.raises(RuntimeError), lock(tmp_path):
        raise RuntimeError
    with lock(tmp_path):
        pass


def test_the_locks_of_writing_and_compacting_are_independent(tmp_path):
    with write_lock(tmp_path), compaction_lock(tmp_path):
        pass


def test_a_writer_waits_as_long_as_it_is_told(tmp_path, monkeypatch):
    waited = []
    acquire = files.FileLock.acquire

    def recorded(self, timeout):
        waited.append(timeout)
        return acquire(self, timeout=0)

    monkeypatch.setattr(files.FileLock, "acquire", recorded)
    with write_lock(tmp_path):
        pass
    with write_lock(tmp_path, wait=2.5):
        pass
    assert waited == [0.0, 2.5]


def test_a_build_lock_is_beside_the_store_and_goes_with_the_build(tmp_path):
    out = tmp_path / "new" / "folder" / "a.store"
    with build_lock(out):
        assert [path.name for path in out.parent.iterdir()] == [".a.store.lock"]
        with pytest.raises(StoreLockedError) as refused, build_lock(out):
            pass
        assert str(refused.value) == f"{out}: another process is building this store"
    assert list(out.parent.iterdir()) == []
    with build_lock(out):  # its folder is there already
        pass


def test_a_build_lock_in_an_impossible_place_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="file"), build_lock(tmp_path / "file" / "a.store"):
        pass


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_is_named(tmp_path, code):
    with pytest.raises(StoreError) as refused, storage_errors(tmp_path):
        raise OSError(code, "whatever")
    assert str(refused.value) == f"{tmp_path}: the disk is full"


@pytest.mark.parametrize("code", [errno.EACCES, errno.EPERM, errno.EROFS])
def test_missing_permission_is_named(tmp_path, code):
    with pytest.raises(StoreError) as refused, storage_errors(tmp_path):
        raise OSError(code, "whatever", "some.file")
    assert str(refused.value) == "some.file: no permission to write there"


def test_other_errors_are_passed_on_in_their_own_words(tmp_path):
    for error, message in ((OSError(errno.EIO, "Input Error"), "input error"), (OSError("Odd"), "odd")):
        with pytest.raises(StoreError) as refused, storage_errors(tmp_path):
            raise error
        assert str(refused.value) == f"{tmp_path}: {message}"
