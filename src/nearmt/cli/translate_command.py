"""`nearmt translate`: text line by line, or documents."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from nearmt.cli.documents import document_job, fill_document
from nearmt.cli.options import (
    DecodingOptions,
    MethodOptions,
    ModelOptions,
    Overwrite,
    RetrievalOptions,
    RunOptions,
    StorePath,
    decoding_option,
    output_option,
)
from nearmt.cli.output import reporting, warn_empty_filter
from nearmt.cli.reuse import ExactOption, ReuseCounter, exact_of
from nearmt.errors import SettingError
from nearmt.outputs import check_output, writing_text
from nearmt.progress import Progress

if TYPE_CHECKING:
    from nearmt.translator import Translation, Translator

_BATCHES_AT_ONCE = 32  # batches that are read, sorted by length and written together


@dataclass(frozen=True)
class _DecodingOptions(DecodingOptions):
    num_hypotheses: Annotated[
        int,
        decoding_option("--n-best", min=1, help="Translations for each sentence; more than one needs --json."),
    ] = 1


def translate(
    store: StorePath,
    text: Annotated[
        str,
        typer.Argument(
            metavar="TEXT",
            help="File with one sentence per line, or - for standard input; or an XLIFF, PO or TMX file.",
        ),
    ] = "-",
    *,
    model: ModelOptions,
    retrieval: RetrievalOptions,
    exact: ExactOption = "translate",
    method: MethodOptions,
    decoding: _DecodingOptions,
    out: Annotated[
        Path | None,
        output_option(
            "--out", "-o", help="File to write, or - for standard output. Default: standard output.", show_default=False
        ),
    ] = None,
    overwrite: Overwrite = False,
    run: RunOptions,
) -> None:
    """Translate text line by line, or fill the untranslated units of an XLIFF, PO or TMX file."""
    from nearmt.corpus import read_lines
    from nearmt.translator import Translator

    run.set_threads()
    reuse = exact_of(exact)
    document = document_job(text, out, decoding.num_hypotheses, overwrite)
    out = None if str(out) == "-" else out
    if out is not None:
        check_output(out, overwrite=overwrite)
    if decoding.num_hypotheses > 1 and not run.as_json:
        raise SettingError("--n-best gives several translations for each sentence, so it needs --json")
    settings = decoding.settings(decoding.num_hypotheses)
    lines = iter(()) if document else read_lines(text)
    translator = Translator(
        [store, *(retrieval.also or [])],
        model=model.request(),
        method=method.request(),
        filter=retrieval.filter(),
        decoding=settings,
        exact=reuse,
    )
    warn_empty_filter(translator)
    counter = ReuseCounter()
    if document is not None:
        fill_document(translator, document, run, counter)
    else:
        is_quiet = run.quiet or (out is None and sys.stdout.isatty())
        with _output(out, overwrite) as written, reporting(is_quiet) as progress:
            for results in _translate_chunks(translator, lines, progress):
                written.writelines(f"{_line(result, run.as_json)}\n" for result in results)
                written.flush()
                counter.add(results)
    counter.report(run.quiet or reuse != "reuse")


@contextmanager
def _output(path: Path | None, overwrite: bool) -> Iterator[TextIO]:
    """Give standard output, or a file that appears when everything is written."""
    if path is None:
        yield sys.stdout
        return
    with writing_text(path, overwrite=overwrite) as out:
        yield out


def _translate_chunks(
    translator: "Translator", lines: Iterator[str], progress: Progress
) -> "Iterator[list[Translation]]":
    done = 0
    while chunk := list(islice(lines, translator.decoding.batch_size * _BATCHES_AT_ONCE)):
        yield translator.translate(chunk, on_done=_counter(progress, done))
        done += len(chunk)


def _counter(progress: Progress, before: int) -> Callable[[int], None]:
    return lambda done: progress("translating", before + done, None)


def _line(result: "Translation", as_json: bool) -> str:
    if not as_json:
        return result.text
    content: dict[str, Any] = {"source": result.source, "text": result.text, "score": result.score}
    if result.match is not None:
        content["match"] = {name: getattr(result.match, name) for name in ("percent", "source", "origin")}
    if result.alternatives:
        content["alternatives"] = [{"text": text, "score": score} for text, score in result.alternatives]
    return json.dumps(content, ensure_ascii=False)
