"""What a pair without a unit id corrects: the units that were stored before with its source and origin."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from nearmt.corpus import SentencePair
from nearmt.datastore import Snapshot, SortedColumn, name_hash, pair_hash, text_hash


@dataclass
class Batch:
    """Pairs that belong together, such as those of one file. They never replace each other."""

    keep_both: bool = False  # replace nothing that has another target
    _pairs: set[tuple[int, int]] = field(default_factory=set)  # hashes of pair and origin

    def include(self, pairs: Iterable[SentencePair]) -> None:
        self._pairs.update((pair_hash(pair), name_hash(pair.origin)) for pair in pairs)

    def has(self, pair: int, origin: int) -> bool:
        return (pair, origin) in self._pairs


@dataclass(frozen=True)
class Competition:
    """The units of other targets that a pair meets."""

    replaced: tuple[int, ...] = ()  # of the same origin
    origins: tuple[str | None, ...] = ()  # of those that have another origin and stay
    is_stored: bool = False  # whether the pair itself is there from its origin


class UnitsBySource:
    """Units of a store by their source."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        alive = np.flatnonzero(snapshot.live_units)
        sentences = np.asarray(snapshot.units["sentence"])[alive]
        self._stored = SortedColumn(np.asarray(snapshot.sentences["source_hash"])[sentences], alive)
        self._recent: defaultdict[int, dict[int, SentencePair]] = defaultdict(dict)
        self._removed: set[int] = set()

    def note(self, number: int, pair: SentencePair) -> None:
        """A unit has come."""
        self._recent[text_hash(pair.source)][number] = pair

    def remove(self, number: int) -> None:
        self._removed.add(number)

    def competition(self, pair: SentencePair, batch: Batch) -> Competition:
        """What is stored with the source of a pair and another target."""
        code, origin, source = pair_hash(pair), name_hash(pair.origin), text_hash(pair.source)
        replaced, others, is_stored = [], [], False
        for number, stored_pair, stored_origin in self._with_source(source):
            if stored_origin != origin:
                if stored_pair != code:
                    others.append(self._origin(source, number))
            elif stored_pair == code:
                is_stored = True
            elif not batch.has(stored_pair, stored_origin):
                replaced.append(number)
        return Competition(tuple(replaced), tuple(dict.fromkeys(others)), is_stored)

    def _with_source(self, source: int) -> Iterable[tuple[int, int, int]]:
        """Number, hash of the pair and hash of the origin of each unit with this source."""
        found = self._stored.find(source)
        units = self._snapshot.units[found]
        pairs = self._snapshot.sentences["pair_hash"][units["sentence"]]
        stored = zip(found.tolist(), pairs.tolist(), units["origin_hash"].tolist(), strict=True)
        recent = ((n, pair_hash(pair), name_hash(pair.origin)) for n, pair in self._recent.get(source, {}).items())
        return (unit for unit in (*stored, *recent) if unit[0] not in self._removed)

    def _origin(self, source: int, number: int) -> str | None:
        recent = self._recent.get(source, {})
        return recent[number].origin if number in recent else self._snapshot.unit(number).origin
