"""Kernels compile, run in several threads, and need no folder for their cache."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from nearmt.compiled import compiled

KERNEL = """
from nearmt.compiled import compiled

@compiled(fastmath=True)
def double(x):
    return 2 * x

print(double(21))
"""


@compiled
def running_sum(values):
    total = 0.0
    for i in range(len(values)):
        total += values[i]
    return total


def test_threads_can_share_a_kernel():
    values = [np.full(10_000, float(i)) for i in range(32)]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(running_sum, values)) == [10_000.0 * i for i in range(32)]


def run_kernel(script: Path, **environment: str) -> str:
    found = subprocess.run(
        [sys.executable, str(script)], env={**os.environ, **environment}, capture_output=True, text=True
    )
    assert found.returncode == 0, found.stderr
    return found.stdout.strip()


def test_machine_code_is_cached(tmp_path):
    script, cache = tmp_path / "kernel.py", tmp_path / "cache"
    script.write_text(KERNEL)
    assert run_kernel(script, NUMBA_CACHE_DIR=str(cache)) == "42"
    assert list(cache.rglob("*.nbc"))


def test_a_kernel_works_without_a_folder_for_its_cache(tmp_path):
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where a folder would be needed")
    script = tmp_path / "kernel.py"
    script.write_text(KERNEL)
    (tmp_path / "__pycache__").write_text("a file as well")
    places = {"HOME": str(blocked), "XDG_CACHE_HOME": str(blocked)}
    assert run_kernel(script, **places) == "42"
    assert run_kernel(script, **places, NUMBA_CACHE_DIR=str(blocked / "cache")) == "42"
