"""How much memory something takes."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_PAUSE = 0.05  # seconds between two looks


def anonymous_bytes() -> int:
    """Memory that the process holds and no file backs; 0 where the system does not say."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon:")), 0)


@contextmanager
def watched(told: dict[str, Any], name: str) -> Iterator[None]:
    """Notes how long what is done here takes, and how much anonymous memory comes on top at most."""
    before, highest, is_over = anonymous_bytes(), 0, threading.Event()

    def look() -> None:
        nonlocal highest
        while not is_over.wait(_PAUSE):
            highest = max(highest, anonymous_bytes() - before)

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    began = time.perf_counter()
    try:
        yield
    finally:
        is_over.set()
        watcher.join()
    told[name] = {"seconds": time.perf_counter() - began, "peak_bytes": highest}
