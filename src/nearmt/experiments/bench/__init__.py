"""Speed benchmarks in one run: engines, methods, batch sizes, K, store sizes and a profile of decoding."""

from nearmt.experiments.bench.run import run_bench
from nearmt.experiments.bench.settings import BenchSettings

__all__ = ["BenchSettings", "run_bench"]
