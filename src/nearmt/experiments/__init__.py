"""Reproducible experiments: the demo, the paper's tables and the benchmarks, each with a report."""
