"""What nearmt asks of a search engine."""

from typing import Protocol

import numpy as np


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

    def search(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """(rows, k) squared distances, perhaps approximate, and entry ids, -1 where there are none."""
        ...
