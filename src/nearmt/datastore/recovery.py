"""Reading the manifest of a store whose `manifest.json` is damaged."""

from pathlib import Path

from nearmt.datastore.manifest import COPY, NAME, Manifest
from nearmt.errors import StoreError


def load_or_recover(folder: Path) -> tuple[Manifest, str | None]:
    """The manifest, or its copy if the manifest is damaged, with the problem that was found.

    The copy is written first, so it is never older than the manifest.
    """
    try:
        return Manifest.load(folder), None
    except StoreError as error:
        try:
            copy = Manifest.load(folder, COPY)
        except StoreError:
            raise error from None
        return copy, f"{NAME} {'was changed' if (folder / NAME).exists() else 'is missing'}"
