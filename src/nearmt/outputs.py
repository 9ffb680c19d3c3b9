"""The only writer of files: a file appears once it is complete, and replaces an existing one only on request."""

import io
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TextIO

from nearmt.errors import OutputError, OutputExistsError

UNFINISHED = ".new"  # the ending of a file that is being written
_NAME_CHARS = 50  # characters of the final name in the name of an unfinished file
_DESCRIPTOR = re.compile(r"/dev/(stdout|stderr|fd/\d+)|/proc/(self|thread-self|\d+)/fd/\d+")


def is_stream(path: Path) -> bool:
    """True for a pipe, a device or a file descriptor such as /dev/stdout, which are written to directly."""
    if _DESCRIPTOR.fullmatch(os.path.abspath(path)):  # noqa: PTH100  # absolute() keeps the ".."
        return True
    return path.exists() and not path.is_file() and not path.is_dir()


def check_output(path: Path, *, overwrite: bool) -> None:
    """Raise, before any work is done, if a file exists or cannot be written."""
    if is_stream(path):
        return
    if path.is_dir():
        raise OutputError(f"{path} is a folder, not a file")
    if path.exists() and not overwrite:
        raise _exists(path)
    if not path.parent.is_dir():
        raise OutputError(f"{path.parent} is not a folder: {path.name} cannot be written there")
    if not os.access(path.parent, os.W_OK):
        raise OutputError(f"{path} cannot be written: no permission to write in its folder")


def check_output_folder(folder: Path, *, overwrite: bool) -> None:
    """Raise, before any work is done, if a folder for new files already has files."""
    _check_folder(folder)
    if not overwrite and _has_files(folder):
        raise OutputExistsError(f"{folder} has files in it")


def claim_folder(folder: Path, command: str) -> None:
    """Reserve a folder for a command that can continue its earlier work there.

    The folder must be new, have no files, or have the marker file of the same command.
    """
    _check_folder(folder)
    marker = folder / f".nearmt-{command}"
    if marker.exists():
        return
    if _has_files(folder):
        raise OutputError(
            f"{folder} has files in it that are not from nearmt {command}: choose a new folder or an empty one"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        marker.touch()
    except OSError as error:
        raise OutputError(f"{folder} cannot be written to: {(error.strerror or str(error)).lower()}") from error


@contextmanager
def writing(path: Path, *, overwrite: bool) -> Iterator[BinaryIO]:
    """Write a file that appears, synced to disk, when the block ends; after an error nothing has changed.

    The file keeps the permissions of the one it replaces, and a symbolic link stays a link. A pipe or a device is
    written to directly.
    """
    if is_stream(path):
        with path.open("ab") as stream:  # standard output may be a file with content
            yield stream
        return
    target = path.resolve() if path.is_symlink() else path
    beside = target.with_name(f".{target.name[:_NAME_CHARS]}.{secrets.token_hex(4)}{UNFINISHED}")
    try:
        with beside.open("xb") as out:
            if overwrite and target.exists():
                beside.chmod(target.stat().st_mode & 0o777)
            yield out
            out.flush()
            os.fsync(out.fileno())
        if overwrite:
            beside.replace(target)
        else:
            _rename_if_new(beside, target)
    finally:
        beside.unlink(missing_ok=True)


@contextmanager
def writing_text(path: Path, *, overwrite: bool) -> Iterator[TextIO]:
    """Like `writing`, for UTF-8 text; line ends are not changed."""
    with writing(path, overwrite=overwrite) as out:
        text = io.TextIOWrapper(out, encoding="utf-8", newline="")
        try:
            yield text
        finally:
            text.detach()


def _rename_if_new(beside: Path, target: Path) -> None:
    """Rename a new file to its final name, unless another file has appeared there."""
    try:
        os.link(beside, target)
    except FileExistsError:
        raise _exists(target) from None
    except OSError:  # a file system without hard links
        if target.exists():
            raise _exists(target) from None
        beside.replace(target)


def _exists(path: Path) -> OutputExistsError:
    return OutputExistsError(f"{path} exists")


def _check_folder(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"{folder} is a file, not a folder")


def _has_files(folder: Path) -> bool:
    return any(not path.is_dir() for path in folder.rglob("*"))
