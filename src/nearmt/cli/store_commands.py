"""`nearmt info` and `nearmt verify`: what a store holds and whether it is intact."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from nearmt.cli.info_output import print_info, warn_low_recall
from nearmt.cli.options import AsJson, RunOptions, StoredModelOptions, StorePath
from nearmt.cli.output import print_json, reporting
from nearmt.cli.verify_output import print_repaired, print_report


def info(store: StorePath, as_json: AsJson = False) -> None:
    """Show the size, origins, model, index, recall and training of a store."""
    from nearmt.store import Store

    described = Store(store).info()
    if as_json:
        print_json(described)
    else:
        print_info(described)
        warn_low_recall(described)


def verify(
    store: StorePath,
    *,
    repair: Annotated[
        bool,
        typer.Option("--repair", help="Keep everything that can be read, and recompute lost states with the model."),
    ] = False,
    model: StoredModelOptions,
    run: RunOptions,
) -> None:
    """Compare a store with its checksums. Exit code 0: it is intact; 2: it is damaged."""
    run.set_threads()
    if repair:
        _repair(store, model, run)
        return
    from nearmt.datastore import verify as verify_store

    with reporting(run.quiet) as progress:
        report = verify_store(store.absolute(), lambda number: progress("verifying", number, None))
    if run.as_json:
        print_json(
            {
                "is_sound": report.is_sound,
                "segments": report.num_segments,
                "entries": report.num_entries,
                "sentences": report.num_sentences,
                "waiting_sentences": report.waiting_sentences,
                "problems": list(report.problems),
                "set_aside": [asdict(kept) for kept in report.set_aside],
            }
        )
    else:
        print_report(report, store)
    if not report.is_sound or report.waiting_sentences:
        raise typer.Exit(2)


def _repair(store: Path, model: StoredModelOptions, run: RunOptions) -> None:
    from nearmt.building.repair import repair

    with reporting(run.quiet) as progress:
        done = repair(store, model=model.request(), progress=progress)
    if run.as_json:
        print_json(done.as_dict())
    else:
        print_repaired(done, store)
    if not done.is_whole:
        raise typer.Exit(2)
