"""Atomic writes, locks and checksums: a crash at any moment leaves either the old state or the new one."""

import contextlib
import ctypes
import errno
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from nearmt.errors import StoreDamagedError, StoreError, StoreLockedError
from nearmt.outputs import writing

_CHUNK = 1 << 22
_HERE, _SWAP = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of Linux


def fsync_folder(folder: Path) -> None:
    """Flush renames and new names inside `folder` to disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fsync_file(path: Path) -> None:
    """Flush a file that was written by other code to disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def replace_file(path: Path, content: bytes, *, flush_name: bool = True) -> None:
    """Replace a file atomically: readers see the old content or all of the new.

    Without `flush_name` the rename becomes durable when the folder is next flushed.
    """
    with writing(path, overwrite=True) as out:
        out.write(content)
    if flush_name:
        fsync_folder(path.parent)


def exchange(one: Path, other: Path) -> bool:
    """Swap two names atomically. Returns False where the system cannot do this."""
    swap = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if swap is None:
        return False
    if swap(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _SWAP) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.EINVAL, errno.ENOSYS):
        return False  # not supported by the kernel or the file system
    raise OSError(code, os.strerror(code), str(other))


def sha256_of(path: Path, start: int = 0, length: int | None = None) -> str:
    """SHA-256 of a part of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as source:
        source.seek(start)
        left = length if length is not None else path.stat().st_size - start
        while left > 0:
            block = source.read(min(_CHUNK, left))
            if not block:
                break
            digest.update(block)
            left -= len(block)
    return digest.hexdigest()


def folder_bytes(folder: Path) -> int:
    """Size of all files in a folder, even while other processes delete some."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                total += (Path(parent) / name).stat().st_size
    return total


def check_file(path: Path, checksum: str) -> None:
    """Raise an error if a file is missing or does not match its checksum."""
    try:
        found = sha256_of(path)
    except OSError as error:
        raise StoreDamagedError(f"{path} is missing or cannot be read: run nearmt verify") from error
    if found != checksum:
        raise StoreDamagedError(f"{path} was changed: run nearmt verify")


@contextlib.contextmanager
def write_lock(folder: Path, wait: float = 0.0) -> Iterator[None]:
    """Allow one writer at a time, across processes and threads. The system releases the lock if its holder dies."""
    with _locked(folder / "lock", f"{folder}: another process is writing to this store; try again later", wait):
        yield


@contextlib.contextmanager
def compaction_lock(folder: Path) -> Iterator[None]:
    """Allow one compaction at a time. Additions and removals may continue meanwhile."""
    with _locked(folder / "compaction-lock", f"{folder}: another process is compacting this store"):
        yield


@contextlib.contextmanager
def build_lock(out: Path) -> Iterator[None]:
    """Allow one build of a store at a time, from its start until the store is in place."""
    path = out.with_name(f".{out.name}.lock")
    with storage_errors(out):
        path.parent.mkdir(parents=True, exist_ok=True)
    with _locked(path, f"{out}: another process is building this store"):
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def _locked(path: Path, refusal: str, wait: float = 0.0) -> Iterator[None]:
    lock = FileLock(path)
    with storage_errors(path.parent):
        try:
            lock.acquire(timeout=wait)
        except Timeout as error:
            raise StoreLockedError(refusal) from error
    try:
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def storage_errors(folder: Path) -> Iterator[None]:
    """Turn an OSError into a StoreError of one sentence."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            reason = "the disk is full"
        elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            reason = "no permission to write there"
        else:
            reason = (error.strerror or str(error)).lower()
        raise StoreError(f"{error.filename or folder}: {reason}") from error
