"""How fast it is, measured in one run: engines, methods, batches, K, growth with the memory, and where time goes."""

from nearmt.experiments.bench.run import run_bench
from nearmt.experiments.bench.settings import BenchSettings

__all__ = ["BenchSettings", "run_bench"]
