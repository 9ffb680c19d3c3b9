"""A pool of workers on Ray: deals out pieces, collects what was written, and does a lost worker's pieces again."""

import contextlib
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import ray
from ray.exceptions import RayError, RayTaskError

from nearmt.building.ray.connection import first_line
from nearmt.building.ray.settings import RaySettings
from nearmt.building.ray.worker import Job, Piece, Refusal, Worker
from nearmt.datastore import WrittenEntries
from nearmt.errors import ClusterError
from nearmt.progress import Progress

_IN_HAND = 2  # pieces a worker has: it works on one, and the next is there when it is done
_MAX_LOSSES = 4  # workers that may be lost over one piece, or one after another while they load the model
_PATIENCE = 600.0  # seconds until the first worker must have its model
_LOOK = 5.0  # seconds between looks at the clock


@dataclass(eq=False)
class _Member:
    """A worker as it is seen from here."""

    actor: Any
    is_ready: bool = False
    pieces: dict[Any, Piece] = field(default_factory=dict)  # what it has in hand, by what Ray promised for it


class Pool:
    """Workers for the length of one build."""

    def __init__(self, job: Job, settings: RaySettings, progress: Progress) -> None:
        self.finished: dict[int, WrittenEntries] = {}
        self._job, self._settings, self._progress = job, settings, progress
        self._members: list[_Member] = []
        self._loading: dict[Any, _Member] = {}
        self._waiting: deque[Piece] = deque()
        self._losses: Counter[int] = Counter()  # by piece
        self._failed_starts = 0  # since a worker last had its model
        self._begun = time.monotonic()

    def __enter__(self) -> Self:
        for _ in range(self._settings.workers):
            self._start_worker()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with contextlib.suppress(RayError):  # a cluster that is gone has taken them along
            for member in self._members:
                ray.kill(member.actor)

    @property
    def capacity(self) -> int:
        """Pieces that keep all workers busy, with some to spare while one is done that others wait for."""
        return 2 * _IN_HAND * self._settings.workers

    def submit(self, piece: Piece) -> None:
        """Have a piece decoded when its turn comes."""
        self._waiting.append(piece)
        self._deal()
        self._collect(timeout=0)

    def result(self, number: int) -> WrittenEntries:
        """What was written of a piece, when it is."""
        while number not in self.finished:
            self._collect(timeout=_LOOK)
        return self.finished.pop(number)

    def _start_worker(self) -> None:
        settings = self._settings
        made = ray.remote(Worker).options(
            num_cpus=settings.threads, num_gpus=settings.gpus, max_restarts=0, scheduling_strategy="SPREAD"
        )
        member = _Member(made.remote(self._job))
        self._members.append(member)
        self._loading[member.actor.load.remote()] = member

    def _deal(self) -> None:
        """Give pieces to workers that have few in hand."""
        for held in range(_IN_HAND):
            for member in self._members:
                if self._waiting and member.is_ready and len(member.pieces) <= held:
                    piece = self._waiting.popleft()
                    member.pieces[member.actor.decode.remote(piece)] = piece

    def _collect(self, timeout: float) -> None:
        """Take what is done, within so many seconds."""
        while promised := [*self._loading, *(promise for member in self._members for promise in member.pieces)]:
            done, _ = ray.wait(promised, timeout=timeout)
            if not done:
                break
            self._settle(done[0])
            timeout = 0  # whatever else is done by now
        if not any(member.is_ready for member in self._members) and time.monotonic() - self._begun > _PATIENCE:
            free = {name: n for name, n in ray.available_resources().items() if name in ("CPU", "GPU")}
            wanted = f"{self._settings.threads} CPU" + (f", {self._settings.gpus:g} GPU" if self._settings.gpus else "")
            raise ClusterError(
                f"no worker was ready within {_PATIENCE / 60:.0f} minutes: each needs {wanted}, and the cluster has "
                f"{', '.join(f'{n:g} {name}' for name, n in sorted(free.items())) or 'nothing'} free"
            )
        self._deal()

    def _settle(self, promise: Any) -> None:
        member = self._loading.get(promise) or next(m for m in self._members if promise in m.pieces)
        try:
            answer = ray.get(promise)
        except RayTaskError as error:
            raise ClusterError(f"a worker failed: {type(error.cause).__name__}: {first_line(error.cause)}") from error
        except RayError as error:
            self._replace(member, promise, error)
            return
        if isinstance(answer, Refusal):
            raise ClusterError(answer.reason)
        if promise in self._loading:
            del self._loading[promise]
            member.is_ready, self._failed_starts, self._begun = True, 0, time.monotonic()
            self._tell()
        else:
            self.finished[member.pieces.pop(promise).number] = answer

    def _replace(self, member: _Member, promise: Any, error: RayError) -> None:
        """Let a new worker take a lost one's place, and its pieces be the next."""
        ray.kill(member.actor)  # it may only be out of reach, and must not write any more
        self._members.remove(member)
        if self._loading.pop(promise, None) is not None:
            self._failed_starts += 1
        for piece in sorted(member.pieces.values(), key=lambda piece: piece.number, reverse=True):
            self._losses[piece.number] += 1
            self._waiting.appendleft(piece)
        most = max([self._failed_starts, *(self._losses[piece.number] for piece in member.pieces.values())])
        if most >= _MAX_LOSSES:
            while_doing = "while they loaded the model" if not member.is_ready else "over the same sentences"
            raise ClusterError(f"{most} workers were lost {while_doing}, the last because {_cause(error)}")
        self._tell()
        self._start_worker()

    def _tell(self) -> None:
        self._progress("workers", sum(member.is_ready for member in self._members), self._settings.workers)


def _cause(error: RayError) -> str:
    """What Ray knows of a worker's end, without its advice."""
    if "creation task" in str(error):
        return str(error).strip().splitlines()[-1].strip()[:300]  # a traceback, such as of a missing package
    text = " ".join(str(error).split())
    for beginning in ("Worker exit detail: ", "The actor is dead because "):
        if beginning in text:
            text = text.split(beginning, 1)[1]
            break
    for advice in (" Some common causes", " There are some potential"):
        text = text.split(advice, 1)[0]
    return text.rstrip(".")[:300]
