"""A store as one reader sees it: memory-mapped columns up to what one manifest counts."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from nearmt.corpus import SentencePair
from nearmt.errors import StoreDamagedError
from nearmt.store.columns import (
    KEY_TYPES,
    POSITIONS,
    PROBABILITIES,
    SENTENCE,
    VALUES,
    columns_of,
    pair_hash,
    text_hash,
)
from nearmt.store.manifest import Manifest


class Snapshot:
    """The state of one commit. Later commits append beyond it or write elsewhere, so it never changes."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder, self.manifest = folder, manifest
        self._check_sizes()
        entries, key_type = manifest.num_entries, manifest.key_type
        self.keys = self._map(f"keys.{key_type}", KEY_TYPES[key_type], (entries, manifest.width))
        self.values = self._map("values.int32", VALUES, (entries,))
        self.probabilities = self._map("probabilities.float16", PROBABILITIES, (entries,))
        self.positions = self._map("positions.uint16", POSITIONS, (entries,))
        self.sentences = self._map("sentences.bin", SENTENCE, (manifest.num_sentences,))
        self._texts = self._map("texts.jsonl", np.dtype("u1"), (manifest.num_text_bytes,))

    @classmethod
    def open(cls, folder: str | Path) -> "Snapshot":
        """The store in `folder` as it is now."""
        return cls(Path(folder), Manifest.load(Path(folder)))

    def __repr__(self) -> str:
        return f"Snapshot({str(self.folder)!r}, {len(self)} entries, version {self.manifest.version})"

    def __len__(self) -> int:
        return self.manifest.num_entries

    def _check_sizes(self) -> None:
        if not self.manifest.segments:
            return
        for column in columns_of(self.manifest):
            path = self.folder / self.manifest.data_folder / column.name
            start, length = column.range_of(self.manifest.segments[-1])
            size = path.stat().st_size if path.exists() else None
            if size is None:
                raise StoreDamagedError(f"{path} is missing")
            if size < start + length:
                raise StoreDamagedError(f"{path} is cut short: it has {size} bytes and should have {start + length}")

    def _map(self, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray:
        if 0 in shape:
            return np.zeros(shape, dtype)
        # "c" maps privately: pages are shared with the file, and torch takes the array without a copy.
        return np.memmap(self.folder / self.manifest.data_folder / name, dtype, "c", shape=shape)

    def sentence_ids_of(self, entry_ids: np.ndarray | int) -> np.ndarray:
        """Which sentence each entry belongs to."""
        found: np.ndarray = np.searchsorted(self.sentences["first_entry"], entry_ids, side="right") - 1
        return found

    def entry_range(self, sentence_id: int) -> tuple[int, int]:
        """The entries of a sentence: first, and one past the last."""
        first = int(self.sentences["first_entry"][sentence_id])
        is_last = sentence_id + 1 == len(self.sentences)
        return first, len(self) if is_last else int(self.sentences["first_entry"][sentence_id + 1])

    def text(self, sentence_id: int) -> SentencePair:
        """The segment that a sentence id stands for."""
        start = int(self.sentences["text_start"][sentence_id])
        is_last = sentence_id + 1 == len(self.sentences)
        end = len(self._texts) if is_last else int(self.sentences["text_start"][sentence_id + 1])
        try:
            return SentencePair(**json.loads(self._texts[start:end].tobytes().decode("utf-8", "surrogatepass")))
        except (ValueError, TypeError) as error:
            path = self.folder / self.manifest.data_folder / "texts.jsonl"
            raise StoreDamagedError(f"{path} is damaged at byte {start}: run nearmt verify") from error

    def texts(self) -> Iterator[SentencePair]:
        """All segments, in the order of their sentence ids."""
        return (self.text(i) for i in range(len(self.sentences)))


class TextLookup:
    """Finds sentences of a snapshot by their texts."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._columns = {}
        for name in ("pair_hash", "source_hash", "target_hash"):
            column = np.asarray(snapshot.sentences[name])
            order = np.argsort(column, kind="stable")
            self._columns[name] = (column[order], order)

    def _find(self, name: str, value: int) -> np.ndarray:
        ordered, order = self._columns[name]
        wanted = np.uint64(value)
        return order[np.searchsorted(ordered, wanted, "left") : np.searchsorted(ordered, wanted, "right")]

    def same_pair(self, pair: SentencePair) -> np.ndarray:
        """Sentences with this source and this target."""
        return self._find("pair_hash", pair_hash(pair))

    def same_source(self, text: str) -> np.ndarray:
        """Sentences with this source."""
        return self._find("source_hash", text_hash(text))

    def same_source_or_target(self, pair: SentencePair) -> np.ndarray:
        """Sentences with this source or this target."""
        return np.union1d(self.same_source(pair.source), self._find("target_hash", text_hash(pair.target)))
