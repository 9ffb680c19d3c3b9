"""Runs compiled loops over rows in several threads. They do not hold Python's lock."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

import torch

_ROWS_PER_THREAD = 16  # with fewer rows a second thread does not pay


@lru_cache(maxsize=1)
def pool() -> ThreadPoolExecutor:
    """The threads, as many as torch uses."""
    return ThreadPoolExecutor(max(1, torch.get_num_threads()), thread_name_prefix="retrieval")


os.register_at_fork(after_in_child=pool.cache_clear)  # threads do not survive a fork


def in_threads(work: Callable[[int, int], object], rows: int) -> None:
    """Call `work(first, last)` for parts of the rows, in as many threads as pay."""
    parts = min(torch.get_num_threads(), max(1, rows // _ROWS_PER_THREAD))
    borders = [rows * number // parts for number in range(parts + 1)]
    others = [pool().submit(work, borders[number], borders[number + 1]) for number in range(1, parts)]
    work(0, borders[1])
    for other in others:
        other.result()
