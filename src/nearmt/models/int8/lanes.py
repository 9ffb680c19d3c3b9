"""Threads that each run a part of a batch from beginning to end.

Threads that share every operation wait for each other hundreds of times in a step, and spin while they wait. That is
fast on a quiet machine and slow as soon as another process takes one of the CPUs. A lane is one thread that computes
everything for its own sentences or its own part of the vocabulary. Lanes meet twice in a step, without spinning.
"""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TypeVar

import torch

Result = TypeVar("Result")

_TOO_SLOW = 1.2  # times the processor time of the tasks
_ALONE = 30  # short runs without threads before they are tried again


def _timed(task: Callable[[], Result]) -> tuple[Result, float]:
    """The result of a task, and the processor time of this thread that it took."""
    began = time.thread_time()
    return task(), time.thread_time() - began


class Lanes:
    """A fixed number of threads, in which torch and ONNX Runtime use one thread each. Many callers may share it."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._num_alone = 0  # short runs to go before threads are tried again
        self._pool: ThreadPoolExecutor | None = None
        if count > 1:
            self._pool = ThreadPoolExecutor(count, thread_name_prefix="lane")
            self._start(self._pool)

    def _start(self, pool: ThreadPoolExecutor) -> None:
        """Start all threads. torch's setting is the thread's own, but later threads begin with the last one set."""
        before, started = torch.get_num_threads(), threading.Barrier(self.count)

        def prepare() -> None:
            torch.set_num_threads(1)
            started.wait()

        for ready in [pool.submit(prepare) for _ in range(self.count)]:
            ready.result()
        torch.set_num_threads(before)

    def run(self, tasks: Sequence[Callable[[], Result]], *, are_short: bool = False) -> list[Result]:
        """The results of the tasks, which run at the same time; a single one runs in the calling thread.

        On a busy machine, waking a thread can take longer than a short task. If it did so the last time, the next short
        tasks run in the calling thread, one after the other.
        """
        if self._pool is None or len(tasks) == 1:
            return [task() for task in tasks]
        if are_short and self._num_alone > 0:
            self._num_alone -= 1
            return [task() for task in tasks]
        began = time.perf_counter()
        futures = [self._pool.submit(_timed, task) for task in tasks]
        found = [future.result() for future in futures]
        if are_short and time.perf_counter() - began > _TOO_SLOW * sum(seconds for _, seconds in found):
            self._num_alone = _ALONE
        return [result for result, _ in found]

    def share(self, total: int, unit: int = 1) -> list[slice]:
        """Divide 0 … total into at most one part for each lane; borders are multiples of `unit`."""
        units = -(-total // unit)
        parts = max(1, min(self.count, units))
        borders = [min(total, unit * (units * part // parts)) for part in range(parts + 1)]
        return [slice(start, end) for start, end in pairwise(borders)]
