"""What the formats have in common: gaps to fill, and a document that can be put together with them filled."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from nearmt.markup import Rules


@dataclass(frozen=True, slots=True)
class Gap:
    """A text that wants a translation, in the spelling of its file and under the rules of its format."""

    source: str
    rules: Rules


@dataclass(frozen=True, slots=True)
class Splice:
    """New text for document[start:end], in the spelling of the file. A callable is given the translations."""

    start: int
    end: int
    text: str | Callable[[Sequence[str]], str]


@dataclass(slots=True)
class Unit:
    """An untranslated unit: its gaps, and what to change in the file once they are filled."""

    gaps: list[Gap]
    splices: list[Splice]


@dataclass(slots=True)
class Document:
    """The text of a file, what is to be filled in it, and how many units of which kind are left alone."""

    text: str
    units: list[Unit] = field(default_factory=list)
    left: dict[str, int] = field(default_factory=dict)
    always: list[Splice] = field(default_factory=list)  # made if any unit is filled

    def leave(self, why: str) -> None:
        """Count a unit that stays as it is."""
        self.left[why] = self.left.get(why, 0) + 1

    def filled(self, translations: Sequence[Sequence[str]]) -> str:
        """The text with all units filled, from the translations of each unit's gaps."""
        changes = [
            (splice.start, splice.end, splice.text if isinstance(splice.text, str) else splice.text(texts))
            for unit, texts in zip(self.units, translations, strict=True)
            for splice in unit.splices
        ]
        changes += [(each.start, each.end, each.text) for each in self.always if changes and isinstance(each.text, str)]
        parts, done = [], 0
        for start, end, text in sorted(changes, key=lambda change: change[:2]):
            parts += [self.text[done:start], text]
            done = end
        return "".join(parts) + self.text[done:]
