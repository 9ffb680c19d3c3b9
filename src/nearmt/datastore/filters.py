"""Filters that restrict a translation to a part of the store by origin and date, and the list of origins."""

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np

from nearmt.datastore.snapshot import Snapshot
from nearmt.datastore.units import date_of, seconds_of
from nearmt.errors import SettingError


@dataclass(frozen=True)
class Filter:
    """Which units may be used: by origin, where names may contain * and ?, and by date of change."""

    only: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    since: str | None = None  # a date such as 2024-05-01, inclusive
    until: str | None = None  # a date, exclusive

    def __post_init__(self) -> None:
        for date in (self.since, self.until):
            if date is not None and seconds_of(date) is None:
                raise SettingError(f"{date} is not a date: write it as 2024-05-01 or 2024-05-01T12:00:00Z")

    @property
    def is_empty(self) -> bool:
        return self == Filter()

    def origin_hashes(self, snapshot: Snapshot) -> np.ndarray | None:
        """Hashes of the origins that pass; None if all do."""
        if not (self.only or self.exclude):
            return None
        wanted = [
            code
            for code, name in _origin_names(snapshot).items()
            if (not self.only or _matches(name, self.only)) and not _matches(name, self.exclude)
        ]
        return np.array(wanted, np.uint64)

    def units(self, snapshot: Snapshot) -> np.ndarray:
        """(units,) True if the unit is live and passes."""
        mask = snapshot.live_units.copy()
        wanted = self.origin_hashes(snapshot)
        if wanted is not None:
            mask &= np.isin(snapshot.units["origin_hash"], wanted)
        if self.since is not None:
            mask &= snapshot.units["time"] >= seconds_of(self.since)
        if self.until is not None:
            mask &= snapshot.units["time"] < seconds_of(self.until)
        return mask

    def sentences(self, snapshot: Snapshot) -> np.ndarray:
        """(sentences,) True if a live unit of the sentence passes."""
        return snapshot.sentences_with(self.units(snapshot))

    def newest_units(self, snapshot: Snapshot) -> np.ndarray:
        """(sentences,) the newest live unit of each that passes, by date and then order; -1 where none does."""
        mask = self.units(snapshot)
        newest = np.where(snapshot.sentences_with(mask), 0, -1)
        numbers = np.flatnonzero(mask)
        numbers = numbers[np.argsort(snapshot.units["time"][numbers], kind="stable")]
        newest[snapshot.units["sentence"][numbers]] = numbers  # of several, the last
        return newest


def _matches(name: str | None, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name or "", pattern) for pattern in patterns)


def _origin_names(snapshot: Snapshot) -> Mapping[int, str | None]:
    """Hash → name of every origin that has a live unit."""
    alive = np.flatnonzero(snapshot.live_units)
    codes, first = np.unique(snapshot.units["origin_hash"][alive], return_index=True)
    return {int(code): snapshot.unit(int(alive[at])).origin for code, at in zip(codes, first, strict=True)}


@dataclass(frozen=True)
class Origin:
    """The units of a store that come from one origin."""

    name: str | None
    units: int
    first_date: str
    last_date: str


def origins(snapshot: Snapshot) -> list[Origin]:
    """The origins of a store, the largest first."""
    alive = np.flatnonzero(snapshot.live_units)
    order = alive[np.argsort(snapshot.units["origin_hash"][alive], kind="stable")]
    codes, times = snapshot.units["origin_hash"][order], snapshot.units["time"][order]
    starts = np.flatnonzero(np.diff(codes, prepend=codes[:1] + np.uint64(1)) != 0)
    found = []
    for start, end in zip(starts, np.append(starts, len(codes))[1:], strict=True):
        of_it = times[start:end]
        name = snapshot.unit(int(order[start])).origin
        found.append(Origin(name, len(of_it), date_of(int(of_it.min())), date_of(int(of_it.max()))))
    return sorted(found, key=lambda origin: (-origin.units, origin.name or ""))
