"""From decoder states to neighbours: candidates from the index, exact distances from the stored keys."""

from collections.abc import Sequence

import numpy as np
import torch

from nearmt.index import Index, load_index, measured
from nearmt.neighbors import Neighbors
from nearmt.store import Snapshot

# faiss subtracts norms in float32, which can swap neighbours that are nearly as near; a few more candidates
# than asked for, measured directly, put that right.
_EXACT_SLACK = 8
RERANKED = 128
_GATHERED_NUMBERS = 1 << 20  # keys are fetched a few rows at a time, so that they stay in the processor's cache


class Retriever:
    """Searches one snapshot. Holds no results, so any number of callers may use it at once."""

    def __init__(self, snapshot: Snapshot, index: Index | None = None, reranked: int | None = None) -> None:
        self.snapshot = snapshot
        self.index: Index = index if index is not None else load_index(snapshot)
        stated = (snapshot.manifest.index or {}).get("reranked", RERANKED)
        self.reranked: int = reranked if reranked is not None else stated
        self._measured = measured(self.index, snapshot.keys) if self.index.is_exact or self.reranked else None
        self._keys = torch.from_numpy(snapshot.keys)
        self._values = torch.from_numpy(snapshot.values)

    def search(self, states: torch.Tensor, k: int, excluded: Sequence[np.ndarray | None] | None = None) -> Neighbors:
        """The `k` nearest entries of each state, (rows, width).

        `excluded` names, for each row, sentences whose entries do not count there.
        """
        queries = states.detach().to("cpu", torch.float32)
        if len(self.snapshot) == 0 or len(queries) == 0:
            empty = torch.zeros((len(queries), 0))
            return Neighbors.sorted_from(empty, empty.long(), empty.long(), k)
        wanted = min(k + _EXACT_SLACK if self.index.is_exact else max(k, self.reranked), self.index.num_entries)
        distances, entry_ids = self._candidates(queries, wanted, excluded)
        while excluded is not None and wanted < self.index.num_entries:
            # Rows whose candidates were mostly excluded are searched again, deeper.
            short = ((entry_ids >= 0).sum(dim=1) < min(k, wanted)).nonzero().flatten()
            if not len(short):
                break
            wanted = min(4 * wanted, self.index.num_entries)
            deeper = self._candidates(queries[short], wanted, [excluded[i] for i in short.tolist()])
            pad = (0, wanted - entry_ids.shape[1])
            distances = torch.nn.functional.pad(distances, pad)
            entry_ids = torch.nn.functional.pad(entry_ids, pad, value=-1)
            distances[short], entry_ids[short] = deeper
        return Neighbors.sorted_from(distances, self._values[entry_ids.clamp_min(0)].long(), entry_ids, k)

    def _candidates(
        self, queries: torch.Tensor, wanted: int, excluded: Sequence[np.ndarray | None] | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(rows, wanted) distances and entry ids, unsorted; -1 for what was not found or does not count."""
        distances, found = (self._measured or self.index).search(queries.numpy(), wanted)
        entry_ids = torch.from_numpy(found)
        if excluded is not None:
            entry_ids = self._without(entry_ids, excluded)
        if self._measured is None and (self.index.is_exact or self.reranked):
            return self._distances(queries, entry_ids.clamp_min(0)), entry_ids
        return torch.from_numpy(distances), entry_ids

    def _distances(self, queries: torch.Tensor, entry_ids: torch.Tensor) -> torch.Tensor:
        """Squared distances measured directly, the same whatever else is searched with a row."""
        rows, count = entry_ids.shape
        out = torch.empty(rows, count)
        step = max(1, _GATHERED_NUMBERS // (count * queries.shape[1]))
        for start in range(0, rows, step):
            ids = entry_ids[start : start + step]
            keys = self._keys[ids.reshape(-1)].view(*ids.shape, -1).float()
            out[start : start + step] = keys.sub_(queries[start : start + step].unsqueeze(1)).square_().sum(dim=2)
        return out

    def _without(self, entry_ids: torch.Tensor, excluded: Sequence[np.ndarray | None]) -> torch.Tensor:
        sentence_ids = self.snapshot.sentence_ids_of(entry_ids.numpy())
        gone = np.zeros(sentence_ids.shape, bool)
        for row, sentences in enumerate(excluded):
            if sentences is not None and len(sentences):
                gone[row] = np.isin(sentence_ids[row], sentences)
        return entry_ids.masked_fill(torch.from_numpy(gone), -1)
