"""Runs all experiments of a configuration cell by cell, reusing what an earlier run computed."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from nearmt.datastore import build_lock
from nearmt.experiments.paper.config import PaperConfig
from nearmt.experiments.paper.costs import CaseStudy, Statistics, Timing
from nearmt.experiments.paper.lab import Lab
from nearmt.experiments.paper.main_table import MainTable, Variants
from nearmt.experiments.paper.matches import Matches
from nearmt.experiments.paper.metrics import Metrics
from nearmt.experiments.paper.plan import Plan, make_plan, note_finished
from nearmt.experiments.paper.report import write_reports
from nearmt.experiments.paper.sections import CellKey, Experiment, Section
from nearmt.experiments.paper.studies import Features, HiddenSizes, TrainingSentences
from nearmt.experiments.paper.transfer import Controls, Generality, Robustness
from nearmt.experiments.report import require_drawing
from nearmt.models import Seq2Seq
from nearmt.outputs import claim_folder
from nearmt.progress import Progress, silent

EXPERIMENTS: tuple[Experiment, ...] = (
    MainTable(),
    Metrics(),
    Matches(),
    Variants(),
    Generality(),
    Robustness(),
    Features(),
    TrainingSentences(),
    HiddenSizes(),
    Controls(),
    Timing(),
    Statistics(),
    CaseStudy(),
)
_NEED_TWO_DOMAINS = ("generality", "robustness")


def run_paper(
    config: PaperConfig,
    out: Path,
    model: Seq2Seq | None = None,
    progress: Progress = silent,
    on_plan: Callable[[Plan], None] = lambda plan: None,
) -> list[Section]:
    """Compute what is missing in `out`, a new folder or that of an earlier run, and write the reports there.

    `on_plan` is called with an estimate of what it takes, before the work begins. A run is refused if its stores do not
    fit on the disk.
    """
    require_drawing()
    out = out.absolute()
    claim_folder(out, "paper")
    with build_lock(out / "results"):
        if model is None:
            model = Seq2Seq.load(
                config.model,
                source_lang=config.source_lang,
                target_lang=config.target_lang,
                engine=config.engine,
                device=config.device,
                dtype=config.dtype,
            )
        lab = Lab(config, model, out, progress)
        chosen = [experiment for experiment in EXPERIMENTS if experiment.name in config.sections]
        if len(config.domains) < 2:
            chosen = [experiment for experiment in chosen if experiment.name not in _NEED_TWO_DOMAINS]
        plan = make_plan(lab, chosen)
        if plan is not None:
            on_plan(plan)
            plan.check()
        sections = _compute(lab, chosen)
        write_reports(config, lab, sections, out)
        note_finished(lab)
    return sections


def _compute(lab: Lab, experiments: Sequence[Experiment]) -> list[Section]:
    """Compute every cell, then the sections. Stores are built first, so that a faulty memory fails early."""
    for domain in lab.domains.values():
        _ = domain.store, domain.test, domain.dev_key
    planned = [(experiment, experiment.cells(lab)) for experiment in experiments]
    total = sum(len(cells) for _, cells in planned)
    done = 0
    sections = []
    for experiment, cells in planned:
        results: dict[CellKey, Any] = {}
        for key, compute in cells.items():
            lab.progress("experiments", done, total)
            results[key] = compute()
            done += 1
        sections.append(experiment.assemble(lab, results))
    lab.progress("experiments", done, total)
    return sections
