"""The commit log of a store, and how much of each flat file is committed.

Every commit appends one line to the log: the range it wrote in each file, and the checksums. A line contains the
checksum of the line before it, and the manifest that of the last line, so the manifest stays small however many
commits there are.
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
    """How many items of each kind: a position in all files, or a size."""

    entries: int = 0
    sentences: int = 0
    text_bytes: int = 0
    units: int = 0
    unit_bytes: int = 0
    removals: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(**{part.name: getattr(self, part.name) + getattr(other, part.name) for part in fields(self)})

    def __sub__(self, other: "Counts") -> "Counts":
        return Counts(**{part.name: getattr(self, part.name) - getattr(other, part.name) for part in fields(self)})


@dataclass(frozen=True)
class Extent:
    """The committed part of each file, the log included. Bytes after it are ignored."""

    counts: Counts = field(default_factory=Counts)
    segments: int = 0  # commits
    log_bytes: int = 0
    log_sha256: str = ""  # of the last line

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> "Extent":
        return cls(**{**content, "counts": Counts(**content["counts"])})


@dataclass(frozen=True)
class CommitRecord:
    """What one commit appended: where, how much, and the checksum of its part of each file."""

    first: Counts
    count: Counts
    created_at: str
    sha256: dict[str, str]

    @property
    def end(self) -> Counts:
        return self.first + self.count

    def to_line(self, previous: str) -> bytes:
        """The line for the log. `previous` is the checksum of the line before it."""
        return (json.dumps({**asdict(self), "previous": previous}) + "\n").encode()


def line_checksum(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()


def read_log(path: Path, extent: Extent) -> list[tuple[CommitRecord | None, bytes]]:
    """The committed records in order, each with its line.

    None stands for one or more consecutive records whose lines are missing or were changed. The checksum of a line is
    in the line after it, and that of the last line in the manifest.
    """
    if not extent.segments:
        return []
    try:
        with path.open("rb") as file:
            lines = _LINES.findall(file.read(extent.log_bytes))
    except FileNotFoundError:
        return [(None, b"")]
    found: list[tuple[CommitRecord | None, bytes]] = []
    expected: str | None = extent.log_sha256
    for line in reversed(lines):
        parsed = parse_line(line) if expected in (None, line_checksum(line)) else None
        if parsed or not found or found[-1][0] is not None:
            found.append((parsed[0] if parsed else None, line))
        else:
            found[-1] = (None, line + found[-1][1])
        # After a changed line the next one is accepted unchecked: the checksums of the files will tell.
        expected = parsed[1] if parsed else None
    return found[::-1] or [(None, b"")]


def parse_line(line: bytes) -> tuple[CommitRecord, str] | None:
    """A record and the checksum of the line before it; None if the line cannot be parsed."""
    try:
        content = json.loads(line)
        first, count = Counts(**content["first"]), Counts(**content["count"])
        return CommitRecord(first, count, content["created_at"], content["sha256"]), content["previous"]
    except (ValueError, KeyError, TypeError):
        return None
