"""What commands print: progress bars on a terminal, occasional lines in a log, tables, JSON."""

import json
import shlex
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.table import Table

from nearmt.progress import Progress, silent

if TYPE_CHECKING:
    from nearmt.translator import Translator

_SECONDS_BETWEEN_LINES = 10.0
errors = Console(stderr=True, highlight=False)


def warn_empty_filter(translator: "Translator") -> None:
    """Say so if a filter leaves nothing of the memory: a misspelt origin would switch it off silently."""
    wanted = translator.filter
    if not wanted.is_empty and not any(wanted.sentences(reader.snapshot).any() for reader in translator.readers):
        say("Warning: no unit of the memory matches the filter, so the model translates alone.")


@contextmanager
def reporting(quiet: bool) -> Iterator[Progress]:
    """Give a progress callback that reports to standard error: bars on a terminal, lines elsewhere."""
    if quiet:
        yield silent
    elif errors.is_terminal:
        label = TextColumn("{task.description:>12}")
        with Bars(
            label, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn(), console=errors
        ) as bars:
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
        self._begun: dict[str, tuple[float, int]] = {}  # time and progress at the first report of each stage
        self._heard: dict[str, int] = {}  # progress at the last report of each stage

    def __call__(self, stage: str, done: int, total: int | None) -> None:
        now = time.monotonic()
        if stage not in self._begun or done < self._heard[stage]:  # it starts, or starts again
            self._begun[stage] = (now, done)
        self._heard[stage] = done
        since, before = self._begun[stage]
        if stage == self._stage and now - self._last < _SECONDS_BETWEEN_LINES and done != total:
            return
        self._stage, self._last = stage, now
        line = f"{stage} {done}" if done or total else stage
        line += f" of {total}" if total else ""
        if total and before < done < total:
            line += f", {duration((now - since) * (total - done) / (done - before))} left"
        errors.print(line)


def duration(seconds: float) -> str:
    """Return a time as seconds, minutes or hours."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def say(text: str, quiet: bool = False) -> None:
    """Print a message for the user on standard error."""
    if not quiet:
        errors.print(text, markup=False, soft_wrap=True)


def print_json(content: Any) -> None:
    """Print a value as indented JSON."""
    print(json.dumps(content, ensure_ascii=False, indent=1))


def print_table(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table; away from a terminal it is not cut to the terminal's width."""
    table = Table(title=title, title_justify="left", show_edge=False, pad_edge=False)
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="left" if number == 0 else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    width = None if sys.stdout.isatty() else 160
    Console(width=width, highlight=False, markup=False).print(table)


def number_of(count: int, noun: str, plural: str | None = None) -> str:
    """Format a count with its noun: `1 unit`, `2,000 units`."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def counts_text(counts: Mapping[str, int]) -> str:
    """Format counts by reason: `2 empty, 1 duplicate`."""
    return ", ".join(f"{count:,} {reason}" for reason, count in counts.items() if count)


def size_text(size: int) -> str:
    """Format a number of bytes in the largest unit that leaves at least 1: `512 bytes`, `3.2 kB`, `1.5 GB`."""
    if size < 1000:
        return number_of(size, "byte")
    amount, unit = size / 1000, "kB"
    for larger in ("MB", "GB", "TB"):
        if amount < 1000:
            break
        amount, unit = amount / 1000, larger
    return f"{amount:.1f} {unit}"


def command_for(command: str, store: object, *options: str) -> str:
    """Return a command that can be pasted into a shell: `nearmt compact 'my client.store'`."""
    return shlex.join(["nearmt", command, str(store), *options])


def command_of_this_program() -> str:
    """Return what starts this program again when pasted into the same shell: `nearmt` if it is on the path."""
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
