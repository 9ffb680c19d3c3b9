"""What nearmt asks of a search engine."""

from functools import cached_property
from typing import Protocol, runtime_checkable

import numpy as np


class Allowed:
    """Which entries may be found: a mask over the entries 0 … n - 1. Later ones may not."""

    def __init__(self, mask: np.ndarray, origin_hashes: np.ndarray | None = None) -> None:
        self.mask = mask
        self.origin_hashes = origin_hashes  # where it is known: every allowed entry comes from one of these

    def __len__(self) -> int:
        return len(self.mask)

    @cached_property
    def share(self) -> float:
        """The part of the entries that may be found."""
        return float(self.mask.mean()) if len(self.mask) else 1.0

    @cached_property
    def bits(self) -> np.ndarray:
        """One bit an entry, the first in the lowest."""
        return np.packbits(self.mask, bitorder="little")


class Index(Protocol):
    """Finds the entries whose keys are nearest to a query by squared L2 distance."""

    @property
    def num_entries(self) -> int:
        """Entries 0 … num_entries - 1 of the store are in it."""
        ...

    @property
    def is_exact(self) -> bool:
        """Whether every true neighbour is among the candidates."""
        ...

    def search(self, queries: np.ndarray, k: int, allowed: Allowed | None = None) -> tuple[np.ndarray, np.ndarray]:
        """(rows, k) squared distances, perhaps approximate, and entry ids, -1 where there are none."""
        ...


@runtime_checkable
class GrowingIndex(Protocol):
    """An index that takes in further entries as long as it is open."""

    def add(self, keys: np.ndarray) -> None:
        """The keys of the next entries."""
        ...
