"""Progress of long tasks: one callable that a progress bar, a log or a test can implement."""

from typing import Protocol


class Progress(Protocol):
    """Called from time to time with the stage, the amount done and the total, if that is known."""

    def __call__(self, stage: str, done: int, total: int | None) -> None: ...


def silent(stage: str, done: int, total: int | None) -> None:
    """Report nothing."""
