"""How long work says where it is: one callable, so that a bar, a log and a test can listen alike."""

from typing import Protocol


class Progress(Protocol):
    """Called now and then with the stage, what of it is done, and how much there is, where that is known."""

    def __call__(self, stage: str, done: int, total: int | None) -> None: ...


def silent(stage: str, done: int, total: int | None) -> None:
    """Says nothing."""
