"""`nearmt demo`: everything once, on ready materials."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from nearmt.cli.options import RunOptions, output_option
from nearmt.cli.output import command_of_this_program, number_of, print_json, print_table, reporting

if TYPE_CHECKING:
    from nearmt.experiments.demo import DemoResult


def demo(
    *,
    out: Annotated[
        Path,
        output_option("--out", "-o", help="Folder for store and report: a new one, or that of an earlier demo."),
    ] = Path("demo-output"),
    run: RunOptions,
) -> None:
    """Build, train, evaluate and explain with the model and memory of the package nearmt-demo."""
    from dataclasses import asdict

    from nearmt.experiments.demo import find_materials, run_demo, write_report

    run.set_threads()
    materials = find_materials()
    with reporting(run.quiet) as progress:
        result = run_demo(materials, out, progress=progress)
    write_report(result, out / "report.html")
    if run.as_json:
        print_json(asdict(result))
        return
    _print(result, out)


def _print(result: "DemoResult", out: Path) -> None:
    from nearmt.experiments.demo.report import score_table

    evaluation = result.evaluation
    table = score_table(result)
    pairs = number_of(result.info["sentences"], "pair")
    title = f"{pairs} in the memory, {number_of(evaluation['comparison']['num_sentences'], 'test sentence')}"
    print_table(title, table.headings, table.rows)
    for example in result.examples:
        print(f"\nsource     {example.source}\nbase       {example.base}\nadaptive   {example.adaptive}")
        print(f"reference  {example.reference}")
        for change in example.changes:
            print(f"  {change.words:<16} from: {change.segment_source} → {change.segment_target}")
    print(f"\nThe report with charts is {out / 'report.html'}. Try next:")
    for command in _next_commands(result, out / "demo.store"):
        print(f"  {command}")
    own = shlex.join(["build", "your.tmx", "--model", "Helsinki-NLP/opus-mt-de-en", "--out", "your.store"])
    print(
        "The last one prints the address of a web page; CAT tools can connect to it too. "
        f"With your own memory:\n  {command_of_this_program()} {own}"
    )


def _next_commands(result: "DemoResult", store: Path) -> list[str]:
    """Return commands that can be pasted into the shell that started this one."""
    sentence = result.examples[0].source if result.examples else "Die Tabelle ist gesperrt."
    wanted = (["explain", str(store), sentence], ["info", str(store)], ["serve", str(store)])
    return [f"{command_of_this_program()} {shlex.join(arguments)}" for arguments in wanted]
