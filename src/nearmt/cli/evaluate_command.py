"""`nearmt evaluate`: methods compared on a test set."""

from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from nearmt.cli.options import (
    DecodingOptions,
    Format,
    ModelOptions,
    Overwrite,
    RunOptions,
    StorePath,
    input_option,
    method_option,
    output_option,
)
from nearmt.cli.output import counts_text, number_of, print_json, print_table, reporting, say
from nearmt.cli.values import names_of
from nearmt.errors import SettingError
from nearmt.outputs import check_output_folder

if TYPE_CHECKING:
    from nearmt.evaluation.evaluate import Evaluation

_SHOWN_SETTINGS = ("k", "max_k", "temperature", "knn_share", "asked_share")


@dataclass(frozen=True)
class _InputOptions:
    format: Format = None
    limit: Annotated[int | None, input_option("--limit", min=1, help="Use only the first N pairs.")] = None


@dataclass(frozen=True)
class _OutputOptions:
    outputs: Annotated[
        Path | None,
        output_option(
            "--outputs", help="New or empty folder for sources, references and the translations of each method."
        ),
    ] = None
    comet: Annotated[
        Path | None,
        output_option(
            "--comet",
            help="JSON file of comet-score, to show its scores beside the others. --outputs is the folder of an "
            "earlier run; nothing is translated again.",
        ),
    ] = None
    overwrite: Overwrite = False


def evaluate(
    store: StorePath,
    test: Annotated[
        list[Path],
        typer.Argument(metavar="TEST", help="Files with test pairs, or two files with source and reference lines."),
    ],
    *,
    reading: _InputOptions,
    model: ModelOptions,
    methods: Annotated[
        str | None,
        method_option(
            "--methods",
            help="Methods to compare, comma-separated. Default: the baselines and all trained networks.",
            show_default=False,
        ),
    ] = None,
    decoding: DecodingOptions,
    output: _OutputOptions,
    run: RunOptions,
) -> None:
    """Compare the model alone, the tuned baselines and the trained networks on a test set."""
    from nearmt.datastore import open_finished
    from nearmt.evaluation.evaluate import evaluate as run_evaluation
    from nearmt.evaluation.saved import read_evaluation, write_evaluation
    from nearmt.training.devset import load_pairs
    from nearmt.translator import Translator

    run.set_threads()
    if output.comet is not None and output.outputs is None:
        raise SettingError("--comet needs --outputs, the folder of the run whose translations were scored")
    if output.outputs is not None and output.comet is None:
        check_output_folder(output.outputs, overwrite=output.overwrite)
    manifest = open_finished(store).manifest
    loaded = load_pairs(test, manifest.languages, reading.format)
    if loaded.dropped:
        say(f"Left out of the test set: {counts_text(loaded.dropped)}.")
    pairs = loaded.pairs[: reading.limit]
    names = names_of(methods) if methods else None
    if output.outputs is not None and output.comet is not None:
        result = read_evaluation(output.outputs, manifest, pairs)
        if names is not None and set(names) != set(result.outputs):
            raise SettingError(f"{output.outputs} has the outputs of {', '.join(result.outputs)}: leave out --methods")
        result = result.with_comet(output.comet)
    else:
        translator = Translator(store, model=model.request(), method="base", decoding=decoding.settings())
        manifest = translator.snapshot.manifest
        with reporting(run.quiet) as progress:
            result = run_evaluation(translator, pairs, names, progress)
    if run.as_json:
        print_json(result.as_dict())
    else:
        _print_evaluation(result, run.quiet)
    if output.outputs is not None and output.comet is None:
        write_evaluation(output.outputs, result, manifest, pairs, overwrite=output.overwrite)
        say(f"To score them with COMET: {_comet_command(result, output.outputs)}", run.quiet)


def _comet_command(result: "Evaluation", folder: Path) -> str:
    """Return what to run where COMET is installed, in the notation of a shell."""
    systems = " ".join(quote(str(folder / f"{name}.txt")) for name in result.outputs)
    source, reference, scores = (quote(str(folder / name)) for name in ("source.txt", "reference.txt", "comet.json"))
    return f"comet-score -s {source} -r {reference} -t {systems} --to_json {scores}"


def _print_evaluation(result: "Evaluation", quiet: bool) -> None:
    comparison = result.comparison
    has_comet = any(score.comet is not None for score in comparison.scores.values())
    metrics = ["BLEU", "chrF", "TER", *(["COMET"] if has_comet else [])]
    print_table(
        number_of(comparison.num_sentences, "sentence"),
        ["method", *metrics, "p vs base", "p vs vanilla", "not the model's choice", "settings"],
        [_row(result, name, has_comet) for name in comparison.scores],
    )
    print(f"BLEU {comparison.bleu_signature}\nchrF {comparison.chrf_signature}\nTER {comparison.ter_signature}")
    print(" ".join(f"{key}={value}" for key, value in result.signature.items()))
    print()
    _print_matches(result)
    if result.num_skipped:
        say(f"Left out because they are too long for the model: {number_of(result.num_skipped, 'pair')}.", quiet)
    leaked = result.leakage
    if leaked.same_source:
        say(
            f"Warning: {leaked.same_pair} of the test pairs are in the store, and {leaked.same_source} "
            "of their sources are: the scores are higher than they would be on new text."
        )


def _row(result: "Evaluation", name: str, has_comet: bool) -> list[str]:
    score = result.comparison.scores[name]
    comet = [f"{score.comet:.4f}" if score.comet is not None else "–"] if has_comet else []
    tests = [
        f"{score.p_values[baseline]:.3f}" if baseline in score.p_values else "–" for baseline in ("base", "vanilla")
    ]
    settings = ", ".join(f"{key} {value:.4g}" for key, value in result.settings[name].items() if key in _SHOWN_SETTINGS)
    metrics = [f"{score.bleu:.2f}", f"{score.chrf:.2f}", f"{score.ter:.2f}", *comet]
    return [name, *metrics, *tests, f"{result.changed_shares[name]:.1%}", settings]


def _print_matches(result: "Evaluation") -> None:
    """Print BLEU and its gain over the model alone, by the best match of a source in the memory."""
    print("BLEU by best match in the memory")
    print_table(
        "",
        ["best match", "sentences", *result.outputs],
        [
            [
                band.label + (" *" if band.is_small else ""),
                str(band.sentences),
                *(_with_gain(score, band.gains().get(name)) for name, score in band.bleu.items()),
            ]
            for band in result.matches
        ],
    )
    if any(band.is_small for band in result.matches):
        print("* too few sentences for a reliable score")


def _with_gain(score: float, gain: float | None) -> str:
    return f"{score:.2f}" if gain is None else f"{score:.2f} ({gain:+.2f})"
