"""The part of `nearmt translate` that fills XLIFF, PO and TMX files."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nearmt.cli.options import RunOptions
from nearmt.cli.output import counts_text, number_of, print_json, reporting, say
from nearmt.cli.reuse import ReuseCounter

if TYPE_CHECKING:
    from nearmt.documents import Summary
    from nearmt.translator import Translator


@dataclass(frozen=True)
class DocumentJob:
    """A file to fill, and where to write it."""

    path: Path
    out: Path
    overwrite: bool


def document_job(text: str, out: Path | None, num_hypotheses: int, overwrite: bool) -> DocumentJob | None:
    """Return the job if the file name is that of a document, None if it is plain text.

    Raises an error before a model is loaded if the document cannot be translated.
    """
    from nearmt.corpus import check_readable
    from nearmt.corpus.extensions import PO_TEMPLATE
    from nearmt.documents import document_format
    from nearmt.errors import DocumentError, SettingError

    path = Path(text)
    if path.suffix.lower() == PO_TEMPLATE:
        raise DocumentError(f"{path} is a PO template: make a PO file from it with msginit, then translate that.")
    if document_format(path) is None:
        return None
    if out is None or str(out) == "-":
        raise SettingError(f"{path} needs an output file: -o OUT{path.suffix}")
    if num_hypotheses > 1:
        raise SettingError("--n-best is for plain text: a document has one translation for each unit")
    check_readable(path)
    return DocumentJob(path, out, overwrite)


def fill_document(translator: "Translator", job: DocumentJob, run: RunOptions, counter: ReuseCounter) -> None:
    """Translate a document and say what was done with its units."""
    from nearmt.corpus.languages import LanguagePair
    from nearmt.documents import translate_document
    from nearmt.translator import Translation

    stored = translator.snapshot.manifest.languages

    def translate(texts: list[str]) -> list[str]:
        results = translator.translate(texts)
        counter.add(results)
        return [result.text for result in results]

    def reuse(text: str) -> str | None:
        match = translator.exact_match(text) if translator.exact == "reuse" else None
        if match is None:
            return None
        counter.add([Translation(text, match.target, 0.0, (), match=match)])
        return match.target

    with reporting(run.quiet) as progress:
        summary = translate_document(
            job.path,
            job.out,
            translate,
            LanguagePair(stored.source, stored.target),
            overwrite=job.overwrite,
            reuse=reuse,
            progress=progress,
        )
    if run.as_json:
        print_json(asdict(summary))
    else:
        say(_sentence(summary), run.quiet)


def _sentence(summary: "Summary") -> str:
    left = counts_text(summary.left)
    parts = [f"{number_of(summary.filled, 'unit')} filled", f"left alone: {left}" if left else "none left alone"]
    if summary.piecewise:
        parts.append(f"{summary.piecewise} translated around their tags or placeholders")
    if summary.untranslated:
        parts.append(f"{summary.untranslated} with a sentence left in the source language to keep its tags")
    return "; ".join(parts) + "."
