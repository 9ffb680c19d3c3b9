"""Measures how much RAM a piece of work needs."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_INTERVAL = 0.05  # seconds between two samples


def anonymous_bytes() -> int:
    """Return the anonymous memory of this process (not backed by a file), or 0 if the system does not report it."""
    return _resident("RssAnon")


def mapped_bytes() -> int:
    """Return how much of the files that this process has mapped is in memory; 0 as above."""
    return _resident("RssFile")


def _resident(kind: str) -> int:
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith(f"{kind}:")), 0)


@contextmanager
def track_memory(costs: dict[str, Any], name: str) -> Iterator[None]:
    """Record in `costs` how long the block takes and by how much anonymous memory grows at its peak."""
    before, highest, is_over = anonymous_bytes(), 0, threading.Event()

    def sample() -> None:
        nonlocal highest
        while not is_over.wait(_INTERVAL):
            highest = max(highest, anonymous_bytes() - before)

    sampler = threading.Thread(target=sample, daemon=True)
    sampler.start()
    began = time.perf_counter()
    try:
        yield
    finally:
        is_over.set()
        sampler.join()
    costs[name] = {"seconds": time.perf_counter() - began, "peak_bytes": highest}
