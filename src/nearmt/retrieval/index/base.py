"""The interface of a search engine."""

from functools import cached_property
from typing import Protocol, runtime_checkable

import numpy as np


class Allowed:
    """The entries that a search may return: a mask over the entries 0 … n - 1. Later entries are not allowed."""

    def __init__(self, mask: np.ndarray, origin_hashes: np.ndarray | None = None) -> None:
        self.mask = mask
        self.origin_hashes = origin_hashes  # if known: every allowed entry has one of these origins

    def __len__(self) -> int:
        return len(self.mask)

    @cached_property
    def share(self) -> float:
        """The share of entries that are allowed."""
        return float(self.mask.mean()) if len(self.mask) else 1.0

    @cached_property
    def bits(self) -> np.ndarray:
        """One bit per entry, the first in the lowest bit."""
        return np.packbits(self.mask, bitorder="little")


class Index(Protocol):
    """Finds the entries whose keys are nearest to a query by squared L2 distance."""

    @property
    def num_entries(self) -> int:
        """The index holds entries 0 … num_entries - 1 of the store."""
        ...

    @property
    def is_exact(self) -> bool:
        """True if the candidates always include every true neighbour."""
        ...

    def search(self, queries: np.ndarray, k: int, allowed: Allowed | None = None) -> tuple[np.ndarray, np.ndarray]:
        """(rows, k) squared distances, possibly approximate, and entry ids, -1 where there are none."""
        ...


@runtime_checkable
class GrowingIndex(Protocol):
    """An index in memory that entries can be added to."""

    def add(self, keys: np.ndarray) -> None:
        """Add the keys of the next entries."""
        ...
