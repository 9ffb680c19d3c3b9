"""`nearmt train`: the networks of a store."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nearmt.cli.info_output import adaptation_rows, print_rows, say_doubts
from nearmt.cli.options import (
    Format,
    MaxK,
    ModelOptions,
    RunOptions,
    StorePath,
    training_option,
)
from nearmt.cli.output import print_json, reporting
from nearmt.cli.values import names_of

if TYPE_CHECKING:
    from nearmt.training.train_store import AdaptationSettings


@dataclass(frozen=True)
class _TrainingOptions:
    methods: Annotated[
        str,
        training_option("--methods", help="Networks to train, comma-separated: adaptive (always), kernel, robust."),
    ] = "adaptive,robust"
    max_k: MaxK = 32
    hidden: Annotated[int, training_option("--hidden", min=1, help="Hidden size of Meta-k and of robust.")] = 32
    steps: Annotated[int, training_option("--steps", min=1, help="Maximum number of training steps.")] = 5000
    temperature: Annotated[
        float | None,
        training_option(
            "--temperature", help="Fixed temperature. Default: searched on the dev set.", show_default=False
        ),
    ] = None
    retrieval: Annotated[
        str | None,
        training_option(
            "--retrieval",
            help="Search sentences, tokens or both. Default: as the store does; with both indexes, what translates the "
            "held-out sentences best.",
            show_default=False,
        ),
    ] = None
    paper: Annotated[
        bool,
        training_option(
            "--paper",
            help="Train as in the paper: on tokens, raw features, T = 10, selected on all of dev.",
        ),
    ] = False
    guard: Annotated[
        bool, training_option(" /--no-guard", help="Disable out-of-domain damping.", show_default=False)
    ] = True
    seed: Annotated[
        int, training_option("--seed", help="Random seed for initialisation, sentence order and held-out sentences.")
    ] = 1

    def settings(self) -> "AdaptationSettings":
        from nearmt.training.schedule import TrainingSettings
        from nearmt.training.train_store import AdaptationSettings

        return AdaptationSettings(
            max_k=self.max_k,
            temperature=self.temperature,
            paper=self.paper,
            seed=self.seed,
            methods=names_of(self.methods),
            guard=self.guard,
            retrieval=self.retrieval,
            training=TrainingSettings(hidden=self.hidden, steps=self.steps, seed=self.seed),
        )


def train(
    store: StorePath,
    dev: Annotated[
        list[Path] | None,
        typer.Argument(metavar="DEV", help="Files with dev pairs. Default: part of the memory.", show_default=False),
    ] = None,
    *,
    format: Format = None,
    training: _TrainingOptions,
    model: ModelOptions,
    run: RunOptions,
) -> None:
    """Train Meta-k and its variants, and tune the baselines."""
    from nearmt.store import Store

    run.set_threads()
    opened = Store(store)
    settings = training.settings()
    with reporting(run.quiet) as progress:
        described = opened.train(
            dev or None, model=model.request(), settings=settings, format=format, progress=progress
        )
    if run.as_json:
        print_json(described)
    else:
        print_rows(adaptation_rows(described))
    say_doubts(described)
