"""Training data, retrieved once: the neighbours of every gold token of the dev set and the model's probabilities."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch

from nearmt.methods.retrieved import EntryColumns, Retrieved, RunningDistance, running_distance
from nearmt.retrieval.neighbors import Neighbors


@dataclass(frozen=True)
class NeighborCache:
    """One row per gold token of the dev set, in sentence order."""

    neighbors: Neighbors  # (n, K)
    gold: torch.Tensor  # (n,) the reference token
    sentence_ids: torch.Tensor  # (n,) which dev sentence
    positions: torch.Tensor  # (n,) position in the sentence
    gold_probability: torch.Tensor  # (n,) p_NMT(gold)
    neighbor_probabilities: torch.Tensor  # (n, K) p_NMT(v_i) at the query
    top_probabilities: torch.Tensor  # (n, 8) the model's highest probabilities, highest first
    states: torch.Tensor  # (n, width) float16: the queries

    def __len__(self) -> int:
        return len(self.gold)

    def rows(self, rows: torch.Tensor | slice) -> "NeighborCache":
        """Some of the rows, by index, mask or range."""
        parts: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self)}
        neighbors = parts.pop("neighbors").rows(rows)
        return NeighborCache(neighbors=neighbors, **{name: part[rows] for name, part in parts.items()})

    def nearest(self, k: int) -> "NeighborCache":
        """The same rows with at most `k` neighbours."""
        probabilities = self.neighbor_probabilities[:, :k]
        return replace(self, neighbors=self.neighbors.nearest(k), neighbor_probabilities=probabilities)

    def retrieved(self, columns: EntryColumns) -> Retrieved:
        """The rows as a method gets them in decoding; `columns` is the store they were retrieved from."""
        entry_ids = self.neighbors.entry_ids
        return Retrieved(
            self.neighbors,
            lambda: columns.project(self.states),
            lambda: columns.keys_of(entry_ids),
            lambda: columns.probabilities_of(entry_ids),
            lambda: self.neighbor_probabilities,
            lambda: self.top_probabilities,
            self.running_distance,
        )

    def running_distance(self, scale: float) -> RunningDistance:
        """The running mean distance of each token. The cache must hold whole sentences."""
        order = torch.from_numpy(np.lexsort((self.positions.numpy(), self.sentence_ids.numpy())))
        in_order = running_distance(self.neighbors.rows(order), scale, self.sentence_ids[order])
        back = order.argsort()
        return RunningDistance(in_order.mean[back], in_order.length[back])

    def median_distance(self, slot: int) -> float:
        """The median squared distance in a slot, over the tokens with neighbours; 0 if there are none."""
        distances = self.neighbors.squared_distances[self.neighbors.found[:, 0], slot]
        return float(distances.median()) if len(distances) else 0.0

    def split(self, held_out: Sequence[int]) -> tuple["NeighborCache", "NeighborCache"]:
        """Split by whole sentences into a training part and a held-out part."""
        mask = torch.from_numpy(np.isin(self.sentence_ids.numpy(), list(held_out)))
        return self.rows(~mask), self.rows(mask)

    @staticmethod
    def concatenated(parts: Sequence["NeighborCache"]) -> "NeighborCache":
        def joined(kind: type, values: Sequence[Any]) -> dict[str, Any]:
            names = [f.name for f in fields(kind) if f.name != "neighbors"]
            return {name: torch.cat([getattr(value, name) for value in values]) for name in names}

        neighbors = Neighbors(**joined(Neighbors, [part.neighbors for part in parts]))
        return NeighborCache(neighbors=neighbors, **joined(NeighborCache, parts))
