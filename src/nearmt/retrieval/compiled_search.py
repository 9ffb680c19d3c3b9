"""What compiled searches share: states in the space of the keys, arrays for the results, and threads."""

from abc import ABC, abstractmethod

import numpy as np
import torch

from nearmt.compiled.projection import project_rows
from nearmt.datastore import KeyCode
from nearmt.retrieval.neighbors import NearArrays, Neighbors, UnfilledArrays


class _Work:
    """Arrays for the queries and results of up to `rows` rows."""

    def __init__(self, rows: int, k: int, dims: int) -> None:
        self.queries = np.zeros((rows, dims), np.float32)
        self.places = np.empty((rows, k), np.int64)
        self.near = NearArrays(
            np.empty((rows, k), np.float32),
            np.zeros((rows, k), np.int64),
            np.empty(rows, np.int64),
            np.zeros((rows, k), np.float32),
        )

    def has_room(self, rows: int, k: int) -> bool:
        return len(self.places) >= rows and self.places.shape[1] == k


class CompiledSearch(ABC):
    """The search of one batch of sources. A step finds the nearest entries of each row in the thread that uses them."""

    def __init__(self, code: KeyCode, query_dims: int) -> None:
        self._code, self._query_dims = code, query_dims
        self._work: _Work | None = None
        if code.level is None:  # floats, which are compared as they are
            self._line = np.zeros(code.dims, np.float32), np.ones(code.dims, np.float32)
        else:
            self._line = code.levels_line

    def search(self, states: torch.Tensor, sources: torch.Tensor, k: int) -> Neighbors:
        """The `k` nearest entries of each state, (rows, width); row i belongs to source `sources[i]`."""
        work = _Work(len(states), k, self._query_dims)
        near = self._started(states, sources.numpy(), work).filled().arrays
        found = np.arange(k) < near.counts[:, None]
        last = np.maximum(near.counts - 1, 0)[:, None]
        farthest = np.where(found[:, :1], np.take_along_axis(near.squared_distances, last, 1), 0)
        return Neighbors(
            torch.from_numpy(np.where(found, near.squared_distances, farthest)),
            torch.from_numpy(near.token_ids),
            torch.from_numpy(np.where(found, self._entry_ids(work.places), -1)),
            torch.from_numpy(found),
        )

    def search_arrays(self, states: torch.Tensor, sources: torch.Tensor, k: int) -> Neighbors | UnfilledArrays:
        """The same, as compiled mixtures take it: searched when they need it, and valid until the next call."""
        if self._work is None or not self._work.has_room(len(states), k):
            self._work = _Work(len(states), k, self._query_dims)
        return self._started(states, sources.numpy(), self._work)

    def _started(self, states: torch.Tensor, sources: np.ndarray, work: _Work) -> UnfilledArrays:
        given = np.ascontiguousarray(states.detach().to("cpu", torch.float32).numpy())
        rows, code, near = len(given), self._code, work.near
        is_projected = code.projection is None or given.shape[1] == code.dims

        def fill(first: int, last: int) -> None:
            if is_projected:
                work.queries[first:last, : code.dims] = (given[first:last] - self._line[0]) * self._line[1]
            else:
                project_rows(given, first, last, code.projection, *self._line, work.queries)
            near.squared_distances[first:last] = np.inf
            work.places[first:last] = -1
            self._find(first, last, sources, work.queries, near, work.places)
            if code.level is not None:
                near.squared_distances[first:last] *= np.float32(code.level)

        return UnfilledArrays(NearArrays(*(part[:rows] for part in near)), fill)

    @abstractmethod
    def _find(
        self, first: int, last: int, sources: np.ndarray, queries: np.ndarray, near: NearArrays, places: np.ndarray
    ) -> None:
        """Fill some rows of `near`, and of `places` with where their entries are, -1 where there are none.

        Queries are in units of the keys if these are bytes, and so are the distances.
        """

    @abstractmethod
    def _entry_ids(self, places: np.ndarray) -> np.ndarray:
        """The entries in some places."""
