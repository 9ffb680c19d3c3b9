"""Damage every file of a store in every way, verify and repair it, and print the results as a table.

    PYTHONPATH=examples python tests/damage_table.py

The store has 122 sentences in several commits. docs/repair.md contains the output.
"""

import argparse
import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import toy
from typer.testing import CliRunner

from damage import BESIDE, COLUMNS, HARMS, PROJECTION, harm, make_store
from nearmt.cli.app import app
from nearmt.models import Seq2Seq

HEADINGS = ("file", "damage", "`nearmt verify` says", "repair with the model", "exit", "repair without", "exit")


def run(*arguments: object) -> tuple[int, dict[str, Any]]:
    done = CliRunner().invoke(app, [*map(str, arguments), "--json", "--quiet"], catch_exceptions=False)
    return done.exit_code, json.loads(done.stdout)


def summary(repaired: dict[str, Any]) -> str:
    """A short description of a repair."""
    parts = [f"{repaired['kept_sentences']} kept"]
    names = {
        "recomputed_sentences": "{} recomputed",
        "waiting_sentences": "{} of them wait",
        "lost_sentences": "{} lost",
        "lost_units": "{} units lost",
        "incomplete_units": "{} units incomplete",
        "lost_removals": "{} removals lost",
    }
    parts += [text.format(repaired[name]) for name, text in names.items() if repaired[name]]
    return ", ".join([*parts, *(["training lost"] if repaired["lost_networks"] else [])])


def shortened(problems: list[str]) -> str:
    if not problems:
        return "nothing"
    first = problems[0].partition(" (")[0] + (problems[0].partition(")")[2] if " (" in problems[0] else "")
    return first + (f"; {len(problems) - 1} more" if len(problems) > 1 else "")


def row(made: Path, model: Path, work: Path, name: str, how: str) -> list[str]:
    results = []
    for has_model in (True, False):
        folder = Path(shutil.copytree(made, work / "harmed.store"))
        harm(folder, name, how)
        _, report = run("verify", folder)
        away = model.with_name("away")
        if not has_model:
            model.rename(away)
        code, repaired = run("verify", folder, "--repair", "--offline")
        if not has_model:
            away.rename(model)
        results += [summary(repaired), str(code)]
        shutil.rmtree(folder)
    return [name, how, shortened(report["problems"]), *results]


def rows(work: Path, model: Path) -> Iterator[list[str]]:
    made = make_store(work, Seq2Seq.load(model))
    for name in (*COLUMNS, PROJECTION, *BESIDE):
        for how in HARMS:
            yield row(made, model, work, name, how)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", type=Path, help="a folder with a tiny model; by default one is trained")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="nearmt-damage-") as folder:
        work = Path(folder)
        if options.model is None:
            toy.train_model(work / "model")
        else:
            shutil.copytree(options.model, work / "model")
        print(f"| {' | '.join(HEADINGS)} |\n|{'|'.join(['---'] * len(HEADINGS))}|")
        for cells in rows(work, work / "model"):
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
