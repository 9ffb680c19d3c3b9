"""Imports of whole files: they run beside the translations, a few hundred pairs at a time, and tell their progress."""

import contextlib
import secrets
import shutil
import tempfile
import threading
from collections import Counter, OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Literal

from nearmt.building.corrections import Batch
from nearmt.corpus import DropCounts, SentencePair, read_pairs
from nearmt.corpus.extensions import UPLOAD_FORMATS, format_by_name
from nearmt.errors import NearMTError, SettingError
from nearmt.server.http.errors import ApiError
from nearmt.server.service.stores import StoreRegistry

_PAIRS_AT_ONCE = 200
_STEM = "upload"


@dataclass
class ImportJob:
    """How far an import is. Changed by its thread alone."""

    store: str
    origin: str
    owner: str
    forces_origin: bool = False  # also on pairs that state another
    id: str = field(default_factory=lambda: secrets.token_urlsafe(18))
    state: Literal["waiting", "running", "done", "failed"] = "waiting"
    done: int = 0
    total: int | None = None
    added: int = 0
    replaced: int = 0
    duplicates: int = 0
    unchanged: int = 0
    too_long: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    error: str | None = None
    created_at: str = field(default_factory=lambda: now())
    finished_at: str | None = None


def now() -> str:
    """UTC, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_of(file_name: str, stated: str | None) -> str:
    """The format of an uploaded file, by what the client says or by the name it gave."""
    if stated is not None:
        if stated not in UPLOAD_FORMATS:
            raise ApiError(400, "bad_format", f"the format is one of {', '.join(UPLOAD_FORMATS)}")
        return stated
    found = format_by_name(file_name)
    if found is None:
        raise ApiError(
            400, "bad_format", f"the file's name does not tell its format: say which of {', '.join(UPLOAD_FORMATS)}"
        )
    return found


class Upload:
    """A file that a client sent, in a folder of its own that goes away with it. Its name is ours, not the client's."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="nearmt-upload-"))
        self.path = self.folder / _STEM

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


class ImportJobs:
    """The imports of a server; those that are over are remembered for a while."""

    def __init__(self, registry: StoreRegistry, max_jobs: int) -> None:
        self._shelf, self._max_jobs = registry, max_jobs
        self._jobs: OrderedDict[str, ImportJob] = OrderedDict()
        self._is_closing = threading.Event()

    def start(self, job: ImportJob, upload: Upload, format: str) -> ImportJob:
        """Queue an import; the upload is removed when it is over."""
        self._make_room()
        self._jobs[job.id] = job
        self._shelf.writer(job.store).submit(self._run, job, upload, format)
        return job

    def _make_room(self) -> None:
        while len(self._jobs) >= self._max_jobs:
            over = next((id for id, job in self._jobs.items() if job.finished_at is not None), None)
            if over is None:
                raise ApiError(
                    503, "too_many_jobs", "too many imports are waiting: try again later", {"Retry-After": "30"}
                )
            del self._jobs[over]

    def find(self, id: str) -> ImportJob | None:
        return self._jobs.get(id)

    def close(self) -> None:
        """Let the imports under way end after what they are writing."""
        self._is_closing.set()

    def _run(self, job: ImportJob, upload: Upload, format: str) -> None:
        job.state = "running"
        try:
            self._import(job, upload, format)
            job.state = "done"
        except NearMTError as error:
            job.error = self._shelf.without_paths(str(error).replace(str(upload.path), job.origin))
            job.state = "failed"
        except Exception as error:
            job.error = f"this should not have happened: {type(error).__name__}"
            job.state = "failed"
            raise
        finally:
            job.finished_at = now()
            upload.remove()

    def _import(self, job: ImportJob, upload: Upload, format: str) -> None:
        drops = DropCounts()
        facts = self._shelf.facts(job.store)

        def read(counted: DropCounts) -> Iterator[SentencePair]:
            return read_pairs(
                [upload.path],
                source_lang=facts.source_lang,
                target_lang=facts.target_lang,
                drops=counted,
                format=format,
            )

        job.total = sum(
            1 for _ in read(DropCounts())
        )  # also finds what is wrong with the file before anything is added
        pairs, batch = read(drops), Batch()
        while chunk := list(islice(pairs, _PAIRS_AT_ONCE)):
            if self._is_closing.is_set():
                raise SettingError(
                    f"the server was stopped after {job.done} of {job.total} pairs: import the file again"
                )
            unnamed = (None, _STEM)
            named = [
                replace(pair, origin=job.origin) if job.forces_origin or pair.origin in unnamed else pair
                for pair in chunk
            ]
            added = self._shelf.add(job.store, named, batch)
            for name in ("added", "replaced", "duplicates", "unchanged", "too_long"):
                setattr(job, name, getattr(job, name) + getattr(added, name))
            job.done += len(chunk)
        job.dropped.update(drops.as_dict())


@contextlib.contextmanager
def kept_until_started(upload: Upload) -> Iterator[Upload]:
    """Removes the upload if anything goes wrong before its import is queued."""
    try:
        yield upload
    except BaseException:
        upload.remove()
        raise
