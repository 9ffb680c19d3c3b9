"""`nearmt demo`: everything once, on ready materials."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from nearmt.cli.demo_prompt import EXAMPLE, print_reasons, translate_typed
from nearmt.cli.options import RunOptions, output_option
from nearmt.cli.output import command_of_this_program, number_of, print_json, print_table, reporting, say

if TYPE_CHECKING:
    from nearmt.experiments.demo import DemoResult
    from nearmt.experiments.report import Example


def demo(
    *,
    out: Annotated[
        Path,
        output_option("--out", "-o", help="Folder for store and report: a new one, or that of an earlier demo."),
    ] = Path("demo-output"),
    is_trying: Annotated[
        bool, output_option("--try", help="Then translate sentences that you type, and say why; needs a terminal.")
    ] = False,
    run: RunOptions,
) -> None:
    """Build, train, evaluate and explain with the model and memory of the package nearmt-demo."""
    from dataclasses import asdict

    from nearmt.experiments.demo import find_materials, run_demo, write_report

    run.set_threads()
    say(
        "Adapting opus-mt-fr-en to Canadian company law: two to three minutes, or seconds after an earlier run.",
        run.quiet,
    )
    with reporting(run.quiet) as progress:
        materials = find_materials(progress)
        finished = run_demo(materials, out, progress=progress)
    write_report(finished.result, out / "report.html")
    if run.as_json:
        print_json(asdict(finished.result))
        return
    _print(finished.result, out)
    _print_next(finished.result, out, is_reused=finished.is_reused)
    if is_trying and sys.stdin.isatty():
        translate_typed(finished.translator)
    elif is_trying:
        say("There is no prompt, because the input is not a terminal. Translate files with nearmt translate.")


def _print(result: "DemoResult", out: Path) -> None:
    from nearmt.experiments.demo.report import match_table, score_table

    evaluation = result.evaluation
    table, matches = score_table(result), match_table(result)
    pairs = number_of(result.info["sentences"], "pair")
    title = f"{pairs} in the memory, {number_of(evaluation['comparison']['num_sentences'], 'test sentence')}"
    print_table(title, table.headings, table.rows)
    print(
        "base: the model alone. vanilla: the memory gets a fixed share. adaptive: a small network decides how much.\n"
        "p: how likely such a difference is by chance. changed: tokens that are not the model's first choice; beam\n"
        "search accounts for some of them, as the row base shows.\n"
    )
    print_table("By similarity to the memory", matches.headings, matches.rows)
    for example in result.examples:
        _print_example(example)
    for example in result.misled:
        print("\nThe memory can also mislead:", end="")
        _print_example(example)


def _print_next(result: "DemoResult", out: Path, *, is_reused: bool) -> None:
    steps = ", ".join(f"{step} {seconds:.0f} s" for step, seconds in result.seconds.items())
    which = "An earlier run took" if is_reused else "This took"
    print(f"\n{which} {sum(result.seconds.values()):.0f} s: {steps}.")
    print(f"The report with charts is {out / 'report.html'}. Try next:")
    for command in _next_commands(result, out):
        print(f"  {command}")
    own = shlex.join(["build", "your.tmx", "--model", "Helsinki-NLP/opus-mt-fr-en", "--out", "your.store"])
    print(
        "The last one prints the address of a web page; CAT tools can connect to it too. "
        f"With your own memory:\n  {command_of_this_program()} {own}"
    )


def _print_example(example: "Example") -> None:
    print(f"\nsource     {example.source}\nbase       {example.base}\nadaptive   {example.adaptive}")
    print(f"reference  {example.reference}")
    print_reasons(example.changes)


def _next_commands(result: "DemoResult", out: Path) -> list[str]:
    """Return commands that can be pasted into the shell that started this one."""
    sentence = result.examples[0].source if result.examples else EXAMPLE
    store = str(out / "demo.store")
    wanted = (["demo", "--try", "--out", str(out)], ["explain", store, sentence], ["serve", store])
    return [f"{command_of_this_program()} {shlex.join(arguments)}" for arguments in wanted]
