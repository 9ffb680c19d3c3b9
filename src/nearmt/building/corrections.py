"""Corrections by pairs without a unit id: they replace the units that are stored with the same source and origin."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from nearmt.corpus import SentencePair
from nearmt.datastore import Snapshot, SortedColumn, name_hash, pair_hash, text_hash


@dataclass
class EditBatch:
    """Pairs that are added together, such as those of one file. They never replace each other."""

    keep_both: bool = False  # keep stored units with another target
    _pairs: set[tuple[int, int]] = field(default_factory=set)  # hashes of pair and origin

    def include(self, pairs: Iterable[SentencePair]) -> None:
        self._pairs.update((pair_hash(pair), name_hash(pair.origin)) for pair in pairs)

    def has(self, pair: int, origin: int) -> bool:
        return (pair, origin) in self._pairs


@dataclass(frozen=True)
class CompetingUnits:
    """Stored units with the source of a new pair and another target."""

    replaced: tuple[int, ...] = ()  # of the same origin
    origins: tuple[str | None, ...] = ()  # other origins, whose units are kept
    is_stored: bool = False  # True if the pair itself is stored with its origin


class UnitsBySource:
    """Finds the units of a store by their source."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        alive = np.flatnonzero(snapshot.live_units)
        sentences = np.asarray(snapshot.units["sentence"])[alive]
        self._stored = SortedColumn(np.asarray(snapshot.sentences["source_hash"])[sentences], alive)
        self._recent: defaultdict[int, dict[int, SentencePair]] = defaultdict(dict)
        self._removed: set[int] = set()

    def add(self, number: int, pair: SentencePair) -> None:
        self._recent[text_hash(pair.source)][number] = pair

    def remove(self, number: int) -> None:
        self._removed.add(number)

    def competing_with(self, pair: SentencePair, batch: EditBatch) -> CompetingUnits:
        """The stored units with the source of a pair and another target."""
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
        return CompetingUnits(tuple(replaced), tuple(dict.fromkeys(others)), is_stored)

    def _with_source(self, source: int) -> Iterable[tuple[int, int, int]]:
        """Number, pair hash and origin hash of each unit with this source."""
        found = self._stored.find(source)
        units = self._snapshot.units[found]
        pairs = self._snapshot.sentences["pair_hash"][units["sentence"]]
        stored = zip(found.tolist(), pairs.tolist(), units["origin_hash"].tolist(), strict=True)
        recent = ((n, pair_hash(pair), name_hash(pair.origin)) for n, pair in self._recent.get(source, {}).items())
        return (unit for unit in (*stored, *recent) if unit[0] not in self._removed)

    def _origin(self, source: int, number: int) -> str | None:
        recent = self._recent.get(source, {})
        return recent[number].origin if number in recent else self._snapshot.unit(number).origin
