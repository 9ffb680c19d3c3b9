"""How fast it is, measured in one run: engines, methods, batches, K, growth with the memory, and where time goes."""

from nearmt.bench.run import BenchSettings, run_bench

__all__ = ["BenchSettings", "run_bench"]
