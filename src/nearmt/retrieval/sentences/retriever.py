"""Searching the entries of a few sentences that are chosen for each source, instead of the whole store."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from nearmt.compiled.dots import LANES
from nearmt.datastore import SENTENCES, Filter, Snapshot
from nearmt.errors import SettingError
from nearmt.retrieval.neighbors import NearArrays, Neighbors, UnfilledArrays
from nearmt.retrieval.sentences import nearest
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
    norms: np.ndarray  # (slots,) see `nearest.gather`; none for float32
    values: np.ndarray  # (slots,) token ids
    entry_ids: np.ndarray  # (slots,)
    probabilities: np.ndarray  # (slots,) float32: what the model gave the tokens


class SentenceRetriever:
    """Searches one snapshot, for each source in the sentences that cover it best. Threads can share it."""

    retrieval = SENTENCES

    def __init__(self, snapshot: Snapshot, index: SentenceIndex | None = None, max_entries: int = MAX_ENTRIES) -> None:
        self.snapshot = snapshot
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

    # Stored columns, for methods and evidence

    def project(self, states: torch.Tensor) -> torch.Tensor:
        return self.snapshot.project(states)

    def keys_of(self, entry_ids: torch.Tensor) -> torch.Tensor:
        return self.snapshot.keys_of(entry_ids)

    def probabilities_of(self, entry_ids: torch.Tensor) -> torch.Tensor:
        return self.snapshot.probabilities_of(entry_ids)

    def stored_at(self, entry_id: int) -> tuple[Snapshot, int]:
        """The snapshot of an entry, and its entry id there."""
        return self.snapshot, entry_id

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
                nearest.gather(self.snapshot.keys, self.snapshot.values, *pieces, *found)
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


class SubsetSearch:
    """The search of one batch of sources."""

    def __init__(self, retriever: SentenceRetriever, subsets: Subsets) -> None:
        self._retriever, self.subsets = retriever, subsets

    def search(self, states: torch.Tensor, sources: torch.Tensor, k: int) -> Neighbors:
        """The `k` nearest entries of each state, (rows, width); row i belongs to source `sources[i]`."""
        unfilled, places = self._nearest(states, sources.numpy(), k)
        near = unfilled.filled().arrays
        found = np.arange(k) < near.counts[:, None]
        last = np.maximum(near.counts - 1, 0)[:, None]
        farthest = np.where(found[:, :1], np.take_along_axis(near.squared_distances, last, 1), 0)
        entry_ids = np.where(found, self.subsets.entry_ids[places], -1) if len(self.subsets.entry_ids) else places
        return Neighbors(
            torch.from_numpy(np.where(found, near.squared_distances, farthest)),
            torch.from_numpy(near.token_ids),
            torch.from_numpy(entry_ids),
            torch.from_numpy(found),
        )

    def search_arrays(self, states: torch.Tensor, sources: torch.Tensor, k: int) -> UnfilledArrays:
        """The same, as compiled mixtures take it; the search runs when they need its results."""
        return self._nearest(states, sources.numpy(), k)[0]

    def _nearest(self, states: torch.Tensor, sources: np.ndarray, k: int) -> tuple[UnfilledArrays, np.ndarray]:
        """The nearest entries, and (rows, k) their slots in the subsets, -1 where there are none."""
        code, subsets = self._retriever.snapshot.key_code, self.subsets
        given = np.ascontiguousarray(states.detach().to("cpu", torch.float32).numpy())
        rows = len(given)
        distances, places = np.full((rows, k), np.inf, np.float32), np.full((rows, k), -1, np.int64)
        near = NearArrays(
            distances, np.zeros((rows, k), np.int64), np.zeros(rows, np.int64), np.zeros((rows, k), np.float32)
        )
        stored = subsets.values, subsets.probabilities
        projection = code.projection if given.shape[1] != code.dims else None
        if code.level is None:
            points = given if projection is None else np.zeros((rows, code.dims), np.float32)

            def search(first: int, last: int) -> None:
                if projection is not None:
                    unchanged = np.zeros(code.dims, np.float32), np.ones(code.dims, np.float32)
                    nearest.project_rows(given, first, last, projection, *unchanged, points)
                found = distances, places
                nearest.nearest_floats(points, first, last, sources, subsets.begins, subsets.keys, *found)
                nearest.look_up(first, last, places, *stored, *near[1:])

            return UnfilledArrays(near, search), places
        queries = np.zeros((rows, 2 * subsets.keys.shape[1]), np.float32)
        if projection is None:
            queries[:, : code.dims] = code.levels(given)
        level = np.float32(code.level)

        def search_codes(first: int, last: int) -> None:
            if projection is not None:
                nearest.project_rows(given, first, last, projection, *code.levels_line, queries)
            arrays = subsets.begins, subsets.keys, subsets.norms, distances, places
            nearest.nearest_codes(queries, first, last, sources, *arrays)
            nearest.look_up(first, last, places, *stored, *near[1:])
            distances[first:last] *= level

        return UnfilledArrays(near, search_codes), places
