"""`nearmt evaluate`: methods compared on a test set."""

from dataclasses import dataclass
from pathlib import Path
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
from nearmt.outputs import check_output_folder, writing_text

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
        Path | None, output_option("--outputs", help="New or empty folder for the translations of each method.")
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
    from nearmt.evaluation.evaluate import evaluate as run_evaluation
    from nearmt.training.devset import load_pairs
    from nearmt.translator import Translator

    run.set_threads()
    if output.outputs is not None:
        check_output_folder(output.outputs, overwrite=output.overwrite)
    translator = Translator(store, model=model.request(), method="base", decoding=decoding.settings())
    loaded = load_pairs(test, translator.snapshot.manifest.languages, reading.format)
    if loaded.dropped:
        say(f"Left out of the test set: {counts_text(loaded.dropped)}.")
    pairs = loaded.pairs[: reading.limit]
    with reporting(run.quiet) as progress:
        result = run_evaluation(translator, pairs, names_of(methods) if methods else None, progress)
    if run.as_json:
        print_json(result.as_dict())
    else:
        _print_evaluation(result, run.quiet)
    if output.outputs is not None:
        _write_outputs(result, output.outputs, output.overwrite)


def _write_outputs(result: "Evaluation", folder: Path, overwrite: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in result.outputs.items():
        with writing_text(folder / f"{name}.txt", overwrite=overwrite) as out:
            out.writelines(f"{line}\n" for line in lines)


def _print_evaluation(result: "Evaluation", quiet: bool) -> None:
    comparison = result.comparison
    print_table(
        number_of(comparison.num_sentences, "sentence"),
        ["method", "BLEU", "chrF", "p vs base", "p vs vanilla", "not the model's choice", "settings"],
        [_row(result, name) for name in comparison.scores],
    )
    print(f"BLEU {comparison.bleu_signature}\nchrF {comparison.chrf_signature}")
    print(" ".join(f"{key}={value}" for key, value in result.signature.items()))
    if result.num_skipped:
        say(f"Left out because they are too long for the model: {number_of(result.num_skipped, 'pair')}.", quiet)
    leaked = result.leakage
    if leaked.same_source:
        say(
            f"Warning: {leaked.same_pair} of the test pairs are in the store, and {leaked.same_source} "
            "of their sources are: the scores are higher than they would be on new text."
        )


def _row(result: "Evaluation", name: str) -> list[str]:
    score = result.comparison.scores[name]
    tests = [
        f"{score.p_values[baseline]:.3f}" if baseline in score.p_values else "–" for baseline in ("base", "vanilla")
    ]
    settings = ", ".join(f"{key} {value:.4g}" for key, value in result.settings[name].items() if key in _SHOWN_SETTINGS)
    return [name, f"{score.bleu:.2f}", f"{score.chrf:.2f}", *tests, f"{result.changed_shares[name]:.1%}", settings]
