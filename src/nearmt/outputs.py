"""Writing files: never over what is there unless that was asked for, and whole or not at all."""

import io
import os
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TextIO

from nearmt.errors import OutputError, OutputExistsError

UNFINISHED = ".new"  # how the name of a file ends that is being written
_SHOWN = 50  # characters of its own name that the name of an unfinished file begins with
_DESCRIPTOR = re.compile(r"/dev/(stdout|stderr|fd/\d+)|/proc/(self|thread-self|\d+)/fd/\d+")


def is_stream(path: Path) -> bool:
    """Whether what is written there goes on at once: to a pipe, a device, or wherever standard output goes."""
    if _DESCRIPTOR.fullmatch(os.path.abspath(path)):  # noqa: PTH100  # absolute() keeps the ".."
        return True
    return path.exists() and not path.is_file() and not path.is_dir()


def check_output(path: Path, *, overwrite: bool) -> None:
    """Refuse, before any work, a file that exists or that cannot be written there."""
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
    """Refuse, before any work, a folder for new files that has files already."""
    _check_folder(folder)
    if not overwrite and _has_files(folder):
        raise OutputExistsError(f"{folder} has files in it")


def claim_folder(folder: Path, command: str, known: Sequence[str]) -> None:
    """Take a folder for a command that goes on with what it left there, and for it alone.

    It is new, without files, or was the same command's before: a mark says so, or in folders of older versions one of
    the `known` names, which may be patterns.
    """
    _check_folder(folder)
    mark = folder / f".nearmt-{command}"
    if mark.exists():
        return
    if _has_files(folder) and not any(any(folder.glob(name)) for name in known):
        raise OutputError(
            f"{folder} has files in it that are not from nearmt {command}: choose a new folder or an empty one"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        mark.touch()
    except OSError as error:
        raise OutputError(f"{folder} cannot be written to: {(error.strerror or str(error)).lower()}") from error


@contextmanager
def writing(path: Path, *, overwrite: bool) -> Iterator[BinaryIO]:
    """A file that appears when all is written, and is on disk then; after an error nothing has changed.

    A file that is replaced hands on its permissions, and a link to it stays a link. What is not a file, such as a pipe,
    is written to at once.
    """
    if is_stream(path):
        with path.open("ab") as stream:  # where standard output is a file, what is there already stays
            yield stream
        return
    target = path.resolve() if path.is_symlink() else path
    beside = target.with_name(f".{target.name[:_SHOWN]}.{secrets.token_hex(4)}{UNFINISHED}")
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
            _put_in_place(beside, target)
    finally:
        beside.unlink(missing_ok=True)


@contextmanager
def writing_text(path: Path, *, overwrite: bool) -> Iterator[TextIO]:
    """The same for text in UTF-8, with line ends as they are given."""
    with writing(path, overwrite=overwrite) as out:
        text = io.TextIOWrapper(out, encoding="utf-8", newline="")
        try:
            yield text
        finally:
            text.detach()


def _put_in_place(beside: Path, target: Path) -> None:
    """Give a file its name, unless another has taken it in the meantime."""
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
