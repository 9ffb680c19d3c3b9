"""Other processes that keep the processor busy during a measurement."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """Run `count` processes that compute without end, each on one CPU at a time, until the block is left."""
    # The child also ends when its parent does, because it then reads the end of its input.
    script = (
        "import sys, threading\nthreading.Thread(target=lambda: (sys.stdin.read(), __import__('os')._exit(0))).start()"
    )
    command = [sys.executable, "-c", f"{script}\nwhile True: pass"]
    children = [subprocess.Popen(command, stdin=subprocess.PIPE) for _ in range(count)]
    try:
        yield
    finally:
        for child in children:
            child.kill()
        for child in children:
            child.communicate()
