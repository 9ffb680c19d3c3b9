"""The paper's experiments from the command line."""

from pathlib import Path
from typing import Annotated

import typer

from nearmt.cli.options import AsJson, Quiet, Threads, set_threads
from nearmt.cli.output import print_table, reporting


def register(app: typer.Typer) -> None:
    """Add the command of this file."""
    app.command("paper", epilog="Example: nearmt paper demo-de-en --out paper-output")(paper)


def paper(
    config: Annotated[
        str,
        typer.Argument(metavar="CONFIG", help="A TOML file, or a ready configuration: demo-de-en, paper-de-en."),
    ],
    out: Annotated[
        Path,
        typer.Option("--out", "-o", help="Folder for stores, results and reports: a new one, or an earlier run's."),
    ] = Path("paper-output"),
    show: Annotated[bool, typer.Option("--show", help="Print the configuration and leave.")] = False,
    threads: Threads = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Run the paper's experiments on any model and data. A run that was cut off goes on where it stopped."""
    from nearmt.experiments.paper.config import find_config, load_config

    if show:
        print(find_config(config).read_text(encoding="utf-8"), end="")
        return
    loaded = load_config(config)
    from nearmt.experiments.paper import run_paper

    set_threads(threads)
    with reporting(quiet) as progress:
        sections = run_paper(loaded, out, progress=progress)
    if as_json:
        print((out / "results.json").read_text(encoding="utf-8"))
        return
    for section in sections:
        for heading, table in section.tables:
            print_table(f"{section.title}{': ' if heading else ''}{heading}", table.headings, table.rows)
            print()
    print(
        f"The report is {out / 'report.html'}, with {out / 'report.md'}, {out / 'results.json'} and {out / 'figures'}."
    )
