"""What a search brings back: the small border between the retriever and the mixture."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Neighbors:
    """The K nearest entries of each row, nearest first.

    Slots that nothing was found for come last: there `found` is False, `entry_ids` is -1, the token is
    arbitrary, and the distance repeats the last found one so that it can serve as a feature.
    """

    squared_distances: torch.Tensor  # (rows, K) float32
    token_ids: torch.Tensor  # (rows, K) int64
    entry_ids: torch.Tensor  # (rows, K) int64
    found: torch.Tensor  # (rows, K) bool

    def __len__(self) -> int:
        return self.squared_distances.shape[0]

    @property
    def max_k(self) -> int:
        return self.squared_distances.shape[1]

    def nearest(self, k: int) -> "Neighbors":
        """The same rows with at most `k` neighbours."""
        return Neighbors(self.squared_distances[:, :k], self.token_ids[:, :k], self.entry_ids[:, :k], self.found[:, :k])

    def rows(self, rows: torch.Tensor | slice) -> "Neighbors":
        """Some of the rows, by index, mask or range."""
        return Neighbors(self.squared_distances[rows], self.token_ids[rows], self.entry_ids[rows], self.found[rows])

    @staticmethod
    def sorted_from(
        squared_distances: torch.Tensor, token_ids: torch.Tensor, entry_ids: torch.Tensor, k: int
    ) -> "Neighbors":
        """From unsorted candidates; an entry id of -1 marks a missing one. Ties go to the lower entry id."""
        width = entry_ids.shape[1]
        if width < k:
            pad = (0, k - width)
            squared_distances = torch.nn.functional.pad(squared_distances, pad)
            token_ids = torch.nn.functional.pad(token_ids, pad)
            entry_ids = torch.nn.functional.pad(entry_ids, pad, value=-1)
        by_id = entry_ids.argsort(dim=1)
        distances = torch.where(entry_ids < 0, torch.inf, squared_distances).gather(1, by_id)
        nearest = distances.sort(dim=1, stable=True)
        order = by_id.gather(1, nearest.indices[:, :k])
        distances, entry_ids = nearest.values[:, :k], entry_ids.gather(1, order)
        found = entry_ids >= 0
        last = found.sum(dim=1, keepdim=True).sub(1).clamp_min(0)
        distances = torch.where(found, distances, distances.gather(1, last))
        distances = torch.where(found.any(dim=1, keepdim=True), distances, torch.zeros(()))
        return Neighbors(distances, token_ids.gather(1, order), entry_ids, found)
