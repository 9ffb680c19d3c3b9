"""Opens files, standard input and gzip data, and turns every failure into a `CorpusError`.

The readers open files only through this module. It holds at most one line or one chunk in memory.
"""

import codecs
import gzip
import io
import os
import sys
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from nearmt.errors import CorpusError

ByteStream = io.BufferedReader | gzip.GzipFile

STDIN = "-"
MAX_LINE_BYTES = 16 * 1024 * 1024  # no sentence is longer; a file without line ends must not fill the memory
CHUNK_BYTES = 64 * 1024
_GZIP_MAGIC = b"\x1f\x8b"
_FOREIGN_MARKS = (  # UTF-32 first: its little-endian mark starts with that of UTF-16
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)


def display_name(path: str | Path) -> str:
    """The name of the file in error messages."""
    return "standard input" if str(path) == STDIN else str(path)


def origin_name(path: str | Path) -> str:
    """The origin of pairs whose format states none."""
    return "stdin" if str(path) == STDIN else Path(path).name.removesuffix(".gz")


def check_readable(path: str | Path) -> None:
    """Raise now if the file cannot be opened, rather than hours later in a long list of files."""
    if str(path) == STDIN:
        return
    if Path(path).is_dir():
        raise CorpusError(f"{path} is a directory, not a file.")
    if not Path(path).exists():
        raise CorpusError(f"{path} does not exist.")
    if not os.access(path, os.R_OK):
        raise CorpusError(f"{path} cannot be read: permission denied.")


@contextmanager
def open_bytes(path: str | Path) -> Iterator[ByteStream]:
    """The file's bytes, decompressed if they are gzip; read errors inside the block become `CorpusError`."""
    name = display_name(path)
    check_readable(path)
    with ExitStack() as stack:
        try:
            yield _unpacked(_opened(path, stack), path, stack)
        except EOFError as error:
            raise CorpusError(f"{name} is truncated: its gzip data ends too early.") from error
        except (gzip.BadGzipFile, zlib.error) as error:
            raise CorpusError(f"{name} has damaged gzip data: {error}.") from error
        except OSError as error:
            raise CorpusError(f"{name} cannot be read: {error.strerror or error}.") from error


def _opened(path: str | Path, stack: ExitStack) -> io.BufferedReader:
    if str(path) != STDIN:
        return stack.enter_context(Path(path).open("rb"))
    stdin = sys.stdin.buffer
    return stdin if isinstance(stdin, io.BufferedReader) else io.BufferedReader(stdin)  # type: ignore[arg-type]


def _unpacked(raw: io.BufferedReader, path: str | Path, stack: ExitStack) -> ByteStream:
    # By content, not by name: many memories are compressed without .gz in their names.
    head = raw.peek(len(_GZIP_MAGIC))[: len(_GZIP_MAGIC)]
    if head == _GZIP_MAGIC:
        return stack.enter_context(gzip.GzipFile(fileobj=raw))
    if head and str(path).lower().endswith(".gz"):
        raise CorpusError(f"{path} is named .gz but is not gzip data.")
    return raw


def decoded_lines(stream: ByteStream, name: str) -> Iterator[str]:
    """Lines of UTF-8 text without line ends. Only "\\n" and "\\r\\n" end a line, so U+2028 cannot misalign a corpus."""
    number = 0
    while raw := stream.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(raw) > MAX_LINE_BYTES:
            limit = MAX_LINE_BYTES // 2**20
            raise CorpusError(f"{name}, line {number} is longer than {limit} MiB; is there one sentence per line?")
        if number == 1:
            refuse_foreign_encoding(raw, name)
            raw = raw.removeprefix(codecs.BOM_UTF8)
        raw = raw.removesuffix(b"\n").removesuffix(b"\r")
        try:
            line = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise CorpusError(
                f"{name}, line {number} is not UTF-8: byte 0x{raw[error.start]:02x} at position {error.start + 1}."
            ) from error
        if "\0" in line:
            raise CorpusError(f"{name}, line {number} has a zero byte: it is binary data or UTF-16, not UTF-8 text.")
        yield line


def refuse_foreign_encoding(head: bytes, name: str) -> None:
    """Raise if the data starts with the byte order mark of UTF-16 or UTF-32."""
    for mark, encoding in _FOREIGN_MARKS:
        if head.startswith(mark):
            raise CorpusError(
                f"{name} is {encoding}, not UTF-8; convert it first: iconv -f {encoding} -t UTF-8 OLD > NEW."
            )


def read_lines(path: str | Path) -> Iterator[str]:
    """The lines of a text to translate, unchanged; `-` is standard input. An empty file has no lines."""
    check_readable(path)
    return _read_lines(path)


def _read_lines(path: str | Path) -> Iterator[str]:
    with open_bytes(path) as stream:
        yield from decoded_lines(stream, display_name(path))


def count_lines(path: str | Path) -> int:
    """The number of lines that `read_lines` would yield; they are not decoded."""
    count, last = 0, b"\n"
    with open_bytes(path) as stream:
        while chunk := stream.read(CHUNK_BYTES):
            count += chunk.count(b"\n")
            last = chunk
    return count if last.endswith(b"\n") else count + 1
