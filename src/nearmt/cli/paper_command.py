"""`nearmt paper`: the experiments of the paper."""

from pathlib import Path
from typing import Annotated

import typer

from nearmt.cli.options import RunOptions, output_option
from nearmt.cli.output import print_table, reporting


def paper(
    config: Annotated[
        str,
        typer.Argument(metavar="CONFIG", help="TOML file, or a built-in configuration: demo-fr-en, paper-de-en."),
    ],
    *,
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
    loaded = load_config(config)
    from nearmt.experiments.paper import run_paper

    run.set_threads()
    with reporting(run.quiet) as progress:
        sections = run_paper(loaded, out, progress=progress)
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
