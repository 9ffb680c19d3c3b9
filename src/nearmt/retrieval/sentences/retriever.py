"""Searching the entries of a few sentences that are chosen for each source, instead of the whole store."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nearmt.compiled.dots import LANES
from nearmt.datastore import SENTENCES, Filter, Snapshot
from nearmt.errors import SettingError
from nearmt.retrieval import arranging, looking_up, nearest
from nearmt.retrieval.columns import StoredColumns
from nearmt.retrieval.compiled_search import CompiledSearch
from nearmt.retrieval.neighbors import NearArrays
from nearmt.retrieval.sentences.index import MAX_ENTRIES, SentenceIndex
from nearmt.retrieval.threads import pool

Excluded = Sequence[np.ndarray | None]


@dataclass(frozen=True)
class Subsets:
    """The entries that a batch of sources searches, one subset after the other, in slots.

    Keys of bytes are arranged for `nearest_codes`, and every subset begins with a block. Slots between subsets are
    empty.
    """

    begins: np.ndarray  # (sources + 1,) slot where each subset begins
    keys: np.ndarray  # (blocks, pairs of dimensions, 2 · LANES) bytes, or (slots, dims) float32
    norms: np.ndarray  # (slots,) see `arranging.gather`; none for float32
    values: np.ndarray  # (slots,) token ids
    entry_ids: np.ndarray  # (slots,)
    probabilities: np.ndarray  # (slots,) float32: what the model gave the tokens


class SentenceRetriever(StoredColumns):
    """Searches one snapshot, for each source in the sentences that cover it best. Threads can share it."""

    retrieval = SENTENCES

    def __init__(self, snapshot: Snapshot, index: SentenceIndex | None = None, max_entries: int = MAX_ENTRIES) -> None:
        super().__init__(snapshot)
        self.index = index if index is not None else SentenceIndex.open(snapshot)
        self.max_entries = max_entries
        self._allowed = snapshot.live_sentences & ~snapshot.waiting_sentences
        self._starts = snapshot.sentences["first_entry"]

    def filtered(self, wanted: Filter) -> "SentenceRetriever":
        """The same search, in a part of the store."""
        if wanted.is_empty:
            return self
        narrower = copy.copy(self)
        narrower._allowed = self._allowed & wanted.sentences(self.snapshot)
        return narrower

    def following(self, snapshot: Snapshot) -> "SentenceRetriever":
        """A retriever of a later snapshot; keeps what is indexed already."""
        return SentenceRetriever(snapshot, self.index.following(snapshot), self.max_entries)

    # Searching

    def start(self, texts: Sequence[str] | None, excluded: Excluded | None = None) -> "SubsetSearch":
        """Choose the sentences for each source text; `excluded` lists, for each, sentences that must not be used."""
        if texts is None:
            raise SettingError("the texts of the sources are needed to choose sentences")
        return self.among(self.choose(texts, excluded))

    def choose(self, texts: Sequence[str], excluded: Excluded | None = None) -> list[np.ndarray]:
        """Ids of the sentences for each source text."""
        without = excluded if excluded is not None else [None] * len(texts)
        if len(texts) > 1:
            return list(pool().map(self._select, texts, without))
        return [self._select(text, ids) for text, ids in zip(texts, without, strict=True)]

    def among(self, chosen: Sequence[np.ndarray]) -> "SubsetSearch":
        """A search, for each source, of the entries of these sentences."""
        return SubsetSearch(self, self._gathered(chosen))

    def _select(self, text: str, excluded: np.ndarray | None) -> np.ndarray:
        return self.index.select(text, self._allowed, self.max_entries, excluded)

    def _gathered(self, chosen: Sequence[np.ndarray]) -> Subsets:
        """The entries of the chosen sentences of each source."""
        code = self.snapshot.key_code
        is_coded = code.level is not None
        unit = LANES if is_coded else 1
        counts = [-(-int(self.index.sizes[ids].sum()) // unit) for ids in chosen]
        begins = unit * np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        total = int(begins[-1])
        subsets = Subsets(
            begins,
            np.zeros((total // unit, -(-code.dims // 2), 2 * LANES), np.uint8)
            if is_coded
            else np.empty((total, code.dims), np.float32),
            np.full(total if is_coded else 0, np.inf, np.float32),
            np.zeros(total, np.int64),
            np.full(total, -1, np.int64),
            np.zeros(total, np.float32),
        )

        def fill(number: int) -> None:
            ids, slot = chosen[number], int(begins[number])
            if is_coded:
                starts = self._starts[ids]
                pieces = starts, starts + self.index.sizes[ids], slot
                found = subsets.keys, subsets.norms, subsets.values, subsets.entry_ids
                arranging.gather(self.snapshot.keys, self.snapshot.values, *pieces, *found)
            else:  # decoded piece by piece
                self._fill_decoded(subsets, ids, slot)
            filled = slice(slot, slot + int(self.index.sizes[ids].sum()))
            subsets.probabilities[filled] = self.snapshot.probabilities[subsets.entry_ids[filled]]

        if len(chosen) > 1:
            list(pool().map(fill, range(len(chosen))))
        elif chosen:
            fill(0)
        return subsets

    def _fill_decoded(self, subsets: Subsets, sentence_ids: np.ndarray, at: int) -> None:
        for sentence in sentence_ids.tolist():
            start = int(self._starts[sentence])
            end = start + int(self.index.sizes[sentence])
            place = slice(at, at + end - start)
            subsets.keys[place] = self.snapshot.float_keys(slice(start, end))
            subsets.values[place] = self.snapshot.values[start:end]
            subsets.entry_ids[place] = np.arange(start, end)
            at += end - start


class SubsetSearch(CompiledSearch):
    """The search of one batch of sources, each in its own subset."""

    def __init__(self, retriever: SentenceRetriever, subsets: Subsets) -> None:
        code = retriever.snapshot.key_code
        super().__init__(code, code.dims if code.level is None else 2 * subsets.keys.shape[1])
        self.subsets = subsets

    def _find(
        self, first: int, last: int, sources: np.ndarray, queries: np.ndarray, near: NearArrays, places: np.ndarray
    ) -> None:
        subsets, found = self.subsets, (near.squared_distances, places)
        if self._code.level is None:
            nearest.nearest_floats(queries, first, last, sources, subsets.begins, subsets.keys, *found)
        else:
            arrays = subsets.begins, subsets.keys, subsets.norms
            nearest.nearest_codes(queries, first, last, sources, *arrays, *found)
        looking_up.look_up(first, last, places, subsets.values, subsets.probabilities, *near[1:])

    def _entry_ids(self, places: np.ndarray) -> np.ndarray:
        found: np.ndarray = self.subsets.entry_ids[places] if len(self.subsets.entry_ids) else places
        return found
