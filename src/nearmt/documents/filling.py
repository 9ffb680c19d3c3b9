"""Translates a file: reads it, fills its untranslated units, and writes the result."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nearmt.corpus.extensions import document_format
from nearmt.corpus.languages import LanguagePair
from nearmt.corpus.streams import check_readable
from nearmt.documents.elements import check_document
from nearmt.documents.encoding import Encoded, decode
from nearmt.documents.po import read_po
from nearmt.documents.tmx import read_tmx
from nearmt.documents.units import Document, Gap
from nearmt.documents.xliff import read_xliff
from nearmt.errors import DocumentError, MarkupError
from nearmt.markup import Marked, Reuse, Rules, translate_with_ways
from nearmt.outputs import check_output, writing
from nearmt.progress import Progress, silent

Translate = Callable[[list[str]], list[str]]

_READERS = {"xliff": read_xliff, "po": read_po, "tmx": read_tmx}
_UNITS_AT_ONCE = 256


@dataclass(frozen=True, slots=True)
class Summary:
    """The number of units filled and left alone."""

    filled: int
    left: dict[str, int] = field(default_factory=dict)  # reason → number of units
    piecewise: int = 0  # of the filled ones: translated in fragments, around a tag or placeholder
    untranslated: int = 0  # of the filled ones: with a sentence left in the source language to keep its tags


def translate_document(
    path: Path,
    out: Path,
    translate: Translate,
    languages: LanguagePair,
    *,
    overwrite: bool = False,
    reuse: Reuse = lambda text: None,
    progress: Progress = silent,
) -> Summary:
    """Fill the untranslated units of an XLIFF, PO or TMX file; `out` appears only once it is complete.

    An existing file, `path` included, is replaced only with `overwrite`. `languages` are those of the translator;
    a file in other languages is refused. `reuse` may know the translation of a unit of several sentences.
    """
    check_output(out, overwrite=overwrite)
    document, encoded, is_xml = _read(path, languages)
    try:
        results = _translated(document, translate, languages.source or "en", reuse, progress)
    except MarkupError as error:
        raise DocumentError(f"{path}: {error}") from error
    texts = [[marked.text for marked in unit] for unit in results]
    data = encoded.encode(document.filled(texts), is_xml=is_xml, name=str(path))
    if is_xml:
        check_document(data, str(out))
    try:
        with writing(out, overwrite=overwrite) as stream:
            stream.write(data)
    except OSError as error:
        raise DocumentError(f"{out} cannot be written: {error.strerror or error}.") from error
    ways = [{marked.way for marked in unit} for unit in results]
    return Summary(
        len(results), document.left, sum("pieces" in unit for unit in ways), sum("source" in unit for unit in ways)
    )


def _read(path: Path, languages: LanguagePair) -> tuple[Document, Encoded, bool]:
    name = str(path)
    check_readable(path)
    kind = document_format(path)
    if kind is None:
        raise DocumentError(f"{name}: the file name does not end like that of an XLIFF, PO or TMX file.")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DocumentError(f"{name} cannot be read: {error.strerror or error}.") from error
    encoded = decode(data, is_xml=kind != "po", name=name)
    if kind != "po":
        check_document(data, name)
    return _READERS[kind](encoded.text, name, languages), encoded, kind != "po"


def _translated(
    document: Document, translate: Translate, language: str, reuse: Reuse, progress: Progress
) -> list[list[Marked]]:
    results: list[list[Marked]] = []
    total = len(document.units)
    for start in range(0, total, _UNITS_AT_ONCE):
        units = document.units[start : start + _UNITS_AT_ONCE]
        gaps = [gap for unit in units for gap in unit.gaps]
        done = iter(_fill(gaps, translate, language, reuse))
        results += [[next(done) for _ in unit.gaps] for unit in units]
        progress("translating", len(results), total)
    return results


def _fill(gaps: Sequence[Gap], translate: Translate, language: str, reuse: Reuse) -> list[Marked]:
    if not gaps:
        return []
    rules: Rules = gaps[0].rules  # one file, one format
    return translate_with_ways([gap.source for gap in gaps], translate, rules, language=language, reuse=reuse)
