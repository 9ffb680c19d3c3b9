"""What each commit wrote of a damaged store, and which of its files can be believed."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from nearmt.datastore.columns import Column, columns_of
from nearmt.datastore.extent import Counts, Segment, parse_line
from nearmt.datastore.files import sha256_of
from nearmt.datastore.manifest import Manifest
from nearmt.datastore.verify import Findings

_CHECKSUM = re.compile(rb"\b[0-9a-f]{64}\b")


@dataclass(frozen=True)
class Part:
    """What one commit wrote: its range in every column, and what is known of the bytes there.

    Where lines of the log are lost, several commits may stand together.
    """

    first: Counts
    end: Counts
    changed: frozenset[str] = frozenset()  # columns that do not fit their checksum, are cut short or missing
    unchecked: frozenset[str] = frozenset()  # columns whose checksum is lost
    sha256: dict[str, str] = field(default_factory=dict)
    created_at: str | None = None

    @property
    def sentences(self) -> range:
        return range(self.first.sentences, self.end.sentences)

    @property
    def units(self) -> range:
        return range(self.first.units, self.end.units)

    def is_sure(self, *columns: str) -> bool:
        """Whether the bytes of these columns are known to be what was written."""
        return not (self.changed | self.unchecked) & set(columns)


def parts_of(folder: Path, manifest: Manifest, findings: Findings) -> list[Part]:
    """What every commit wrote. Commits whose lines are lost fill the room between their neighbours."""
    known = [segment for segment, _ in findings.segments]
    parts = []
    for at, (segment, bad) in enumerate(findings.segments):
        if segment is not None:
            parts.append(
                Part(segment.first, segment.end, frozenset(bad), sha256=segment.sha256, created_at=segment.created_at)
            )
            continue
        before, behind = known[at - 1] if at else None, known[at + 1] if at + 1 < len(known) else None
        first = before.end if before else Counts()
        end = behind.first if behind else manifest.extent.counts
        parts += _parts_between(folder, manifest, first, end, findings.lost_lines[at])
    return parts


def _parts_between(folder: Path, manifest: Manifest, first: Counts, end: Counts, lines: bytes) -> list[Part]:
    """Commits whose lines cannot be believed. A checksum in them that fits the bytes is right all the same."""
    parsed = [parse_line(line) for line in lines.splitlines()]
    segments = [found[0] for found in parsed if found is not None]
    borders = [first, *(segment.end for segment in segments)]
    is_chain = len(segments) == len(parsed) and borders[:-1] == [segment.first for segment in segments]
    if not segments or not is_chain or borders[-1] != end:
        segments = [Segment(first, _difference(end, first), "", {})]
    checksums = {found.decode() for found in _CHECKSUM.findall(lines)}
    parts = []
    for segment in segments:
        states = {column.name: _state(folder, manifest, column, segment, checksums) for column in columns_of(manifest)}
        changed = frozenset(name for name, state in states.items() if state == "changed")
        unchecked = frozenset(name for name, state in states.items() if state == "unchecked")
        parts.append(Part(segment.first, segment.end, changed, unchecked, created_at=segment.created_at or None))
    return parts


def _state(folder: Path, manifest: Manifest, column: Column, segment: Segment, checksums: set[str]) -> str:
    start, length = column.range_of(segment)
    path = folder / manifest.data_folder / column.name
    if not length:
        return "sure"
    if not path.exists() or path.stat().st_size < start + length:
        return "changed"
    return "sure" if sha256_of(path, start, length) in checksums else "unchecked"


def _difference(end: Counts, first: Counts) -> Counts:
    return Counts(**{name: getattr(end, name) - getattr(first, name) for name in vars(end)})


def lines_from(content: bytes, start: int) -> Iterator[tuple[int, bytes]]:
    """The lines of a piece of a text file that begins at a byte of it, each with the byte where it begins."""
    for line in content.removesuffix(b"\n").split(b"\n") if content else ():
        yield start, line
        start += len(line) + 1
