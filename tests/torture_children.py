"""Child processes of the torture test: forked, watched and killed."""

import json
import mmap
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_TIMEOUT = 300.0  # seconds; a child that takes longer hangs
_LABEL = slice(8, 264)
_ACCESSES = {"open", "os.link", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "shutil.rmtree", "shutil.move"}
Report = Callable[[object], None]


@dataclass(frozen=True)
class Fate:
    """The end of a child: what it reported, whether it was killed, and which file it accessed last."""

    answers: tuple[Any, ...]
    was_killed: bool
    error: str | None
    seconds: float
    accesses: int
    place: str

    @property
    def reported(self) -> int:
        return len(self.answers)


class _Watch:
    """Counts the child's accesses to files below a folder, and kills the child at one of them."""

    def __init__(self, folder: Path, kill_at: int | None) -> None:
        self._folder, self._kill_at = str(folder), kill_at
        self.shared = mmap.mmap(-1, 264)  # number of accesses, then the file that was accessed last

    def begin(self) -> None:
        sys.addaudithook(self._on_event)
        flush = os.fsync

        def fsync(fd: Any) -> None:
            path = str(Path(f"/proc/self/fd/{fd}").readlink())
            self.record(path)
            flush(fd)
            self.record(path)

        os.fsync = fsync

    def _on_event(self, event: str, args: tuple[Any, ...]) -> None:
        if event in _ACCESSES and args and isinstance(args[0], str | os.PathLike):
            self.record(os.fspath(args[0]))

    def record(self, path: str) -> None:
        if not isinstance(path, str) or not path.startswith(self._folder):
            return
        count = self.accesses + 1
        self.shared[:8] = count.to_bytes(8, "little")
        self.shared[_LABEL] = _place_of(path).encode()[:255].ljust(256, b"\0")
        if count == self._kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    @property
    def accesses(self) -> int:
        return int.from_bytes(self.shared[:8], "little")

    @property
    def place(self) -> str:
        return bytes(self.shared[_LABEL]).rstrip(b"\0").decode() or "nothing"


def _place_of(path: str) -> str:
    """The kind of a file: its name without numbers."""
    name = Path(path).name.lstrip(".").removesuffix(".new")
    kind = "".join(char for char in name.partition(".")[0] if not char.isdigit()).rstrip("-")
    in_work = "compacting" in Path(path).parts[:-1]
    return f"compacting/{kind}" if in_work else kind


def run_child(
    work: Callable[[Report], object], watched: Path, *, delay: float | None = None, access: int | None = None
) -> Fate:
    """Run `work` in a forked child, and kill it after `delay` seconds or at the given access to files below `watched`.

    `work` is called with a function that reports a value. An error of the work is returned as text.
    """
    watch = _Watch(watched, access)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _run_in_child(work, watch, writing)
    os.close(writing)
    began = time.monotonic()
    lines = _read(reading, began + (_TIMEOUT if delay is None else delay))
    seconds = time.monotonic() - began
    os.kill(child, signal.SIGKILL)
    rest = _read(reading, time.monotonic() + _TIMEOUT)
    os.close(reading)
    _, status = os.waitpid(child, 0)
    answers = [json.loads(line) for line in (lines + rest).splitlines()]
    errors = [answer["error"] for answer in answers if "error" in answer]
    if delay is None and seconds > _TIMEOUT:
        errors.append("the child hangs")
    is_done = any("done" in answer for answer in answers)
    was_killed = os.WIFSIGNALED(status) and not is_done
    return Fate(
        tuple(answer["value"] for answer in answers if "value" in answer),
        was_killed,
        errors[0] if errors else None,
        seconds,
        watch.accesses,
        watch.place,
    )


def _read(pipe: int, until: float) -> str:
    """Read from a pipe until its end or a deadline."""
    found = b""
    while (left := until - time.monotonic()) > 0:
        if select.select([pipe], [], [], left)[0]:
            piece = os.read(pipe, 65536)
            if not piece:
                break
            found += piece
    return found.decode()


def _run_in_child(work: Callable[[Report], object], watch: _Watch, pipe: int) -> None:
    def tell(**answer: object) -> None:
        os.write(pipe, (json.dumps(answer) + "\n").encode())

    try:
        watch.begin()
        work(lambda value: tell(value=value))
        tell(done=True)
    except BaseException:
        tell(error=traceback.format_exc())
    os._exit(0)
