"""The description of a store, `manifest.json`. Replacing this file commits a change.

A copy is written first. It is read only if the manifest is damaged.
"""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nearmt.datastore.commit_log import Extent
from nearmt.datastore.files import replace_file, storage_errors
from nearmt.datastore.records import TOKENS, IndexRecord, SentenceIndexRecord, TrainingRecord
from nearmt.errors import StoreDamagedError, StoreError

FORMAT = 3
READABLE_FORMATS = (2, 3)  # format 2 has neither reduced keys nor a sentence index
NAME, COPY = "manifest.json", "manifest.copy.json"


def now() -> str:
    """The current time in UTC, to the second, as it is written in a store."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _checksum(content: dict[str, Any]) -> str:
    canonical = json.dumps(content, ensure_ascii=False, sort_keys=True)
    return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True)
class Languages:
    """The language pair of a store, as BCP-47 codes."""

    source: str | None
    target: str | None

    def __str__(self) -> str:
        return f"{self.source or '?'}→{self.target or '?'}"


@dataclass(frozen=True)
class BuildProgress:
    """What a build has read so far, so that it can be resumed."""

    inputs: list[dict[str, Any]]  # name, bytes and sha256 of each file, in order
    reading: dict[str, Any] = field(default_factory=dict)  # options that decide which pairs are read
    num_pairs: int | None = None  # in all inputs; unknown for a stream, which can be read only once
    pairs_read: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    is_complete: bool = False


@dataclass(frozen=True)
class Manifest:
    """The description of a store at one commit. Immutable: a change makes a new one."""

    model: dict[str, Any]  # identity of the model and how it was loaded
    languages: Languages
    width: int
    key_type: str = "float16"
    dims: int | None = None  # of reduced keys; None stores states whole
    key_range: dict[str, Any] | None = None  # how keys are coded, set by the first ones: see `KeyCode`
    generation: int = 1  # number of the data folder; compaction makes a new one
    extent: Extent = field(default_factory=Extent)
    build: BuildProgress = field(default_factory=lambda: BuildProgress([]))
    retrieval: str = TOKENS  # where translations search: see `RETRIEVALS`
    is_retrieval_chosen: bool = False  # True: both indexes are kept, and every training chooses
    index: IndexRecord | None = None  # of tokens
    sentence_index: SentenceIndexRecord | None = None
    adaptation: TrainingRecord | None = None
    created_at: str = field(default_factory=now)
    changed_at: str = field(default_factory=now)
    version: int = 0  # number of commits

    @property
    def key_dims(self) -> int:
        """The number of dimensions of a stored key."""
        return int((self.key_range or {}).get("dims", self.width))

    @property
    def lacks_key_code(self) -> bool:
        """True until the first keys decide how keys are coded."""
        return (self.key_type == "int8" or self.dims is not None) and self.key_range is None

    @property
    def num_entries(self) -> int:
        return self.extent.counts.entries

    @property
    def num_sentences(self) -> int:
        return self.extent.counts.sentences

    @property
    def index_files(self) -> Mapping[str, str]:
        """Name → SHA-256, of both indexes."""
        return {
            **(self.index.files if self.index is not None else {}),
            **(self.sentence_index.files if self.sentence_index is not None else {}),
        }

    @property
    def network_files(self) -> Mapping[str, str]:
        """Name → SHA-256."""
        return self.adaptation.files if self.adaptation is not None else {}

    @property
    def networks(self) -> Mapping[str, str]:
        """Method → file of its trained network."""
        return self.adaptation.networks if self.adaptation is not None else {}

    @property
    def engine(self) -> str:
        """The engine that the networks were trained with, or the one that computed the keys if there are none."""
        return self.adaptation.retrieval.engine if self.adaptation is not None else str(self.model["engine"])

    @property
    def data_folder(self) -> str:
        return f"data-{self.generation:06d}"

    def changed(self, **changes: Any) -> "Manifest":
        """The manifest of the next commit."""
        return dataclasses.replace(self, changed_at=now(), version=self.version + 1, **changes)

    def save(self, folder: Path) -> None:
        """Commit. After a kill between the two files the copy is one commit ahead, with all its data on disk."""
        content = {"format": FORMAT, "what": "nearmt store", **dataclasses.asdict(self)}
        for name, record in (("index", self.index), ("adaptation", self.adaptation)):
            content[name] = record.as_dict() if record is not None else None
        content["sha256"] = _checksum(content)
        written = (json.dumps(content, ensure_ascii=False, indent=1) + "\n").encode("utf-8", "surrogatepass")
        with storage_errors(folder):
            replace_file(folder / COPY, written, flush_name=False)
            replace_file(folder / NAME, written)

    @classmethod
    def load(cls, folder: Path, name: str = NAME) -> "Manifest":
        path = folder / name
        try:
            content = json.loads(path.read_bytes().decode("utf-8", "surrogatepass"))
        except FileNotFoundError:
            if (folder / COPY).is_file():
                raise StoreDamagedError(f"{path} is missing: run nearmt verify {folder}") from None
            if not folder.exists():
                raise StoreError(f"{folder} does not exist") from None
            raise StoreError(f"{folder} is not a nearmt store: it has no {NAME}") from None
        except NotADirectoryError:
            raise StoreError(f"{folder} is not a nearmt store: it is a file, not a folder") from None
        except OSError as error:
            raise StoreError(f"{path}: {(error.strerror or str(error)).lower()}") from error
        except ValueError as error:
            raise StoreDamagedError(f"{path} is damaged: {error}") from error
        if not isinstance(content, dict) or content.pop("what", None) != "nearmt store":
            raise StoreError(f"{path} does not describe a nearmt store")
        found = content.pop("format", None)
        if found not in READABLE_FORMATS:
            raise StoreError(f"{folder} has store format {found}, and this nearmt reads formats 2 and {FORMAT}")
        checksum = content.pop("sha256", None)
        if checksum != _checksum({"format": found, "what": "nearmt store", **content}):
            raise StoreDamagedError(f"{path} is damaged: its checksum does not match")
        try:
            extent = Extent.from_dict(content.pop("extent"))
            languages = Languages(**content.pop("languages"))
            build = BuildProgress(**content.pop("build"))
            index, adaptation = content.pop("index", None), content.pop("adaptation", None)
            sentence_index = content.pop("sentence_index", None)
            return cls(
                extent=extent,
                languages=languages,
                build=build,
                index=IndexRecord.from_dict(index) if index is not None else None,
                sentence_index=SentenceIndexRecord(**sentence_index) if sentence_index is not None else None,
                adaptation=TrainingRecord.from_dict(adaptation) if adaptation is not None else None,
                **content,
            )
        except (TypeError, KeyError, AttributeError) as error:
            raise StoreDamagedError(f"{path} is damaged: {error}") from error
