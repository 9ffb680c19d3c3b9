"""What commands print: bars on a terminal, now and then a line in a log, tables for people, JSON for machines."""

import json
import shlex
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.table import Table

from nearmt.progress import Progress, silent

_SECONDS_BETWEEN_LINES = 10.0
errors = Console(stderr=True, highlight=False)


@contextmanager
def reporting(quiet: bool) -> Iterator[Progress]:
    """A progress listener for the length of a command; everything goes to standard error."""
    if quiet:
        yield silent
    elif errors.is_terminal:
        columns = (TextColumn("{task.description:>12}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
                   TimeRemainingColumn())  # fmt: skip
        with Bars(*columns, console=errors) as bars:
            yield _BarReporter(bars)
    else:
        yield _LineReporter()


class _BarReporter:
    def __init__(self, bars: Bars) -> None:
        self._bars = bars
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, stage: str, done: int, total: int | None) -> None:
        if stage not in self._tasks:
            self._tasks[stage] = self._bars.add_task(stage, total=total)
        self._bars.update(self._tasks[stage], completed=done, total=total)


class _LineReporter:
    def __init__(self) -> None:
        self._stage, self._last = "", 0.0
        self._begun: dict[str, tuple[float, int]] = {}  # when a stage was first heard of, and how far it was
        self._heard: dict[str, int] = {}  # how far each stage was when it was last heard of

    def __call__(self, stage: str, done: int, total: int | None) -> None:
        now = time.monotonic()
        if stage not in self._begun or done < self._heard[stage]:  # it begins, perhaps not for the first time
            self._begun[stage] = (now, done)
        self._heard[stage] = done
        since, before = self._begun[stage]
        if stage == self._stage and now - self._last < _SECONDS_BETWEEN_LINES and done != total:
            return
        self._stage, self._last = stage, now
        line = f"{stage} {done}" + (f" of {total}" if total else "")
        if total and before < done < total:
            line += f", {_duration((now - since) * (total - done) / (done - before))} left"
        errors.print(line)


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def say(text: str, quiet: bool = False) -> None:
    """A remark to the user, on standard error."""
    if not quiet:
        errors.print(text, markup=False, soft_wrap=True)


def print_json(content: Any) -> None:
    print(json.dumps(content, ensure_ascii=False, indent=1))


def print_table(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table for people, as wide as it needs to be."""
    table = Table(title=title, title_justify="left", show_edge=False, pad_edge=False)
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="left" if number == 0 else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    width = None if sys.stdout.isatty() else 160
    Console(width=width, highlight=False, markup=False).print(table)


def command_of_this_program() -> str:
    """What starts this program again when pasted into the same shell: `nearmt` where the shell finds it."""
    started = Path(sys.argv[0])
    if started.name == "__main__.py":
        return f"{_as_typed(Path(sys.executable))} -m nearmt"
    return _as_typed(started) if started.stem == "nearmt" and started.exists() else "nearmt"


def _as_typed(program: Path) -> str:
    found = shutil.which(program.name)
    if found is not None and Path(found).absolute() == program.absolute():
        return program.name
    if program.is_relative_to(Path.cwd()):
        program = program.relative_to(Path.cwd())
    return shlex.quote(str(program) if len(program.parts) > 1 else f"./{program}")
