"""The demo: build, train and evaluate with the model and memory of `nearmt-demo`, and write a report page."""

from nearmt.experiments.demo.report import write_report
from nearmt.experiments.demo.run import Demo, DemoResult, Materials, claim, find_materials, run_demo

__all__ = ["Demo", "DemoResult", "Materials", "claim", "find_materials", "run_demo", "write_report"]
