"""Checking a store against its own checksums."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from nearmt.datastore.aside import SetAside, set_aside_before
from nearmt.datastore.columns import damaged_parts
from nearmt.datastore.extent import LOG, Segment, read_log_lines
from nearmt.datastore.files import sha256_of
from nearmt.datastore.manifest import COPY, Manifest
from nearmt.datastore.recovery import load_or_recover
from nearmt.datastore.snapshot import Snapshot
from nearmt.errors import StoreError


@dataclass(frozen=True)
class Report:
    """What was read and what is wrong; `problems` is empty for a sound store."""

    num_segments: int
    num_entries: int
    num_sentences: int
    problems: tuple[str, ...]
    waiting_sentences: int = 0  # whose states a repair has yet to compute; not known of a damaged store
    set_aside: tuple[SetAside, ...] = ()  # damaged files that earlier repairs kept

    @property
    def is_sound(self) -> bool:
        return not self.problems


@dataclass(frozen=True)
class Findings:
    """What is wrong with each segment, file by file, and with the files beside them."""

    segments: tuple[tuple[Segment | None, dict[str, str]], ...]  # None: lines of the log are lost
    files: dict[str, str]  # file name → what is wrong with it
    lost_lines: dict[int, bytes] = field(default_factory=dict)  # place in `segments` → what stands in the log there


def inspect(folder: Path, manifest: Manifest, on_segment: Callable[[int], None] = lambda number: None) -> Findings:
    """Read every byte that counts and compare its checksum."""
    log = folder / manifest.data_folder / LOG
    segments, lost_lines = [], {}
    for number, (segment, line) in enumerate(read_log_lines(log, manifest.extent), 1):
        lost = {LOG: _state_of(log, manifest.extent.log_bytes)}
        segments.append((segment, lost if segment is None else damaged_parts(folder, manifest, segment)))
        if segment is None:
            lost_lines[number - 1] = line
        on_segment(number)
    files = {}
    for name, checksum in {**manifest.index_files, **manifest.network_files}.items():
        path = folder / name
        if not path.exists():
            files[name] = "is missing"
        elif sha256_of(path) != checksum:
            files[name] = "was changed"
    if (folder / COPY).exists():  # an older nearmt wrote none
        try:
            Manifest.load(folder, COPY)
        except StoreError:
            files[COPY] = "was changed"
    return Findings(tuple(segments), files, lost_lines)


def verify(folder: Path, on_segment: Callable[[int], None] = lambda number: None) -> Report:
    """Read every byte that counts and compare its checksum. Nothing is changed."""
    manifest, problem = load_or_recover(folder)
    problems = describe_problems(inspect(folder, manifest, on_segment))
    while problems and problem is None and not _is_current(manifest, newer := Manifest.load(folder)):
        manifest = newer  # compaction has taken the files away
        problems = describe_problems(inspect(folder, manifest, on_segment))
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
        tuple(set_aside_before(folder, manifest)),
    )


def _is_current(manifest: Manifest, newest: Manifest) -> bool:
    """Whether the files that a manifest names are those of the newest."""
    return all(getattr(manifest, part) == getattr(newest, part) for part in ("generation", "index", "adaptation"))


def _state_of(path: Path, wanted: int) -> str:
    """What is wrong with a file that should have at least so many bytes and does not fit its checksums."""
    if not path.exists():
        return "is missing"
    return "is cut short" if path.stat().st_size < wanted else "was changed"


def describe_problems(findings: Findings) -> list[str]:
    """What is wrong, for people."""
    problems = []
    for number, (segment, bad) in enumerate(findings.segments, 1):
        where = f"segment {number}"
        if segment is not None and segment.count.sentences:
            where += f" (sentences {segment.first.sentences} to {segment.end.sentences - 1})"
        problems += [f"{where}: {name} {what}" for name, what in bad.items()]
    return problems + [f"{name} {what}" for name, what in findings.files.items()]
