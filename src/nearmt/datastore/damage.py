"""The commits of a damaged store: the range of each, and which of its files are intact."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from nearmt.datastore.columns import Column, columns_of
from nearmt.datastore.commit_log import CommitRecord, Counts, parse_line
from nearmt.datastore.files import sha256_of
from nearmt.datastore.manifest import Manifest
from nearmt.datastore.verify import Findings

_CHECKSUM = re.compile(rb"\b[0-9a-f]{64}\b")


@dataclass(frozen=True)
class CommitRange:
    """The range of one commit in every column, and the state of its bytes.

    Where lines of the log are lost, it may span several commits.
    """

    first: Counts
    end: Counts
    changed: frozenset[str] = frozenset()  # columns that do not match their checksum, are cut short or missing
    unchecked: frozenset[str] = frozenset()  # columns whose checksum is lost
    sha256: dict[str, str] = field(default_factory=dict)
    created_at: str | None = None

    @property
    def sentences(self) -> range:
        return range(self.first.sentences, self.end.sentences)

    @property
    def units(self) -> range:
        return range(self.first.units, self.end.units)

    def is_intact(self, *columns: str) -> bool:
        """True if these columns match their checksums."""
        return not (self.changed | self.unchecked) & set(columns)


def commit_ranges(folder: Path, manifest: Manifest, findings: Findings) -> list[CommitRange]:
    """The ranges of all commits. Those without a log line lie between the commits before and after them."""
    known = [commit for commit, _ in findings.commits]
    ranges = []
    for at, (commit, bad) in enumerate(findings.commits):
        if commit is not None:
            ranges.append(
                CommitRange(
                    commit.first, commit.end, frozenset(bad), sha256=commit.sha256, created_at=commit.created_at
                )
            )
            continue
        before, after = known[at - 1] if at else None, known[at + 1] if at + 1 < len(known) else None
        first = before.end if before else Counts()
        end = after.first if after else manifest.extent.counts
        ranges += _ranges_between(folder, manifest, first, end, findings.damaged_lines[at])
    return ranges


def _ranges_between(folder: Path, manifest: Manifest, first: Counts, end: Counts, lines: bytes) -> list[CommitRange]:
    """Ranges of commits whose log lines are damaged. A checksum in them that matches the bytes is still valid."""
    parsed = [parse_line(line) for line in lines.splitlines()]
    commits = [found[0] for found in parsed if found is not None]
    borders = [first, *(commit.end for commit in commits)]
    is_chain = len(commits) == len(parsed) and borders[:-1] == [commit.first for commit in commits]
    if not commits or not is_chain or borders[-1] != end:
        commits = [CommitRecord(first, end - first, "", {})]
    checksums = {found.decode() for found in _CHECKSUM.findall(lines)}
    ranges = []
    for commit in commits:
        states = {column.name: _state(folder, manifest, column, commit, checksums) for column in columns_of(manifest)}
        changed = frozenset(name for name, state in states.items() if state == "changed")
        unchecked = frozenset(name for name, state in states.items() if state == "unchecked")
        ranges.append(CommitRange(commit.first, commit.end, changed, unchecked, created_at=commit.created_at or None))
    return ranges


def _state(folder: Path, manifest: Manifest, column: Column, commit: CommitRecord, checksums: set[str]) -> str:
    start, length = column.range_of(commit)
    path = folder / manifest.data_folder / column.name
    if not length:
        return "intact"
    if not path.exists() or path.stat().st_size < start + length:
        return "changed"
    return "intact" if sha256_of(path, start, length) in checksums else "unchecked"


def lines_from(content: bytes, start: int) -> Iterator[tuple[int, bytes]]:
    """The lines of `content`, which begins at byte `start` of a file, each with its position in the file."""
    for line in content.removesuffix(b"\n").split(b"\n") if content else ():
        yield start, line
        start += len(line) + 1
