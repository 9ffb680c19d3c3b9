"""How much of each flat file counts, and the log of the commits that wrote it.

Every commit appends one line to the log: what range of each file it wrote, and the checksums. A line holds the
checksum of the line before, and the manifest that of the last, so that the manifest stays small however many
commits there were.
"""

import hashlib
import json
import re
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

LOG = "segments.jsonl"
_LINES = re.compile(b"[^\n]*\n|[^\n]+")


@dataclass(frozen=True)
class Counts:
    """So many of each."""

    entries: int = 0
    sentences: int = 0
    text_bytes: int = 0
    units: int = 0
    unit_bytes: int = 0
    removals: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(**{part.name: getattr(self, part.name) + getattr(other, part.name) for part in fields(self)})


@dataclass(frozen=True)
class Extent:
    """How far each file counts, the log included."""

    counts: Counts = field(default_factory=Counts)
    segments: int = 0
    log_bytes: int = 0
    log_sha256: str = ""

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> "Extent":
        return cls(**{**content, "counts": Counts(**content["counts"])})


@dataclass(frozen=True)
class Segment:
    """What one commit appended: where, how much, and the checksum of each file's part."""

    first: Counts
    count: Counts
    created_at: str
    sha256: dict[str, str]

    @property
    def end(self) -> Counts:
        return self.first + self.count

    def to_line(self, previous: str) -> bytes:
        """Its line in the log, behind a line with the checksum `previous`."""
        return (json.dumps({**asdict(self), "previous": previous}) + "\n").encode()


def line_checksum(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()


def read_log(path: Path, extent: Extent) -> list[Segment | None]:
    """The segments in order, None in place of one or more whose lines were changed or are missing."""
    return [segment for segment, _ in read_log_lines(path, extent)]


def read_log_lines(path: Path, extent: Extent) -> list[tuple[Segment | None, bytes]]:
    """The segments in order with their lines; None for one or more whose lines, if any, cannot be believed.

    A line is vouched for by the one behind it, and the last by the manifest.
    """
    if not extent.segments:
        return []
    try:
        with path.open("rb") as file:
            lines = _LINES.findall(file.read(extent.log_bytes))
    except FileNotFoundError:
        return [(None, b"")]
    found: list[tuple[Segment | None, bytes]] = []
    vouched: str | None = extent.log_sha256
    for line in reversed(lines):
        parsed = parse_line(line) if vouched in (None, line_checksum(line)) else None
        if parsed or not found or found[-1][0] is not None:
            found.append((parsed[0] if parsed else None, line))
        else:
            found[-1] = (None, line + found[-1][1])
        vouched = parsed[1] if parsed else None  # a changed line vouches for nothing: the checksums of the files do
    return found[::-1] or [(None, b"")]


def read_later_lines(path: Path, extent: Extent) -> list[bytes]:
    """The lines behind what an extent counts."""
    try:
        with path.open("rb") as file:
            file.seek(extent.log_bytes)
            return _LINES.findall(file.read())
    except FileNotFoundError:
        return []


def parse_line(line: bytes) -> tuple[Segment, str] | None:
    """A segment, and the checksum that the line before should have."""
    try:
        content = json.loads(line)
        first, count = Counts(**content["first"]), Counts(**content["count"])
        return Segment(first, count, content["created_at"], content["sha256"]), content["previous"]
    except (ValueError, KeyError, TypeError):
        return None
