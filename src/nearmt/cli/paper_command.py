"""`nearmt paper`: the experiments of the paper."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nearmt.cli.options import RunOptions, input_option, output_option
from nearmt.cli.output import duration, print_table, reporting, say

if TYPE_CHECKING:
    from nearmt.experiments.paper.plan import Plan


def paper(
    config: Annotated[
        str,
        typer.Argument(
            metavar="CONFIG", help="TOML file, or a built-in configuration: demo-fr-en, opus-fr-en, paper-de-en."
        ),
    ],
    *,
    data: Annotated[
        Path | None,
        input_option(
            "--data",
            help="Folder that the paths in the configuration are relative to. For paper-de-en: the unpacked "
            "multi-domain data.",
        ),
    ] = None,
    out: Annotated[
        Path,
        output_option(
            "--out", "-o", help="Folder for stores, results and reports: a new one, or that of an earlier run."
        ),
    ] = Path("paper-output"),
    show: Annotated[bool, output_option("--show", help="Print the configuration and exit.")] = False,
    run: RunOptions,
) -> None:
    """Run the experiments of the paper on any model and data. An interrupted run continues where it stopped."""
    from nearmt.experiments.paper.config import find_config, load_config

    if show:
        print(find_config(config).read_text(encoding="utf-8"), end="")
        return
    loaded = load_config(config, data)
    from nearmt.experiments.paper import run_paper

    run.set_threads()
    with reporting(run.quiet) as progress:
        sections = run_paper(loaded, out, progress=progress, on_plan=lambda plan: _say_plan(plan, run.quiet))
    if run.as_json:
        print((out / "results.json").read_text(encoding="utf-8"))
        return
    for section in sections:
        for heading, table in section.tables:
            print_table(f"{section.title}{': ' if heading else ''}{heading}", table.headings, table.rows)
            print()
    print(
        f"The report is {out / 'report.html'}, with {out / 'report.md'}, {out / 'results.json'} and {out / 'figures'}."
    )


def _say_plan(plan: "Plan", quiet: bool) -> None:
    """Say what the run will take."""
    for domain in plan.domains:
        say(
            f"{domain.name}: {domain.pairs:,} pairs, about {domain.entries:,} entries"
            + (" (built)" if domain.is_built else f", {_gigabytes(domain.store_bytes)}")
            + f"; {domain.dev_sentences:,} dev and {domain.test_sentences:,} test sentences",
            quiet,
        )
    steps = {"building": "to build the stores", "choosing": "to choose settings", "translating": "to translate"}
    times = ", ".join(f"{duration(plan.seconds[name])} {text}" for name, text in steps.items())
    available = f" of {_gigabytes(plan.machine_memory)}" if plan.machine_memory is not None else ""
    say(
        f"This takes about {_gigabytes(plan.disk)} of disk ({_gigabytes(plan.free_disk)} are free), "
        f"{_gigabytes(plan.memory)}{available} of memory and {duration(sum(plan.seconds.values()))}: {times}.",
        quiet,
    )
    if plan.machine_memory is not None and plan.memory > plan.machine_memory:
        say("Warning: this is more memory than the machine has. Set memory_pairs to use a part of each memory.", quiet)


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:.1f} GB"
