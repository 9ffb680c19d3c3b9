"""Following a store that changes: every refresh sees the newest commit as a whole."""

import threading
from pathlib import Path

from nearmt.datastore import Manifest, Snapshot, open_latest
from nearmt.errors import StoreError
from nearmt.retrieval.modes import StoreRetriever, following_retriever, open_retriever, sentence_index_of
from nearmt.retrieval.sentences.matches import MatchFinder


class Reader:
    """Holds the newest retriever of a store, and a finder of matches. Older ones stay usable."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.Lock()
        self._stamp = self._read_stamp()
        self.retriever = open_latest(folder, lambda at, manifest: open_retriever(Snapshot(at, manifest)))
        self.finder = MatchFinder(self.retriever.snapshot, sentence_index_of(self.retriever))

    @property
    def snapshot(self) -> Snapshot:
        return self.retriever.snapshot

    def _read_stamp(self) -> tuple[int, int, int] | None:
        """A value that changes with every commit; None while a rebuilt store replaces the old one."""
        try:
            found = (self.folder / "manifest.json").stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreError(f"{self.folder}: {(error.strerror or str(error)).lower()}") from error
        return found.st_ino, found.st_mtime_ns, found.st_size

    def refresh(self) -> bool:
        """Open the newest commit; returns False, at almost no cost, if there was none since the last time."""
        with self._lock:
            stamp = self._read_stamp()
            if stamp is None or stamp == self._stamp:
                return False
            retriever = open_latest(self.folder, self._followed)
            self.finder = self.finder.following(retriever.snapshot, sentence_index_of(retriever))
            self.retriever = retriever  # last, because a translator that sees it takes the finder too
            self._stamp = stamp
            return True

    def _followed(self, folder: Path, manifest: Manifest) -> StoreRetriever:
        return following_retriever(self.retriever, Snapshot(folder, manifest))
