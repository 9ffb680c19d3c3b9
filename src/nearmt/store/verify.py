"""Checking a store against its own checksums."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from nearmt.store.columns import damaged_parts
from nearmt.store.files import sha256_of
from nearmt.store.manifest import Manifest


@dataclass(frozen=True)
class Report:
    """What was read and what is wrong; `problems` is empty for a sound store."""

    num_segments: int
    num_entries: int
    num_sentences: int
    problems: tuple[str, ...]

    @property
    def is_sound(self) -> bool:
        return not self.problems


def verify(folder: Path, on_segment: Callable[[int], None] = lambda number: None) -> Report:
    """Read every byte that counts and compare its checksum. Nothing is changed."""
    manifest = Manifest.load(folder)
    problems = []
    for number, segment in enumerate(manifest.segments, 1):
        where = f"segment {number} (sentences {segment.first_sentence} to "
        where += f"{segment.first_sentence + segment.num_sentences - 1})"
        problems += [f"{where}: {what}" for what in damaged_parts(folder, manifest, segment)]
        on_segment(number)
    for part in (manifest.index, manifest.adaptation):
        for name, checksum in (part or {}).get("files", {}).items():
            path = folder / name
            if not path.exists():
                problems.append(f"{name} is missing")
            elif sha256_of(path) != checksum:
                problems.append(f"{name} was changed")
    return Report(len(manifest.segments), manifest.num_entries, manifest.num_sentences, tuple(problems))
