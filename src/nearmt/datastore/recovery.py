"""Reading the manifest of a store whose manifest is damaged."""

from dataclasses import replace
from pathlib import Path

from nearmt.datastore.extent import LOG, Extent, line_checksum, parse_line, read_later_lines
from nearmt.datastore.manifest import COPY, NAME, Manifest
from nearmt.errors import StoreError


def load_or_recover(folder: Path) -> tuple[Manifest, str | None]:
    """A store's manifest; if that is damaged, what its copy says, and what is wrong with it."""
    try:
        return Manifest.load(folder), None
    except StoreError as error:
        try:
            copy = Manifest.load(folder, COPY)
        except StoreError:
            raise error from None
        return brought_forward(folder, copy), f"{NAME} {'was changed' if (folder / NAME).exists() else 'is missing'}"


def brought_forward(folder: Path, manifest: Manifest) -> Manifest:
    """A manifest that counts the later commits of the log too. An older nearmt writes no copy, so it may be behind."""
    extent = manifest.extent
    for line in read_later_lines(folder / manifest.data_folder / LOG, extent):
        parsed = parse_line(line)
        if parsed is None or parsed[1] != extent.log_sha256 or parsed[0].first != extent.counts:
            break
        extent = Extent(parsed[0].end, extent.segments + 1, extent.log_bytes + len(line), line_checksum(line))
    if extent == manifest.extent:
        return manifest
    return replace(manifest, extent=extent, version=manifest.version + extent.segments - manifest.extent.segments)
