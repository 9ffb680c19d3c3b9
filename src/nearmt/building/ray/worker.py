"""The code of a worker: it loads one model and decodes tasks directly into the store's files.

Does not import ray. Errors are returned as sentences instead of raised, because Ray would wrap them.
"""

import socket
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from nearmt import __version__
from nearmt.building.compatibility import check_model
from nearmt.building.extract import extract_entries
from nearmt.datastore import Manifest, WrittenEntries, write_entries
from nearmt.errors import ClusterError, NearMTError, StoreError
from nearmt.models import Seq2Seq


@dataclass(frozen=True)
class Job:
    """What all workers of a build have in common."""

    folder: Path
    manifest: Manifest  # with the model, its engine and the key type
    batch_tokens: int
    dtype: str
    device: str
    threads: int
    offline: bool
    version: str = __version__


@dataclass(frozen=True)
class DecodingTask:
    """Tokenised sentences to decode, and the range of their entries."""

    number: int
    first_entry: int
    num_entries: int
    sources: list[list[int]]
    targets: list[list[int]]
    key_range: dict[str, Any] | None


@dataclass(frozen=True)
class Refusal:
    """Why a worker failed. Retrying would not help."""

    reason: str


class Worker:
    """Loads one model and decodes tasks."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._model: Seq2Seq | None = None

    def load(self) -> Refusal | None:
        """Check that this machine sees the folder of the build, and load its model."""
        try:
            torch.set_num_threads(self._job.threads)
            self._check_folder()
            self._model = self._load_model()
        except NearMTError as error:
            return _refusal(error)
        return None

    def decode(self, task: DecodingTask) -> WrittenEntries | Refusal:
        """Force-decode a task and write its entries to their range."""
        assert self._model is not None
        manifest = replace(self._job.manifest, key_range=task.key_range)
        try:
            data = extract_entries(
                self._model,
                (),  # the driver appends the texts
                task.sources,
                task.targets,
                key_type=manifest.key_type,
                batch_tokens=self._job.batch_tokens,
            )
            if len(data.values) != task.num_entries:
                raise ClusterError(f"a task has {len(data.values)} entries instead of {task.num_entries}")
            return write_entries(self._job.folder, manifest, task.first_entry, data)
        except NearMTError as error:
            return _refusal(error)

    def _check_folder(self) -> None:
        if self._job.version != __version__:
            raise ClusterError(f"it has nearmt {__version__}, and the build was started by nearmt {self._job.version}")
        try:
            found = Manifest.load(self._job.folder)
        except StoreError:
            found = None
        if found is None or found.created_at != self._job.manifest.created_at:
            raise StoreError(f"it does not see {self._job.folder}, which all workers must reach under the same path")

    def _load_model(self) -> Seq2Seq:
        described, languages = self._job.manifest.model, self._job.manifest.languages
        model = Seq2Seq.load(
            described["name"],
            revision=described["revision"],
            device=self._job.device,
            dtype=self._job.dtype,
            source_lang=languages.source,
            target_lang=languages.target,
            source_prefix=described["source_prefix"],
            offline=self._job.offline,
            engine=described["engine"],
        )
        check_model(self._job.manifest, model, self._job.folder)
        return model


def _refusal(error: NearMTError) -> Refusal:
    return Refusal(f"the worker on {socket.gethostname()} failed: {error}")
