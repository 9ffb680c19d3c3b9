"""What every reader yields: sentence pairs, and the counts of dropped units.

The text of a `SentencePair` is non-empty, on one line and without extra spaces; `PairSieve` ensures it for all formats.
"""

import re
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime

# No-break spaces are typography that a translation should keep, so they do not match.
# Neither does a single plain space, which would be replaced by itself.
_BREAKING_SPACE = re.compile(r"[^\S\u00a0\u2007\u202f]{2,}|[^\S \u00a0\u2007\u202f]")


@dataclass(frozen=True, slots=True)
class SentencePair:
    """A source sentence and its translation, each on one line, and where they come from."""

    source: str
    target: str
    unit_id: str | None = None
    origin: str | None = None
    changed_at: str | None = None  # ISO 8601 in UTC: 2024-05-01T12:00:00Z


@dataclass(slots=True)
class DropCounts:
    """The number of dropped units, by reason.

    The reasons are short fixed phrases. The readers use "empty", "identical", "unconfirmed", "obsolete",
    "not translatable" and "missing language"; later steps add their own ("duplicate", "too long").
    """

    _counts: Counter[str] = field(default_factory=Counter)

    def add(self, reason: str, count: int = 1) -> None:
        self._counts[reason] += count

    @property
    def total(self) -> int:
        return self._counts.total()

    def as_dict(self) -> dict[str, int]:
        """The counts, sorted by reason."""
        return dict(sorted(self._counts.items()))


@dataclass(frozen=True, slots=True)
class PairSieve:
    """Makes a `SentencePair` from two raw texts, or counts the reason for dropping them."""

    drops: DropCounts
    keep_identical: bool = False

    def pair(
        self, source: str, target: str, *, unit_id: str | None, origin: str | None, changed_at: str | None
    ) -> SentencePair | None:
        source, target = normalise_space(source), normalise_space(target)
        if not source or not target:
            self.drops.add("empty")
            return None
        if source == target and not self.keep_identical:
            self.drops.add("identical")
            return None
        return SentencePair(source, target, unit_id, origin, changed_at)


def normalise_space(text: str) -> str:
    """Replace runs of white space, line ends included, by one space; no-break spaces inside the text stay."""
    return _BREAKING_SPACE.sub(" ", text).strip()


def utc_date(text: str | None) -> str | None:
    """An ISO 8601 date, basic or extended, as 2024-05-01T12:00:00Z; None if it is not one.

    A date without a time zone is read as UTC: the formats that allow it (XLIFF, TSV) define no default.
    """
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text.strip())
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):  # OverflowError: year 1 or 9999 pushed over the edge by its time zone
        return None
    return moment.replace(microsecond=0, tzinfo=None).isoformat() + "Z"
