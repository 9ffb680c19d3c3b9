"""Settings of a benchmark run."""

from dataclasses import dataclass
from pathlib import Path

from nearmt.errors import SettingError
from nearmt.retrieval.search import PROBES, RERANKED

_USUAL = ("methods", "engines", "original", "parts", "building", "search", "recall", "growth", "living", "scale")
OF_STORE = ("own", "job", "sizes")  # tables about the given store with its own model; they need real text
TABLES = (*_USUAL, *OF_STORE)


@dataclass(frozen=True)
class BenchSettings:
    """Which tables to measure, and how. The defaults are those of the published tables."""

    entries: int = 4_000_000
    batches: tuple[int, ...] = (1, 16, 32, 64)
    k: tuple[int, ...] = (8, 16, 32)
    beam: int = 4
    source_length: int = 25
    output_length: int = 30
    rounds: int = 5
    tables: tuple[str, ...] = _USUAL
    index: str | None = None
    num_probes: int = PROBES
    reranked: int = RERANKED
    memory: int | None = None  # limit in bytes for the index; a larger one stays on disk
    key_type: str = "float16"
    engine: str = "auto"
    device: str = "cpu"
    dtype: str = "float32"
    text: Path | None = None  # sentences for the tables own, job and sizes, one per line
    busy: int = 0  # other processes that compute during the measurement

    def __post_init__(self) -> None:
        unknown = set(self.tables) - set(TABLES)
        if unknown:
            raise SettingError(f"`tables`: unknown {', '.join(sorted(unknown))}; known are {', '.join(TABLES)}")
        needing = set(self.tables) & set(OF_STORE)
        if needing and self.text is None:
            raise SettingError(f"the table {min(needing)} needs `text`: a file with one sentence per line")
        if not needing and self.text is not None:
            raise SettingError("`text` is only used by the tables own, job and sizes: add one to `tables`")
        for name in ("entries", "beam", "source_length", "output_length", "rounds"):
            if getattr(self, name) < 1:
                raise SettingError(f"`{name}` must be at least 1")
        if self.busy < 0:
            raise SettingError("`busy` must be at least 0")
        if not self.batches or not self.k or min(*self.batches, *self.k) < 1:
            raise SettingError("`batches` and `k` must be numbers of at least 1")
