"""Taking a memory in with the help of workers: they decode, this process commits in order."""

import contextlib
from collections import deque
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from nearmt.building.ingest import Ingestor, Pending
from nearmt.building.ray.connection import connected
from nearmt.building.ray.settings import RaySettings
from nearmt.building.ray.worker import Job, Piece
from nearmt.datastore import Manifest, SegmentData, WrittenEntries, append_written, make_room
from nearmt.errors import SettingError
from nearmt.models import Seq2Seq
from nearmt.progress import Progress

if TYPE_CHECKING:
    from nearmt.building.ray.pool import Pool


@contextlib.contextmanager
def ray_ingestor(
    model: Seq2Seq, batch_tokens: int, settings: RaySettings, progress: Progress
) -> Iterator["RayIngestor"]:
    """An ingestor whose sentences are decoded on Ray, joined or started for as long as this lasts."""
    if settings.gpus and model.engine != "torch":
        raise SettingError(f"workers with a GPU run the engine torch, and the model was loaded for {model.engine}")
    with connected(settings):
        yield RayIngestor(model, batch_tokens, settings, progress)


@dataclass(frozen=True)
class _Dealt:
    """A piece that will be committed when its turn comes."""

    number: int
    pending: Pending
    entry_counts: np.ndarray  # (sentences,)

    @property
    def num_entries(self) -> int:
        return int(self.entry_counts.sum())

    def data(self, width: int) -> SegmentData:
        """What this process writes of it: all but the entries."""
        empty = SegmentData.without_entries(width, self.pending.units, self.pending.removed_units)
        return replace(empty, pairs=self.pending.pairs, entry_counts=self.entry_counts)


class RayIngestor(Ingestor):
    """Decides what becomes of each pair, and has the new sentences decoded elsewhere."""

    def __init__(self, model: Seq2Seq, batch_tokens: int, settings: RaySettings, progress: Progress) -> None:
        super().__init__(model, batch_tokens)
        self.settings, self.progress = settings, progress

    def append_each(
        self, folder: Path, manifest: Manifest, pieces: Iterator[Pending]
    ) -> Generator[tuple[Pending, Manifest], None, None]:
        """Have pieces decoded side by side, and append them in order."""
        from nearmt.building.ray.pool import Pool

        make_room(folder, manifest)
        line: deque[_Dealt] = deque()  # in the order in which they will be appended
        next_entry = manifest.num_entries
        with Pool(self._job(folder, manifest), self.settings, self.progress) as pool:
            for number, pending in enumerate(pieces):
                kept = [len(self.model.kept_positions(target)) for target in pending.targets]
                dealt = _Dealt(number, pending, np.array(kept, np.int64))
                line.append(dealt)
                if dealt.num_entries:
                    sentences = pending.sources, pending.targets
                    pool.submit(Piece(number, next_entry, dealt.num_entries, *sentences, manifest.key_range))
                    next_entry += dealt.num_entries
                # How one-byte keys are written is learned from the first piece: until then there is no second.
                while line and (
                    _lacks_key_range(manifest) or len(line) >= pool.capacity or line[0].number in pool.finished
                ):
                    manifest = _append_dealt(folder, manifest, line[0], pool)
                    yield line.popleft().pending, manifest
            while line:
                manifest = _append_dealt(folder, manifest, line[0], pool)
                yield line.popleft().pending, manifest

    def _job(self, folder: Path, manifest: Manifest) -> Job:
        settings = self.settings
        device = "cuda" if settings.gpus else "cpu"
        return Job(
            folder, manifest, self.batch_tokens, self.model.dtype, device, settings.threads, settings.offline
        )  # fmt: skip


def _append_dealt(folder: Path, manifest: Manifest, dealt: _Dealt, pool: "Pool") -> Manifest:
    """Append a piece once its entries are written."""
    if dealt.pending.is_empty:
        return manifest
    written = pool.result(dealt.number) if dealt.num_entries else WrittenEntries({}, manifest.key_range)
    return append_written(folder, manifest, dealt.data(manifest.width), written)


def _lacks_key_range(manifest: Manifest) -> bool:
    return manifest.key_type == "int8" and manifest.key_range is None
