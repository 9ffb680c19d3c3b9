"""A store as one reader sees it: the memory-mapped columns of one commit."""

import json
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from nearmt.corpus import SentencePair
from nearmt.datastore.columns import (
    POSITIONS,
    PROBABILITIES,
    REMOVALS,
    REMOVALS_FILE,
    SENTENCE,
    VALUES,
    columns_of,
)
from nearmt.datastore.commit_log import LOG
from nearmt.datastore.keys import KeyCode
from nearmt.datastore.manifest import Manifest
from nearmt.datastore.units import UNIT, Unit
from nearmt.errors import StoreDamagedError, StoreError

_TRIES = 5
_BLOCK = 2048  # bytes read at a time to find the end of a line
T = TypeVar("T")


class Snapshot:
    """The state of a store at one commit. Later commits append after it or write other files, so it never changes."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder, self.manifest = folder, manifest
        self._check_sizes()
        counts, key_type = manifest.extent.counts, manifest.key_type
        self.key_code = KeyCode.of(folder, manifest)
        self.keys = self._map(f"keys.{key_type}", self.key_code.dtype, (counts.entries, manifest.key_dims))
        self.values = self._map("values.int32", VALUES, (counts.entries,))
        self.probabilities = self._map("probabilities.float16", PROBABILITIES, (counts.entries,))
        self.positions = self._map("positions.uint16", POSITIONS, (counts.entries,))
        self.sentences = self._map("sentences.bin", SENTENCE, (counts.sentences,))
        self.units = self._map("units.bin", UNIT, (counts.units,))
        self._texts = self._map("texts.jsonl", np.dtype("u1"), (counts.text_bytes,))
        self._unit_texts = self._map("units.jsonl", np.dtype("u1"), (counts.unit_bytes,))
        self.removals = self._map(REMOVALS_FILE, REMOVALS, (counts.removals,))

    @classmethod
    def open(cls, folder: str | Path) -> "Snapshot":
        """Open the store in `folder` at its latest commit."""
        return open_latest(Path(folder), cls)

    def __repr__(self) -> str:
        return f"Snapshot({str(self.folder)!r}, {len(self)} entries, version {self.manifest.version})"

    def __len__(self) -> int:
        return self.manifest.num_entries

    def _check_sizes(self) -> None:
        if not self.manifest.extent.segments:
            return
        extent = self.manifest.extent
        sizes = {column.name: column.size_at(extent.counts) for column in columns_of(self.manifest)}
        for name, wanted in {**sizes, LOG: extent.log_bytes}.items():
            path = self.folder / self.manifest.data_folder / name
            size = path.stat().st_size if path.exists() else None
            if size is None:
                raise StoreDamagedError(f"{path} is missing: run nearmt verify")
            if size < wanted:
                raise StoreDamagedError(f"{path} is cut short ({size} bytes instead of {wanted}): run nearmt verify")

    def _map(self, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray:
        if 0 in shape:
            return np.zeros(shape, dtype)
        # "c" maps copy-on-write: pages are shared with the file, and torch uses the array without copying it.
        return np.memmap(self.folder / self.manifest.data_folder / name, dtype, "c", shape=shape)

    # Entries

    def keys_of(self, entry_ids: torch.Tensor) -> torch.Tensor:
        """(…, dims) float32; 0 for missing entries (-1)."""
        if self.keys.dtype != np.uint8:
            return entries_of(self.keys, entry_ids)
        if not len(self):
            return torch.zeros(*entry_ids.shape, self.key_code.dims)
        keys = self.key_code.decode(self.keys[entry_ids.clamp_min(0).numpy()])
        return torch.from_numpy(keys).masked_fill_((entry_ids < 0).unsqueeze(-1), 0)

    def project(self, states: torch.Tensor) -> torch.Tensor:
        """Decoder states (rows, width) as points in the space of the keys, (rows, dims) float32 on the CPU."""
        return torch.from_numpy(self.key_code.project(states.detach().to("cpu", torch.float32).numpy()))

    def probabilities_of(self, entry_ids: torch.Tensor) -> torch.Tensor:
        """(…) the model's own probability of each entry's value; 0 for missing entries (-1)."""
        return entries_of(self.probabilities, entry_ids)

    def float_keys(self, rows: slice | np.ndarray) -> np.ndarray:
        """(rows, dims) float32, by slice or by entry ids."""
        return self.key_code.decode(self.keys[rows])

    def sentence_ids_of(self, entry_ids: np.ndarray | int) -> np.ndarray:
        """Which sentence each entry belongs to."""
        found: np.ndarray = np.searchsorted(self.sentences["first_entry"], entry_ids, side="right") - 1
        return found

    def entry_range(self, sentence_id: int) -> tuple[int, int]:
        """The entries of a sentence: the first, and one past the last."""
        first = int(self.sentences["first_entry"][sentence_id])
        is_last = sentence_id + 1 == len(self.sentences)
        return first, len(self) if is_last else int(self.sentences["first_entry"][sentence_id + 1])

    @property
    def sentence_ends(self) -> np.ndarray:
        """(sentences,) one past the last entry of each."""
        return np.append(self.sentences["first_entry"], len(self))[1:]

    @property
    def sentence_sizes(self) -> np.ndarray:
        """(sentences,) the number of entries of each."""
        sizes: np.ndarray = self.sentence_ends - self.sentences["first_entry"]
        if len(sizes) and (sizes.min() < 0 or self.sentences["first_entry"][0] != 0):
            raise self._damaged("sentences.bin")
        return sizes

    def entry_mask(self, sentence_mask: np.ndarray) -> np.ndarray:
        """(entries,) True if the entry belongs to a sentence of the mask."""
        return np.repeat(sentence_mask, self.sentence_sizes)

    # Sentences and units

    @cached_property
    def live_units(self) -> np.ndarray:
        """(units,) True if the unit was not removed."""
        alive = np.ones(len(self.units), bool)
        if not _all_below(self.removals, len(self.units)):
            raise self._damaged(REMOVALS_FILE)
        alive[self.removals] = False
        return alive

    @cached_property
    def live_sentences(self) -> np.ndarray:
        """(sentences,) True if the sentence has a live unit."""
        return self.sentences_with(self.live_units)

    def sentences_with(self, unit_mask: np.ndarray) -> np.ndarray:
        """(sentences,) True if the sentence has a unit of the mask."""
        alive = np.zeros(len(self.sentences), bool)
        named = self.units["sentence"][unit_mask]
        if not _all_below(named, len(self.sentences)):
            raise self._damaged("units.bin")
        alive[named] = True
        return alive

    @property
    def commit_starts(self) -> np.ndarray:
        """The first sentence of each commit, if known."""
        return np.zeros(0, np.int64)

    @property
    def live_sentence_ids(self) -> np.ndarray:
        """The live sentences, in order."""
        return np.flatnonzero(self.live_sentences)

    @cached_property
    def waiting_sentences(self) -> np.ndarray:
        """(sentences,) True if the sentence is live and has no entries, because a repair had no model to compute them.

        Every other sentence has at least one entry, for its end-of-sentence token.
        """
        has_none: np.ndarray = self.sentence_ends == self.sentences["first_entry"]
        return has_none & self.live_sentences if has_none.any() else has_none

    @property
    def has_removals(self) -> bool:
        return len(self.removals) > 0

    @cached_property
    def _further_units(self) -> dict[int, list[int]]:
        """Sentence id → its units other than the first."""
        found: dict[int, list[int]] = {}
        for number in np.flatnonzero(self.units["is_first"] == 0):
            found.setdefault(int(self.units["sentence"][number]), []).append(int(number))
        return found

    def unit(self, number: int) -> Unit:
        """One unit by its number."""
        start = int(self.units["text_start"][number])
        try:
            return Unit.read(self.units[number], _line_at(self._unit_texts, start))
        except ValueError as error:
            raise self._damaged("units.jsonl", start) from error

    def unit_numbers_of(self, sentence_id: int) -> list[int]:
        """Numbers of the live units of a sentence, oldest first."""
        first = int(self.sentences["first_unit"][sentence_id])
        return [n for n in (first, *self._further_units.get(sentence_id, ())) if self.live_units[n]]

    def units_of(self, sentence_id: int) -> list[Unit]:
        """The live units of a sentence, oldest first."""
        return [self.unit(number) for number in self.unit_numbers_of(sentence_id)]

    def text(self, sentence_id: int) -> SentencePair:
        """The sentence pair with its oldest live unit."""
        source, target = self.sides(sentence_id)
        numbers = self.unit_numbers_of(sentence_id)
        unit = self.unit(numbers[0] if numbers else int(self.sentences["first_unit"][sentence_id]))
        return SentencePair(source, target, unit.unit_id, unit.origin, unit.changed_at)

    def sides(self, sentence_id: int) -> tuple[str, str]:
        """Source and target of a sentence."""
        start = int(self.sentences["text_start"][sentence_id])
        try:
            texts = json.loads(_line_at(self._texts, start).decode("utf-8", "surrogatepass"))
            return texts["source"], texts["target"]
        except (ValueError, TypeError, KeyError) as error:
            raise self._damaged("texts.jsonl", start) from error

    def texts(self) -> Iterator[SentencePair]:
        """All live sentence pairs, in order."""
        return (self.text(int(i)) for i in self.live_sentence_ids)

    def all_units(self) -> Iterator[SentencePair]:
        """Every live unit as a sentence pair, in the order of the sentences."""
        for sentence_id in self.live_sentence_ids.tolist():
            pair = self.text(sentence_id)
            for unit in self.units_of(sentence_id):
                yield SentencePair(pair.source, pair.target, unit.unit_id, unit.origin, unit.changed_at)

    def _damaged(self, name: str, at: int | None = None) -> StoreDamagedError:
        path = self.folder / self.manifest.data_folder / name
        where = "" if at is None else f" at byte {at}"
        return StoreDamagedError(f"{path} is damaged{where}: run nearmt verify")


def _all_below(numbers: np.ndarray, end: int) -> bool:
    return not len(numbers) or bool(numbers.min() >= 0 and numbers.max() < end)


def _line_at(column: np.ndarray, start: int) -> bytes:
    """The line of a text file that begins at a byte, without its line break."""
    line = b""
    for at in range(start, len(column), _BLOCK):
        block = column[at : at + _BLOCK].tobytes()
        line += block
        if b"\n" in block:
            break
    return line.partition(b"\n")[0]


def open_latest(folder: Path, open_with: Callable[[Path, Manifest], T]) -> T:
    """Open a store at its latest manifest with `open_with`.

    Compaction may delete files between reading the manifest and opening them. Then there is a newer manifest to try.
    """
    manifest = Manifest.load(folder)
    for _ in range(_TRIES):
        try:
            return open_with(folder, manifest)
        except (StoreError, FileNotFoundError):
            newer = Manifest.load(folder)
            if (newer.data_folder, newer.index_files) == (manifest.data_folder, manifest.index_files):
                raise
            manifest = newer
    return open_with(folder, manifest)


def entries_of(column: np.ndarray, entry_ids: torch.Tensor) -> torch.Tensor:
    """Values of a column for these entries, as float32; 0 for missing entries (-1)."""
    shape = (*entry_ids.shape, *column.shape[1:])
    if not len(column):
        return torch.zeros(shape)
    rows = torch.from_numpy(column).index_select(0, entry_ids.clamp_min(0).reshape(-1))
    out, missing = rows.view(shape).float(), entry_ids < 0
    return out.masked_fill_(missing.view(*entry_ids.shape, *[1] * (column.ndim - 1)), 0) if missing.any() else out
