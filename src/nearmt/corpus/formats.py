"""Finds out which format a file is in and reads its sentence pairs.

To add a format, add it to `extensions` and its reader to `READERS`.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from nearmt.corpus.extensions import FORMATS, PO_TEMPLATE, extension_of, format_by_name
from nearmt.corpus.languages import LanguagePair
from nearmt.corpus.pairs import DropCounts, PairSieve, SentencePair
from nearmt.corpus.plain import read_aligned, read_jsonl, read_tsv
from nearmt.corpus.po import read_po
from nearmt.corpus.streams import STDIN, check_readable, read_lines
from nearmt.corpus.tmx import read_tmx
from nearmt.corpus.xliff import read_xliff
from nearmt.errors import CorpusError, SettingError

# Line-aligned text, which comes in two files, is read by `read_aligned`.
READERS: dict[str, Callable[[str | Path, LanguagePair, PairSieve], Iterator[SentencePair]]] = {
    "tmx": read_tmx,
    "xliff": read_xliff,
    "po": read_po,
    "tsv": read_tsv,
    "jsonl": read_jsonl,
}


def detect_format(path: str | Path) -> str:
    """The format by the file's name; a `.txt` file is TSV if its first line has a tab. Standard input is TSV."""
    found = _find_format(path)
    if found is None:
        raise CorpusError(
            f"{path}: the file name does not show its format; set `format` to one of {', '.join(FORMATS)}."
        )
    return found


def _find_format(path: str | Path) -> str | None:
    if str(path) == STDIN:
        return "tsv"
    extension = extension_of(path)
    if extension == PO_TEMPLATE:
        raise CorpusError(f"{path} is a PO template: it has no translations.")
    if extension == ".txt":
        return "tsv" if any("\t" in line for line in _first_line(path)) else "lines"
    return format_by_name(path)


def _first_line(path: str | Path) -> list[str]:
    for line in read_lines(path):
        if line.strip():
            return [line]
    return []


def read_pairs(
    paths: Sequence[str | Path],
    *,
    source_lang: str | None,
    target_lang: str | None,
    drops: DropCounts,
    format: str | None = None,
    keep_identical: bool = False,
) -> Iterator[SentencePair]:
    """The confirmed sentence pairs of all files, one file after the other.

    Memory use is constant, except for PO files. Dropped units are counted in `drops`. A missing file or an unknown
    format raises at once, an error inside a file when the reader reaches it.
    """
    if isinstance(paths, str | Path):  # to a type checker, a str is a Sequence[str] of its characters
        paths = [paths]
    if format is not None and format not in FORMATS:
        raise SettingError(f"`format` must be one of {', '.join(FORMATS)}, not {format!r}.")
    if not paths:
        raise CorpusError("No file to read was given.")
    if sum(str(path) == STDIN for path in paths) > 1:
        raise CorpusError("Standard input can be read only once.")
    for path in paths:
        check_readable(path)
    languages = LanguagePair(source_lang, target_lang)
    return _read_all(_plan(paths, format), languages, PairSieve(drops, keep_identical))


def _plan(paths: Sequence[str | Path], format: str | None) -> list[tuple[str, tuple[str | Path, ...]]]:
    """The files to read together, with their format: two line-aligned files, or any other file on its own."""
    found = [format or _find_format(path) for path in paths]
    if len(paths) == 2 and all(name in (None, "lines") for name in found):
        return [("lines", tuple(paths))]
    if "lines" in found:
        given = paths[found.index("lines")]
        raise CorpusError(f"{given}: line-aligned text needs exactly two files, source then target.")
    return [(name or detect_format(path), (path,)) for name, path in zip(found, paths, strict=True)]


def _read_all(
    plan: list[tuple[str, tuple[str | Path, ...]]], languages: LanguagePair, sieve: PairSieve
) -> Iterator[SentencePair]:
    for format, paths in plan:
        yield from _read_file(format, paths, languages, sieve)


def _read_file(
    format: str, paths: tuple[str | Path, ...], languages: LanguagePair, sieve: PairSieve
) -> Iterator[SentencePair]:
    if format == "lines":
        return read_aligned(paths[0], paths[1], sieve)
    return READERS[format](paths[0], languages, sieve)
