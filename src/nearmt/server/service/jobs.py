"""Import jobs: add uploaded files to a store in its writer thread, a few hundred pairs at a time."""

import contextlib
import logging
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

from nearmt.building.corrections import EditBatch
from nearmt.corpus import DropCounts, SentencePair, read_pairs
from nearmt.corpus.extensions import UPLOAD_FORMATS, format_by_name
from nearmt.errors import NearMTError, SettingError
from nearmt.server.http.errors import ApiError, unexpected
from nearmt.server.service.stores import StoreRegistry

log = logging.getLogger("nearmt.server")
_CHUNK_PAIRS = 200
_STEM = "upload"


@dataclass
class ImportJob:
    """An import and its progress. Only the thread that runs it changes it."""

    store: str
    origin: str
    owner: str
    forces_origin: bool = False  # whether `origin` replaces the origins stated in the file
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
    created_at: str = field(default_factory=lambda: utc_timestamp())
    finished_at: str | None = None


def utc_timestamp(seconds: float | None = None) -> str:
    """A Unix time, or now, in UTC to the second."""
    moment = datetime.now(UTC) if seconds is None else datetime.fromtimestamp(seconds, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def format_of(file_name: str, stated: str | None) -> str:
    """The format of an uploaded file: the one that the client states, or the one of the file name."""
    if stated is not None:
        if stated not in UPLOAD_FORMATS:
            raise ApiError(400, "bad_format", f"format must be one of {', '.join(UPLOAD_FORMATS)}")
        return stated
    found = format_by_name(file_name)
    if found is None:
        formats = ", ".join(UPLOAD_FORMATS)
        raise ApiError(400, "bad_format", f"unknown file name extension: set format to one of {formats}")
    return found


class Upload:
    """An uploaded file in a temporary folder. Its name on disk does not depend on the client."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="nearmt-upload-"))
        self.path = self.folder / _STEM

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


class ImportJobs:
    """The import jobs of a server. Finished jobs are kept until newer ones need their place."""

    def __init__(self, registry: StoreRegistry, max_jobs: int) -> None:
        self._registry, self._max_jobs = registry, max_jobs
        self._jobs: OrderedDict[str, ImportJob] = OrderedDict()
        self._is_closing = threading.Event()

    def start(self, job: ImportJob, upload: Upload, format: str) -> ImportJob:
        """Queue an import; the upload is removed at its end."""
        self._drop_finished()
        self._jobs[job.id] = job
        self._registry.writer(job.store).submit(self._run, job, upload, format)
        return job

    def _drop_finished(self) -> None:
        while len(self._jobs) >= self._max_jobs:
            finished = next((id for id, job in self._jobs.items() if job.finished_at is not None), None)
            if finished is None:
                message = "too many imports are waiting: try again later"
                raise ApiError(503, "too_many_jobs", message, {"Retry-After": "30"})
            del self._jobs[finished]

    def find(self, id: str) -> ImportJob | None:
        return self._jobs.get(id)

    def close(self) -> None:
        """Stop running imports after their current chunk."""
        self._is_closing.set()

    def _run(self, job: ImportJob, upload: Upload, format: str) -> None:
        job.state = "running"
        try:
            self._import(job, upload, format)
            job.state = "done"
        except NearMTError as error:
            job.error = self._registry.public_error(error, {upload.path: job.origin}).message
            job.state = "failed"
        except Exception:
            log.exception("the import into %s failed", job.store)
            job.error = unexpected().message
            job.state = "failed"
        finally:
            job.finished_at = utc_timestamp()
            upload.remove()

    def _import(self, job: ImportJob, upload: Upload, format: str) -> None:
        facts = self._registry.facts(job.store)

        def read(drops: DropCounts) -> Iterator[SentencePair]:
            return read_pairs(
                [upload.path],
                source_lang=facts.source_lang,
                target_lang=facts.target_lang,
                drops=drops,
                format=format,
            )

        job.total = sum(1 for _ in read(DropCounts()))  # also finds faults of the file before anything is added
        drops = DropCounts()
        pairs, batch = read(drops), EditBatch()
        while chunk := list(islice(pairs, _CHUNK_PAIRS)):
            if self._is_closing.is_set():
                raise SettingError(f"the server stopped after {job.done} of {job.total} pairs: import the file again")
            named = [
                replace(pair, origin=job.origin) if job.forces_origin or pair.origin in (None, _STEM) else pair
                for pair in chunk
            ]
            added = self._registry.add(job.store, named, batch)
            for name in ("added", "replaced", "duplicates", "unchanged", "too_long"):
                setattr(job, name, getattr(job, name) + getattr(added, name))
            job.done += len(chunk)
        job.dropped.update(drops.as_dict())


@contextlib.contextmanager
def removed_on_error(upload: Upload) -> Iterator[Upload]:
    """Removes the upload if an error occurs before its import is queued."""
    try:
        yield upload
    except BaseException:
        upload.remove()
        raise
