"""What a tortured store should hold: a plain dictionary, and the changes that are made to both."""

import json
import random
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import toy

from nearmt.corpus import SentencePair

PAIRS_A_COMMIT = 8
_SENTENCES = toy.sentences(1500, 11, toy.CLIENT)
_MOST_UNITS = 400
Key = tuple[str, str, str]  # origin, unit id, source


@dataclass(frozen=True)
class Change:
    """One call: pairs to add, what to remove, or neither (compact, train, repair)."""

    kind: str
    pairs: tuple[SentencePair, ...] = ()
    removal: tuple[tuple[str, str], ...] = ()  # options of Store.remove

    def __str__(self) -> str:
        what = f" of {len(self.pairs)} pairs" if self.pairs else f" of {dict(self.removal)}" if self.removal else ""
        return self.kind + what


class Memory:
    """Units by what identifies them."""

    def __init__(self, units: dict[Key, str] | None = None) -> None:
        self.units: dict[Key, str] = dict(units or {})

    @classmethod
    def of(cls, path: Path) -> "Memory":
        """What a store holds that was built from a file."""
        pairs = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        return cls({(pair["origin"], pair["unit_id"], pair["source"]): pair["target"] for pair in pairs})

    def copy(self) -> "Memory":
        return Memory(self.units)

    def heed(self, change: Change) -> None:
        for pair in change.pairs:
            self.units[pair.origin or "", pair.unit_id or "", pair.source] = pair.target
        if change.removal:
            wanted = dict(change.removal)
            fits = lambda key: all(  # noqa: E731
                key[("origin", "unit_id", "source").index(name)] == value for name, value in wanted.items()
            )
            self.units = {key: target for key, target in self.units.items() if not fits(key)}

    def on_the_way(self, change: Change) -> list["Memory"]:
        """All that a kill may leave: what was before, and after each commit of the change."""
        found = [self]
        for start in range(0, len(change.pairs), PAIRS_A_COMMIT):
            found.append(found[-1].copy())
            found[-1].heed(Change("add", change.pairs[start : start + PAIRS_A_COMMIT]))
        if change.removal:
            found.append(self.copy())
            found[-1].heed(change)
        return found

    def content(self) -> Counter[tuple[str, str, str, str]]:
        """As a store tells it: source, target, unit id, origin."""
        return Counter((source, target, unit, origin) for (origin, unit, source), target in self.units.items())


def random_change(chooser: random.Random, memory: Memory, kind: str) -> Change:
    """A change that fits what is there; large memories shrink."""
    keys = sorted(memory.units)
    if kind in ("compact", "train", "repair"):
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
