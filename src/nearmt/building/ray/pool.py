"""A pool of workers on Ray: assigns tasks, collects the results, and repeats the tasks of lost workers."""

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
from nearmt.building.ray.worker import DecodingTask, Job, Refusal, Worker
from nearmt.datastore import WrittenEntries
from nearmt.errors import ClusterError
from nearmt.progress import Progress

_TASKS_PER_WORKER = 2  # one is being decoded, the next is ready
_MAX_LOSSES = 4  # workers lost over one task, or in a row while loading the model, before the build fails
_START_TIMEOUT = 600.0  # seconds until the first worker must be ready
_POLL_SECONDS = 5.0


@dataclass(eq=False)
class _Member:
    """A worker and its tasks."""

    actor: Any
    is_ready: bool = False
    tasks: dict[Any, DecodingTask] = field(default_factory=dict)  # Ray's reference to the result → task


class Pool:
    """The workers of one build."""

    def __init__(self, job: Job, settings: RaySettings, progress: Progress) -> None:
        self.finished: dict[int, WrittenEntries] = {}
        self._job, self._settings, self._progress = job, settings, progress
        self._members: list[_Member] = []
        self._loading: dict[Any, _Member] = {}
        self._queue: deque[DecodingTask] = deque()
        self._losses: Counter[int] = Counter()  # by task
        self._failed_starts = 0  # since a worker was last ready
        self._waiting_since = time.monotonic()

    def __enter__(self) -> Self:
        for _ in range(self._settings.workers):
            self._start_worker()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with contextlib.suppress(RayError):  # the workers of a lost cluster are gone too
            for member in self._members:
                ray.kill(member.actor)

    @property
    def capacity(self) -> int:
        """Number of tasks that keeps all workers busy, with some in reserve while the commits wait for a slow one."""
        return 2 * _TASKS_PER_WORKER * self._settings.workers

    def submit(self, task: DecodingTask) -> None:
        """Queue a task."""
        self._queue.append(task)
        self._assign()
        self._collect(timeout=0)

    def result(self, number: int) -> WrittenEntries:
        """Wait for the result of a task."""
        while number not in self.finished:
            self._collect(timeout=_POLL_SECONDS)
        return self.finished.pop(number)

    def _start_worker(self) -> None:
        settings = self._settings
        actor = ray.remote(Worker).options(
            num_cpus=settings.threads, num_gpus=settings.gpus, max_restarts=0, scheduling_strategy="SPREAD"
        )
        member = _Member(actor.remote(self._job))
        self._members.append(member)
        self._loading[member.actor.load.remote()] = member

    def _assign(self) -> None:
        """Assign queued tasks to the ready workers with the fewest tasks."""
        for num_tasks in range(_TASKS_PER_WORKER):
            for member in self._members:
                if self._queue and member.is_ready and len(member.tasks) <= num_tasks:
                    task = self._queue.popleft()
                    member.tasks[member.actor.decode.remote(task)] = task

    def _collect(self, timeout: float) -> None:
        """Collect finished results, waiting up to `timeout` seconds for the first."""
        while expected := [*self._loading, *(result for member in self._members for result in member.tasks)]:
            done, _ = ray.wait(expected, timeout=timeout)
            if not done:
                break
            self._handle(done[0])
            timeout = 0  # then only what is already finished
        self._check_started()
        self._assign()

    def _check_started(self) -> None:
        """Fail if no worker has become ready in time."""
        is_late = time.monotonic() - self._waiting_since > _START_TIMEOUT
        if is_late and not any(member.is_ready for member in self._members):
            resources = sorted(ray.available_resources().items())
            free = ", ".join(f"{n:g} {name}" for name, n in resources if name in ("CPU", "GPU"))
            needed = f"{self._settings.threads} CPU" + (f", {self._settings.gpus:g} GPU" if self._settings.gpus else "")
            raise ClusterError(
                f"no worker was ready within {_START_TIMEOUT / 60:.0f} minutes: "
                f"each needs {needed}, and the cluster has {free or 'nothing'} free"
            )

    def _handle(self, result: Any) -> None:
        """Handle one finished result: a loaded model, a decoded task, or a lost worker."""
        member = self._loading.get(result) or next(m for m in self._members if result in m.tasks)
        try:
            answer = ray.get(result)
        except RayTaskError as error:
            raise ClusterError(f"a worker failed: {type(error.cause).__name__}: {first_line(error.cause)}") from error
        except RayError as error:
            self._replace(member, result, error)
            return
        if isinstance(answer, Refusal):
            raise ClusterError(answer.reason)
        if result in self._loading:
            del self._loading[result]
            member.is_ready, self._failed_starts, self._waiting_since = True, 0, time.monotonic()
            self._report()
        else:
            self.finished[member.tasks.pop(result).number] = answer

    def _replace(self, member: _Member, result: Any, error: RayError) -> None:
        """Replace a lost worker and put its tasks at the front of the queue."""
        ray.kill(member.actor)  # it may only be unreachable, and must not write any more
        self._members.remove(member)
        if self._loading.pop(result, None) is not None:
            self._failed_starts += 1
        for task in sorted(member.tasks.values(), key=lambda task: task.number, reverse=True):
            self._losses[task.number] += 1
            self._queue.appendleft(task)
        most = max([self._failed_starts, *(self._losses[task.number] for task in member.tasks.values())])
        if most >= _MAX_LOSSES:
            when = "while they loaded the model" if not member.is_ready else "over the same sentences"
            raise ClusterError(f"{most} workers were lost {when}, the last because {_cause(error)}")
        self._report()
        self._start_worker()

    def _report(self) -> None:
        self._progress("workers", sum(member.is_ready for member in self._members), self._settings.workers)


def _cause(error: RayError) -> str:
    """Why a worker was lost, from Ray's message without its advice."""
    if "creation task" in str(error):
        return str(error).strip().splitlines()[-1].strip()[:300]  # the last line of a traceback
    text = " ".join(str(error).split())
    for beginning in ("Worker exit detail: ", "The actor is dead because "):
        if beginning in text:
            text = text.split(beginning, 1)[1]
            break
    for advice in (" Some common causes", " There are some potential"):
        text = text.split(advice, 1)[0]
    return text.rstrip(".")[:300]
