"""What runs on a worker: one model, which decodes piece after piece straight into the store's files.

Knows nothing of Ray. What goes wrong is handed back as a sentence, not raised, so that it arrives as it was said.
"""

import socket
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from nearmt import __version__
from nearmt.building.compatibility import check_model
from nearmt.building.extract import decode_segment
from nearmt.datastore import Manifest, WrittenEntries, write_entries
from nearmt.errors import ClusterError, NearMTError, StoreError
from nearmt.models import Seq2Seq


@dataclass(frozen=True)
class Job:
    """What every worker of a build is told."""

    folder: Path
    manifest: Manifest  # the model, its engine and how keys are written
    batch_tokens: int
    dtype: str
    device: str
    threads: int
    offline: bool
    version: str = __version__


@dataclass(frozen=True)
class Piece:
    """Sentences to decode, and where their entries belong."""

    number: int
    first_entry: int
    num_entries: int
    sources: list[list[int]]
    targets: list[list[int]]
    key_range: dict[str, list[float]] | None


@dataclass(frozen=True)
class Refusal:
    """Why a worker cannot do what was asked: doing it again would not help."""

    reason: str


class Worker:
    """Holds one model."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._model: Seq2Seq | None = None

    def load(self) -> Refusal | None:
        """Load the build's model and look whether this is the build's folder."""
        try:
            torch.set_num_threads(self._job.threads)
            self._check_place()
            self._model = self._load_model()
        except NearMTError as error:
            return _refusal(error)
        return None

    def decode(self, piece: Piece) -> WrittenEntries | Refusal:
        """Force-decode a piece and put its entries in their place."""
        assert self._model is not None
        manifest = replace(self._job.manifest, key_range=piece.key_range)
        try:
            data = decode_segment(
                self._model,
                (),  # the texts stay with the one who commits
                piece.sources,
                piece.targets,
                key_type=manifest.key_type,
                batch_tokens=self._job.batch_tokens,
            )
            if len(data.values) != piece.num_entries:
                raise ClusterError(f"a piece has {len(data.values)} entries and should have {piece.num_entries}")
            return write_entries(self._job.folder, manifest, piece.first_entry, data)
        except NearMTError as error:
            return _refusal(error)

    def _check_place(self) -> None:
        if self._job.version != __version__:
            raise ClusterError(f"it has nearmt {__version__}, and the build was begun by nearmt {self._job.version}")
        try:
            found = Manifest.load(self._job.folder)
        except StoreError:
            found = None
        if found is None or found.created_at != self._job.manifest.created_at:
            raise StoreError(f"it does not see {self._job.folder}, which all workers must reach under the same name")

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
    return Refusal(f"the worker on {socket.gethostname()} gave up: {error}")
