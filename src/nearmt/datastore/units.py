"""Translation units: where a stored sentence comes from. A sentence is live while one of its units is."""

import json
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np

from nearmt.corpus import SentencePair
from nearmt.datastore.hashing import identity_hash, name_hash

UNIT = np.dtype(
    [
        ("sentence", "<i8"),
        ("text_start", "<i8"),
        ("identity", "<u8"),  # a unit with the same identity replaces it
        ("unit_hash", "<u8"),
        ("origin_hash", "<u8"),
        ("time", "<i8"),  # seconds since 1970: when it was changed, or added if that is unknown
        ("is_first", "<i8"),  # 1 if its sentence was added with it
    ]
)


@dataclass(frozen=True)
class Unit:
    """One occurrence of a sentence in a translation memory."""

    sentence_id: int
    unit_id: str | None
    origin: str | None
    changed_at: str | None
    identity: int
    time: int
    is_first: bool = False

    @classmethod
    def of(cls, pair: SentencePair, sentence_id: int, *, is_first: bool) -> "Unit":
        """The unit of a pair that is added now."""
        seconds = seconds_of(pair.changed_at) if pair.changed_at else None
        return cls(
            sentence_id,
            pair.unit_id,
            pair.origin,
            pair.changed_at,
            identity_hash(pair),
            int(time.time()) if seconds is None else seconds,
            is_first,
        )

    def record(self) -> tuple[int, ...]:
        """The row for the table, without the start of its text, which is not known yet."""
        names = name_hash(self.unit_id), name_hash(self.origin)
        return (self.sentence_id, 0, self.identity, *names, self.time, int(self.is_first))

    def line(self) -> bytes:
        """The line for the file of texts."""
        fields = {"unit_id": self.unit_id, "origin": self.origin, "changed_at": self.changed_at}
        present = {name: value for name, value in fields.items() if value is not None}
        return (json.dumps(present, ensure_ascii=False) + "\n").encode("utf-8", "surrogatepass")

    @classmethod
    def read(cls, record: np.void, line: bytes) -> "Unit":
        """Read a unit from its row and its line."""
        texts: dict[str, Any] = json.loads(line.decode("utf-8", "surrogatepass"))
        return cls(
            int(record["sentence"]),
            texts.get("unit_id"),
            texts.get("origin"),
            texts.get("changed_at"),
            int(record["identity"]),
            int(record["time"]),
            bool(record["is_first"]),
        )


def seconds_of(date: str) -> int | None:
    """An ISO date as seconds since 1970; None if it cannot be parsed."""
    try:
        moment = datetime.fromisoformat(date)
    except ValueError:
        return None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())


def date_of(seconds: int) -> str:
    """Seconds since 1970 as an ISO date in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
