"""Finding sentences and units of a snapshot by their texts, ids and origins."""

from collections.abc import Sequence

import numpy as np

from nearmt.corpus import SentencePair
from nearmt.datastore.hashing import name_hash, pair_hash, text_hash
from nearmt.datastore.snapshot import Snapshot

_UNSORTED = 4096  # new sentences whose hashes are compared one by one


class SortedColumn:
    """A sorted column of hashes, to find the rows with a value."""

    def __init__(self, column: np.ndarray, rows: np.ndarray | None = None) -> None:
        order = np.argsort(column, kind="stable")
        self._values = np.asarray(column)[order]
        self._rows = order if rows is None else np.asarray(rows)[order]

    def find(self, value: int) -> np.ndarray:
        """The rows with a value, in order."""
        wanted = np.uint64(value)
        first, end = (np.searchsorted(self._values, wanted, side) for side in ("left", "right"))
        return self._rows[first:end]

    def extended(self, values: Sequence[int], rows: Sequence[int]) -> "SortedColumn":
        """A column with more values, of later rows."""
        grown = np.concatenate([self._values, np.array(values, np.uint64)])
        return SortedColumn(grown, np.concatenate([self._rows, np.array(rows, np.int64)]))


class SourceLookup:
    """Finds sentences of a snapshot by their source, removed ones included. A later snapshot keeps what was sorted."""

    def __init__(self, snapshot: Snapshot, known: "SourceLookup | None" = None) -> None:
        self._snapshot = snapshot
        self._sorted: SortedColumn
        self._num_sorted: int
        total = len(snapshot.sentences)
        if known is not None and 0 <= total - known._num_sorted <= _UNSORTED:
            self._sorted, self._num_sorted = known._sorted, known._num_sorted
        else:
            self._sorted, self._num_sorted = SortedColumn(snapshot.sentences["source_hash"]), total
        self._rest = np.array(snapshot.sentences["source_hash"][self._num_sorted :])

    def following(self, snapshot: Snapshot) -> "SourceLookup":
        """The look-up of a later snapshot of the same store."""
        old, new = self._snapshot.manifest, snapshot.manifest
        is_same = (old.created_at, old.generation) == (new.created_at, new.generation)
        return SourceLookup(snapshot, self if is_same else None)

    def find(self, source_hash: int) -> np.ndarray:
        """Sentences with a source, by its hash, in order."""
        found = self._sorted.find(source_hash)
        if not len(self._rest):
            return found
        late = np.flatnonzero(self._rest == np.uint64(source_hash)) + self._num_sorted
        return np.concatenate([found, late])


class TextLookup:
    """Finds live sentences by their texts."""

    def __init__(self, snapshot: Snapshot) -> None:
        alive = snapshot.live_sentence_ids
        self._columns = {
            name: SortedColumn(np.asarray(snapshot.sentences[name])[alive], alive)
            for name in ("pair_hash", "source_hash", "target_hash")
        }

    def same_pair(self, pair: SentencePair) -> np.ndarray:
        """Sentences with this source and this target."""
        return self._columns["pair_hash"].find(pair_hash(pair))

    def same_source(self, text: str) -> np.ndarray:
        """Sentences with this source."""
        return self._columns["source_hash"].find(text_hash(text))

    def same_source_or_target(self, pair: SentencePair) -> np.ndarray:
        """Sentences with this source or this target."""
        same_target = self._columns["target_hash"].find(text_hash(pair.target))
        return np.union1d(self.same_source(pair.source), same_target)


def units_matching(
    snapshot: Snapshot,
    *,
    unit_id: str | None = None,
    origin: str | None = None,
    source: str | None = None,
    target: str | None = None,
) -> np.ndarray:
    """Numbers of the live units that match all given values."""
    mask = snapshot.live_units.copy()
    if unit_id is not None:
        mask &= snapshot.units["unit_hash"] == np.uint64(name_hash(unit_id))
    if origin is not None:
        mask &= snapshot.units["origin_hash"] == np.uint64(name_hash(origin))
    for column, text in (("source_hash", source), ("target_hash", target)):
        if text is not None:
            with_text = np.flatnonzero(snapshot.sentences[column] == np.uint64(text_hash(text)))
            mask &= np.isin(snapshot.units["sentence"], with_text)
    return np.flatnonzero(mask)
