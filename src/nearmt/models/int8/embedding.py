"""Token ids to the rows that enter a stack of layers: the token's vector, scaled, and its position's."""

from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Embedding:
    """One side's tables. The tokens' vectors are held in half precision, which is far finer than int8 needs."""

    tokens: torch.Tensor  # (vocabulary, width) float16
    positions: torch.Tensor  # (positions, width) float32, from the first position on
    scale: float

    @classmethod
    def of(cls, *sides: Any) -> "list[Embedding]":
        """The embeddings of encoder and decoder; a table that they share stays one."""
        tables = {side.embed_tokens.weight.data_ptr(): side.embed_tokens.weight for side in sides}
        halves = {place: table.detach().half() for place, table in tables.items()}
        return [
            cls(halves[side.embed_tokens.weight.data_ptr()], _positions(side.embed_positions), _scale(side))
            for side in sides
        ]

    def __call__(self, token_ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Vectors of ids (sentences, group) at positions that broadcast with them."""
        found = torch.nn.functional.embedding(token_ids, self.tokens).float()
        return found.mul_(self.scale).add_(self.positions[positions])


def _scale(side: Any) -> float:
    """Marian has the factor beside its table, M2M100 inside."""
    holder = side if hasattr(side, "embed_scale") else side.embed_tokens
    return float(getattr(holder, "embed_scale", 1.0))


def _positions(module: Any) -> torch.Tensor:
    """Marian counts from 0; M2M100 has rows for padding before the first position."""
    if hasattr(module, "padding_idx") and hasattr(module, "weights"):
        table: torch.Tensor = module.weights[module.padding_idx + 1 :]
    else:
        table = module.weight
    return table.detach().float().clone()
