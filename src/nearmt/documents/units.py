"""What all formats have in common: gaps to fill, and a document in which they are filled."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from nearmt.markup import Rules


@dataclass(frozen=True, slots=True)
class Gap:
    """A text to translate, escaped as in its file, with the markup rules of its format."""

    source: str
    rules: Rules


@dataclass(frozen=True, slots=True)
class Splice:
    """New text for document[start:end], escaped for the file, or a function that makes it from the translations."""

    start: int
    end: int
    text: str | Callable[[Sequence[str]], str]


@dataclass(slots=True)
class Unit:
    """An untranslated unit: its gaps, and the changes to the file once they are filled."""

    gaps: list[Gap]
    splices: list[Splice]


@dataclass(slots=True)
class Document:
    """The text of a file, the units to fill, and the number of units left alone by reason."""

    text: str
    units: list[Unit] = field(default_factory=list)
    left: dict[str, int] = field(default_factory=dict)
    always: list[Splice] = field(default_factory=list)  # applied if any unit is filled

    def leave(self, why: str) -> None:
        """Count a unit that is left alone."""
        self.left[why] = self.left.get(why, 0) + 1

    def filled(self, translations: Sequence[Sequence[str]]) -> str:
        """The text with all units filled, given the translations of the gaps of each unit."""
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
