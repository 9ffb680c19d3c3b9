"""Commands that translate, compare and explain."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from nearmt.cli.document_command import document_job, fill_document
from nearmt.cli.options import (
    Also,
    AsJson,
    BatchSize,
    Beam,
    EarlyStopping,
    EngineOption,
    Exclude,
    Force,
    Format,
    K,
    LengthPenalty,
    MethodName,
    ModelOption,
    Offline,
    Only,
    Quiet,
    Share,
    Since,
    StorePath,
    Temperature,
    Threads,
    Until,
    decoding_settings,
    names_of,
    set_threads,
)
from nearmt.cli.output import print_json, print_table, reporting, say
from nearmt.outputs import check_output, check_output_folder, writing_text
from nearmt.progress import Progress

if TYPE_CHECKING:
    from nearmt.evaluation.evaluate import Evaluation
    from nearmt.translator import Translation, Translator

_LINES_AT_ONCE = 32  # batches that are read, sorted by length and written together


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command("translate", epilog="Example: nearmt translate client.store < in.de > out.en")(translate)
    app.command("evaluate", epilog="Example: nearmt evaluate client.store test.tsv")(evaluate)


@contextmanager
def _output(path: Path | None, overwrite: bool) -> Iterator[TextIO]:
    """Standard output, or a file that appears whole when all is written."""
    if path is None:
        yield sys.stdout
        sys.stdout.flush()
        return
    with writing_text(path, overwrite=overwrite) as out:
        yield out


def translate(
    store: StorePath,
    text: Annotated[
        str,
        typer.Argument(
            metavar="[TEXT]", help="File with a sentence a line, - for standard input; or an XLIFF, PO or TMX file."
        ),
    ] = "-",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="A new file to write to, - for standard output, the default.")
    ] = None,
    model: ModelOption = None,
    offline: Offline = False,
    engine: EngineOption = None,
    method: MethodName = "auto",
    k: K = None,
    temperature: Temperature = None,
    share: Share = None,
    also: Also = None,
    only: Only = None,
    exclude: Exclude = None,
    since: Since = None,
    until: Until = None,
    beam: Beam = 4,
    n_best: Annotated[
        int, typer.Option("--n-best", min=1, help="Hypotheses a sentence; more than one needs --json.")
    ] = 1,
    length_penalty: LengthPenalty = 0.6,
    early_stopping: EarlyStopping = "false",
    batch_size: BatchSize = 32,
    threads: Threads = None,
    force: Force = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Translate lines, as many out as in and in order; or fill what is untranslated in an XLIFF, PO or TMX file."""
    from nearmt.corpus import read_lines
    from nearmt.datastore import Filter
    from nearmt.errors import SettingError
    from nearmt.translator import Translator

    set_threads(threads)
    document = document_job(text, out, n_best, force)
    out = None if str(out) == "-" else out
    if out is not None:
        check_output(out, overwrite=force)
    if n_best > 1 and not as_json:
        raise SettingError("--n-best gives several lines a sentence, so it needs --json")
    settings = decoding_settings(beam, length_penalty, early_stopping, batch_size, n_best)
    lines = iter(()) if document else read_lines(text)
    translator = Translator(
        [store, *(also or [])],
        model=model,
        method=method,
        k=k,
        temperature=temperature,
        knn_share=share,
        filter=Filter(tuple(only or ()), tuple(exclude or ()), since, until),
        decoding=settings,
        offline=offline,
        engine=engine,
    )
    if document is not None:
        fill_document(translator, document, as_json, quiet)
        return
    try:
        _translate_all(translator, lines, out, force, batch_size, as_json, quiet)
    except BrokenPipeError:
        # Whoever read our output has gone; what is left in the buffer must not raise again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _translate_all(
    translator: "Translator",
    lines: Iterator[str],
    out: Path | None,
    overwrite: bool,
    batch_size: int,
    as_json: bool,
    quiet: bool,
) -> None:
    done = 0
    with _output(out, overwrite) as written, reporting(quiet or (out is None and sys.stdout.isatty())) as progress:
        while chunk := list(islice(lines, batch_size * _LINES_AT_ONCE)):
            for result in translator.translate(chunk, on_done=_counter(progress, done)):
                written.write(_line(result, as_json) + "\n")
            written.flush()
            done += len(chunk)


def _counter(progress: Progress, before: int) -> Callable[[int], None]:
    return lambda done: progress("translating", before + done, None)


def _line(result: "Translation", as_json: bool) -> str:
    if not as_json:
        return result.text
    content: dict[str, Any] = {"source": result.source, "text": result.text, "score": result.score}
    if result.alternatives:
        content["alternatives"] = [{"text": text, "score": score} for text, score in result.alternatives]
    return json.dumps(content, ensure_ascii=False)


def evaluate(
    store: StorePath,
    test: Annotated[
        list[Path], typer.Argument(metavar="TEST…", help="Pairs to compare with: files, or source and reference lines.")
    ],
    methods: Annotated[
        str | None,
        typer.Option(
            "--methods", help="Which to compare, with commas between; else the baselines and what is trained."
        ),
    ] = None,
    model: ModelOption = None,
    offline: Offline = False,
    engine: EngineOption = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Only the first so many pairs.")] = None,
    outputs: Annotated[
        Path | None, typer.Option("--outputs", help="A new or empty folder to write each method's output to.")
    ] = None,
    beam: Beam = 4,
    length_penalty: LengthPenalty = 0.6,
    early_stopping: EarlyStopping = "false",
    batch_size: BatchSize = 32,
    format: Format = None,
    threads: Threads = None,
    force: Force = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Compare base, tuned vanilla, uniform and the networks that were trained on a test set."""
    from nearmt.evaluation.evaluate import evaluate as run
    from nearmt.training.devset import load_pairs
    from nearmt.translator import Translator

    set_threads(threads)
    if outputs is not None:
        check_output_folder(outputs, overwrite=force)
    settings = decoding_settings(beam, length_penalty, early_stopping, batch_size)
    translator = Translator(store, model=model, method="base", decoding=settings, offline=offline, engine=engine)
    loaded = load_pairs(test, translator.snapshot.manifest.languages, format)
    if loaded.dropped:
        say(f"Left out of the test set: {', '.join(f'{n} {why}' for why, n in loaded.dropped.items())}.")
    with reporting(quiet) as progress:
        result = run(translator, loaded.pairs[:limit], names_of(methods) if methods else None, progress)
    if as_json:
        print_json(result.as_dict())
    else:
        _print_evaluation(result, quiet)
    if outputs is not None:
        outputs.mkdir(parents=True, exist_ok=True)
        for name, lines in result.outputs.items():
            with writing_text(outputs / f"{name}.txt", overwrite=force) as out:
                out.writelines(f"{line}\n" for line in lines)


def _print_evaluation(result: "Evaluation", quiet: bool) -> None:
    comparison = result.comparison
    rows = []
    for name, score in comparison.scores.items():
        tests = [
            f"{score.p_values[baseline]:.3f}" if baseline in score.p_values else "–" for baseline in ("base", "vanilla")
        ]
        numbers = ", ".join(f"{key} {value:.4g}" for key, value in result.settings[name].items() if key in
                            ("k", "max_k", "temperature", "knn_share", "asked_share"))  # fmt: skip
        rows.append(
            [name, f"{score.bleu:.2f}", f"{score.chrf:.2f}", *tests, f"{result.changed_shares[name]:.1%}", numbers]
        )
    print_table(
        f"{comparison.num_sentences} sentences",
        ["method", "BLEU", "chrF", "p vs base", "p vs vanilla", "not the model's choice", "settings"],
        rows,
    )
    print(f"BLEU {comparison.bleu_signature}\nchrF {comparison.chrf_signature}")
    print(" ".join(f"{key}={value}" for key, value in result.signature.items()))
    if result.num_skipped:
        say(f"{result.num_skipped} pairs are longer than the model takes and were left out.", quiet)
    leaked = result.leakage
    if leaked.same_source:
        say(
            f"Warning: {leaked.same_pair} of the test pairs stand in the store, and {leaked.same_source} "
            "of their sources do: these scores are higher than new text would give."
        )
