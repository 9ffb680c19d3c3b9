"""A store followed while it changes: each look sees the newest commit, whole."""

import threading
from pathlib import Path

from nearmt.datastore import Manifest, Snapshot, opened_anew
from nearmt.errors import StoreError
from nearmt.retrieval.search import Retriever


class Reader:
    """Holds the newest retriever of a store. Older ones stay usable for whoever holds them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.Lock()
        self._stamp = self._look()
        self.retriever = opened_anew(folder, lambda at, manifest: Retriever(Snapshot(at, manifest)))

    @property
    def snapshot(self) -> Snapshot:
        return self.retriever.snapshot

    def _look(self) -> tuple[int, int, int] | None:
        """What changes with every commit; None while a rebuilt store is being put in place of the old one."""
        try:
            found = (self.folder / "manifest.json").stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreError(f"{self.folder}: {(error.strerror or str(error)).lower()}") from error
        return found.st_ino, found.st_mtime_ns, found.st_size

    def refresh(self) -> bool:
        """Look whether there was a commit, and if so, see it. Costs next to nothing if not."""
        with self._lock:
            stamp = self._look()
            if stamp is None or stamp == self._stamp:
                return False
            self.retriever = opened_anew(self.folder, self._followed)
            self._stamp = stamp
            return True

    def _followed(self, folder: Path, manifest: Manifest) -> Retriever:
        return self.retriever.following(Snapshot(folder, manifest))
