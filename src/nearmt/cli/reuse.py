"""The option for texts that are stored already, and how many of them were reused."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from nearmt.cli.options import retrieval_option
from nearmt.cli.output import say

if TYPE_CHECKING:
    from nearmt.translator import Exact, Translation

ExactOption = Annotated[
    str,
    retrieval_option(
        "--exact", help="What to do with a sentence that is stored: translate it, or reuse its stored translation."
    ),
]


def exact_of(given: str) -> "Exact":
    """Check the option before a model is loaded."""
    from nearmt.translator import check_exact

    return check_exact(given)


class ReuseCounter:
    """Counts sentences, and those whose translation was reused."""

    def __init__(self) -> None:
        self._total = self._reused = 0

    def add(self, results: "Sequence[Translation]") -> None:
        self._total += sum(1 for result in results if result.source.strip())
        self._reused += sum(1 for result in results if result.match is not None)

    def report(self, quiet: bool) -> None:
        """Say it on standard error."""
        noun = "sentence" if self._total == 1 else "sentences"
        verb = "was" if 1 in (self._reused, self._total) else "were"
        say(f"{self._reused:,} of {self._total:,} {noun} {verb} reused from the memory", quiet)
