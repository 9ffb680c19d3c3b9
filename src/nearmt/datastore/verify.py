"""Verifying a store against its checksums."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from nearmt.datastore.columns import damaged_parts
from nearmt.datastore.commit_log import LOG, CommitRecord, read_log
from nearmt.datastore.files import sha256_of
from nearmt.datastore.manifest import COPY, Manifest
from nearmt.datastore.quarantine import QuarantinedFiles, quarantined_files
from nearmt.datastore.recovery import load_or_recover
from nearmt.datastore.snapshot import Snapshot
from nearmt.errors import StoreError


@dataclass(frozen=True)
class Report:
    """The result of a verification; `problems` is empty for an intact store."""

    num_segments: int
    num_entries: int
    num_sentences: int
    problems: tuple[str, ...]
    waiting_sentences: int = 0  # without states, until a repair computes them; 0 for a damaged store
    set_aside: tuple[QuarantinedFiles, ...] = ()  # damaged files kept by earlier repairs

    @property
    def is_sound(self) -> bool:
        return not self.problems


@dataclass(frozen=True)
class Findings:
    """Problems of each commit, column by column, and of the other files."""

    commits: tuple[tuple[CommitRecord | None, dict[str, str]], ...]  # None: lines of the log are damaged
    files: dict[str, str]  # file name → problem
    damaged_lines: dict[int, bytes] = field(default_factory=dict)  # index into `commits` → content of the log there


def inspect(folder: Path, manifest: Manifest, on_commit: Callable[[int], None] = lambda number: None) -> Findings:
    """Read every committed byte and compare the checksums."""
    log = folder / manifest.data_folder / LOG
    commits: list[tuple[CommitRecord | None, dict[str, str]]] = []
    damaged_lines = {}
    for number, (commit, line) in enumerate(read_log(log, manifest.extent), 1):
        if commit is None:
            commits.append((commit, {LOG: _log_problem(log, manifest.extent.log_bytes)}))
            damaged_lines[number - 1] = line
        else:
            commits.append((commit, damaged_parts(folder, manifest, commit)))
        on_commit(number)
    files = {}
    for name, checksum in {**manifest.index_files, **manifest.network_files}.items():
        path = folder / name
        if not path.exists():
            files[name] = "is missing"
        elif sha256_of(path) != checksum:
            files[name] = "was changed"
    if (folder / COPY).exists():  # the golden store has none
        try:
            Manifest.load(folder, COPY)
        except StoreError:
            files[COPY] = "was changed"
    return Findings(tuple(commits), files, damaged_lines)


def verify(folder: Path, on_commit: Callable[[int], None] = lambda number: None) -> Report:
    """Read every committed byte and compare the checksums. Nothing is changed."""
    manifest, problem = load_or_recover(folder)
    problems = describe_problems(inspect(folder, manifest, on_commit))
    while problems and problem is None and not _is_current(manifest, newer := Manifest.load(folder)):
        manifest = newer  # a compaction has deleted the files
        problems = describe_problems(inspect(folder, manifest, on_commit))
    if problem is not None:
        problems = [problem, *problems]
    snapshot = Snapshot.open(folder) if not problems else None
    waiting = int(snapshot.waiting_sentences.sum()) if snapshot is not None else 0
    return Report(
        manifest.extent.segments,
        manifest.num_entries,
        int(snapshot.live_sentences.sum()) if snapshot is not None else manifest.num_sentences,
        tuple(problems),
        waiting,
        tuple(quarantined_files(folder, manifest)),
    )


def _is_current(manifest: Manifest, newest: Manifest) -> bool:
    """True if a manifest names the same files as the newest one."""
    parts = ("generation", "index", "sentence_index", "adaptation")
    return all(getattr(manifest, part) == getattr(newest, part) for part in parts)


def _log_problem(path: Path, wanted: int) -> str:
    if not path.exists():
        return "is missing"
    return "is cut short" if path.stat().st_size < wanted else "was changed"


def describe_problems(findings: Findings) -> list[str]:
    """The problems as sentences."""
    problems = []
    for number, (commit, bad) in enumerate(findings.commits, 1):
        where = f"commit {number}"
        if commit is not None and commit.count.sentences:
            where += f" (sentences {commit.first.sentences} to {commit.end.sentences - 1})"
        problems += [f"{where}: {name} {what}" for name, what in bad.items()]
    return problems + [f"{name} {what}" for name, what in findings.files.items()]
