"""Reproducible runs on top of the library: the demo, the paper's tables and the benchmarks, each with a report."""
