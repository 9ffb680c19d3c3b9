"""Runs the paper's experiments from one configuration: every table and figure, resumable, with a report."""

from nearmt.experiments.paper.config import PaperConfig, load_config
from nearmt.experiments.paper.run import run_paper

__all__ = ["PaperConfig", "load_config", "run_paper"]
