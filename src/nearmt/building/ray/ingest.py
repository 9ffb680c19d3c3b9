"""Ingesting a memory with workers on Ray: they decode, this process commits in order."""

import contextlib
from collections import deque
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from nearmt.building.ingest import Ingestor, PendingCommit
from nearmt.building.ray.connection import connected
from nearmt.building.ray.settings import RaySettings
from nearmt.building.ray.worker import DecodingTask, Job
from nearmt.datastore import CommitData, Manifest, WrittenEntries, append_commit, prepare_entry_files
from nearmt.errors import SettingError
from nearmt.models import Seq2Seq
from nearmt.progress import Progress

if TYPE_CHECKING:
    from nearmt.building.ray.pool import Pool


@contextlib.contextmanager
def ray_ingestor(
    model: Seq2Seq, batch_tokens: int, settings: RaySettings, progress: Progress
) -> Iterator["RayIngestor"]:
    """Connect to Ray, and make an ingestor whose sentences are decoded there."""
    if settings.gpus and model.engine != "torch":
        raise SettingError(f"workers with `gpus` need the engine torch, and the model was loaded for {model.engine}")
    with connected(settings):
        yield RayIngestor(model, batch_tokens, settings, progress)


@dataclass(frozen=True)
class _SubmittedCommit:
    """A commit that workers decode; it is appended when those before it are."""

    number: int
    pending: PendingCommit
    entry_counts: np.ndarray  # (sentences,)

    @property
    def num_entries(self) -> int:
        return int(self.entry_counts.sum())

    def append(self, folder: Path, manifest: Manifest, pool: "Pool") -> Manifest:
        """Wait until the entries are written, then append the rest."""
        if self.pending.is_empty:
            return manifest
        written = pool.result(self.number) if self.num_entries else WrittenEntries({}, manifest.key_range)
        data = CommitData.without_entries(manifest.width, self.pending.units, self.pending.removed_units)
        data = replace(data, pairs=self.pending.pairs, entry_counts=self.entry_counts)
        return append_commit(folder, manifest, data, written)


class RayIngestor(Ingestor):
    """Has new sentences force-decoded by workers on Ray."""

    def __init__(self, model: Seq2Seq, batch_tokens: int, settings: RaySettings, progress: Progress) -> None:
        super().__init__(model, batch_tokens)
        self.settings, self.progress = settings, progress

    def append_all(
        self, folder: Path, manifest: Manifest, commits: Iterator[PendingCommit]
    ) -> Generator[tuple[PendingCommit, Manifest], None, None]:
        """Decode commits in parallel and append them in order."""
        from nearmt.building.ray.pool import Pool

        prepare_entry_files(folder, manifest)
        queue: deque[_SubmittedCommit] = deque()  # in the order in which they will be appended
        next_entry = manifest.num_entries
        with Pool(self._job(folder, manifest), self.settings, self.progress) as pool:
            for number, pending in enumerate(commits):
                kept = [len(self.model.kept_positions(target)) for target in pending.targets]
                submitted = _SubmittedCommit(number, pending, np.array(kept, np.int64))
                queue.append(submitted)
                if num_entries := submitted.num_entries:
                    pool.submit(
                        DecodingTask(
                            number, next_entry, num_entries, pending.sources, pending.targets, manifest.key_range
                        )
                    )
                    next_entry += num_entries
                # The first commit decides how keys are coded, so it must be finished before the second is submitted.
                while queue and (
                    manifest.lacks_key_code or len(queue) >= pool.capacity or queue[0].number in pool.finished
                ):
                    manifest = queue[0].append(folder, manifest, pool)
                    yield queue.popleft().pending, manifest
            while queue:
                manifest = queue[0].append(folder, manifest, pool)
                yield queue.popleft().pending, manifest

    def _job(self, folder: Path, manifest: Manifest) -> Job:
        return Job(
            folder,
            manifest,
            self.batch_tokens,
            dtype=self.model.dtype,
            device="cuda" if self.settings.gpus else "cpu",
            threads=self.settings.threads,
            offline=self.settings.offline,
        )
