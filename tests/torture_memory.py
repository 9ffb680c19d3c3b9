"""The expected contents of the torture test's store, and random changes."""

import json
import random
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import toy

from nearmt.corpus import SentencePair

PAIRS_PER_COMMIT = 8
_SENTENCES = toy.sentences(1500, 11, toy.CLIENT)
_MOST_UNITS = 400
Key = tuple[str, str, str]  # origin, unit id, source


@dataclass(frozen=True)
class Change:
    """One call: pairs to add, a removal, or neither (compact, index, train, repair)."""

    kind: str
    pairs: tuple[SentencePair, ...] = ()
    removal: tuple[tuple[str, str], ...] = ()  # options of Store.remove

    def __str__(self) -> str:
        what = f" of {len(self.pairs)} pairs" if self.pairs else f" of {dict(self.removal)}" if self.removal else ""
        return self.kind + what


class Memory:
    """The units of a store by origin, unit id and source."""

    def __init__(self, units: dict[Key, str] | None = None) -> None:
        self.units: dict[Key, str] = dict(units or {})

    @classmethod
    def of(cls, path: Path) -> "Memory":
        """The contents of a store that was built from a file."""
        pairs = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        return cls({(pair["origin"], pair["unit_id"], pair["source"]): pair["target"] for pair in pairs})

    def copy(self) -> "Memory":
        return Memory(self.units)

    def apply(self, change: Change) -> None:
        for pair in change.pairs:
            self.units[pair.origin or "", pair.unit_id or "", pair.source] = pair.target
        if change.removal:
            wanted = dict(change.removal)
            self.units = {
                key: target
                for key, target in self.units.items()
                if wanted.items() - zip(("origin", "unit_id", "source"), key, strict=True)
            }

    def states_during(self, change: Change) -> list["Memory"]:
        """All contents that a kill may leave: those before the change and after each of its commits."""
        found = [self]
        for start in range(0, len(change.pairs), PAIRS_PER_COMMIT):
            found.append(found[-1].copy())
            found[-1].apply(Change("add", change.pairs[start : start + PAIRS_PER_COMMIT]))
        if change.removal:
            found.append(self.copy())
            found[-1].apply(change)
        return found

    def content(self) -> Counter[tuple[str, str, str, str]]:
        """Source, target, unit id and origin of each unit."""
        return Counter((source, target, unit, origin) for (origin, unit, source), target in self.units.items())


def random_change(chooser: random.Random, memory: Memory, kind: str) -> Change:
    """A random change of some kind. Large stores shrink."""
    keys = sorted(memory.units)
    if kind in ("compact", "index", "train", "repair"):
        return Change(kind)
    if kind == "correct":
        chosen = chooser.sample(keys, min(len(keys), chooser.randint(1, 20)))
        pairs = [SentencePair(key[2], chooser.choice(_SENTENCES)[1], key[1], key[0]) for key in chosen]
        return Change(kind, tuple(pairs))
    if kind == "remove":
        origin, unit, source = chooser.choice(keys)
        by_origin = len(keys) > _MOST_UNITS or (chooser.random() < 0.2 and origin != "built")
        removal = {"origin": origin} if by_origin else chooser.choice([{"unit_id": unit}, {"source": source}])
        if by_origin and origin == "built":
            removal = {"origin": max({key[0] for key in keys} - {"built"}, key=[key[0] for key in keys].count)}
        return Change(kind, removal=tuple(removal.items()))
    pairs = []
    for source, target in chooser.sample(_SENTENCES, chooser.randint(1, 40)):
        unit = str(chooser.randrange(10**9))
        pairs.append(SentencePair(source, target, unit, f"client-{chooser.randrange(6)}"))
    return Change("add", tuple(pairs))
