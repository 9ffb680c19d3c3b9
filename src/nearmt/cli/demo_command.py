"""The demo from the command line."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nearmt.cli.options import AsJson, Quiet, Threads, set_threads
from nearmt.cli.output import command_of_this_program, print_json, print_table, reporting

if TYPE_CHECKING:
    from nearmt.experiments.demo import DemoResult


def register(app: typer.Typer) -> None:
    """Add the command of this file."""
    app.command("demo", epilog="Example: nearmt demo")(demo)


def demo(
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder for the store and the report: a new one, or an earlier demo's.")
    ] = Path("demo-output"),
    threads: Threads = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Build, train, compare and explain on the model and memory of nearmt-demo."""
    from dataclasses import asdict

    from nearmt.experiments.demo import find_materials, run_demo, write_report

    set_threads(threads)
    materials = find_materials()
    with reporting(quiet) as progress:
        result = run_demo(materials, out, progress=progress)
    write_report(result, out / "report.html")
    if as_json:
        print_json(asdict(result))
        return
    _print(result, out)


def _print(result: "DemoResult", out: Path) -> None:
    from nearmt.experiments.demo.report import score_table

    evaluation = result.evaluation
    table = score_table(result)
    sentences = evaluation["comparison"]["num_sentences"]
    title = f"{result.info['sentences']:,} pairs of memory, {sentences} test sentences"
    print_table(title, table.headings, table.rows)
    for example in result.examples:
        print(f"\nsource     {example.source}\nbase       {example.base}\nadaptive   {example.adaptive}")
        print(f"reference  {example.reference}")
        for change in example.changes:
            print(f"  {change.words:<16} from: {change.segment_source} → {change.segment_target}")
    print(f"\nThe page with charts is {out / 'report.html'}. What to try next:")
    for command in _next_commands(result, out / "demo.store"):
        print(f"  {command}")
    own = shlex.join(["build", "your.tmx", "--model", "Helsinki-NLP/opus-mt-de-en", "--out", "your.store"])
    print(
        "The last one names a page to open in a browser, where a CAT tool can be pointed too. "
        f"With a memory of your own:\n  {command_of_this_program()} {own}"
    )


def _next_commands(result: "DemoResult", store: Path) -> list[str]:
    """Commands that work as they are when pasted into the shell that started this one."""
    sentence = result.examples[0].source if result.examples else "Die Tabelle ist gesperrt."
    wanted = (["explain", str(store), sentence], ["info", str(store)], ["serve", str(store)])
    return [f"{command_of_this_program()} {shlex.join(arguments)}" for arguments in wanted]
