"""Token ids to the input of the first layer: the scaled token embedding plus the position embedding."""

from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Embedding:
    """The tables of one side. Token embeddings are in half precision, which is much finer than int8 needs."""

    tokens: torch.Tensor  # (vocabulary, width) float16
    positions: torch.Tensor  # (positions, width) float32, starting at the first position
    scale: float

    @classmethod
    def of(cls, *sides: Any) -> "list[Embedding]":
        """The embeddings of encoder and decoder; a shared table stays shared."""
        tables = {side.embed_tokens.weight.data_ptr(): side.embed_tokens.weight for side in sides}
        halves = {place: table.detach().half() for place, table in tables.items()}
        return [
            cls(halves[side.embed_tokens.weight.data_ptr()], _positions(side.embed_positions), _scale(side))
            for side in sides
        ]

    def __call__(self, token_ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Embeddings of ids (sentences, group) at positions that broadcast with them."""
        found = torch.nn.functional.embedding(token_ids, self.tokens).float()
        return found.mul_(self.scale).add_(self.positions[positions])


def _scale(side: Any) -> float:
    """The embedding scale: Marian has it on the encoder or decoder, M2M100 on the embedding module."""
    holder = side if hasattr(side, "embed_scale") else side.embed_tokens
    return float(getattr(holder, "embed_scale", 1.0))


def _positions(module: Any) -> torch.Tensor:
    """The position table: Marian starts at 0, M2M100 has rows for padding before the first position."""
    if hasattr(module, "padding_idx") and hasattr(module, "weights"):
        table: torch.Tensor = module.weights[module.padding_idx + 1 :]
    else:
        table = module.weight
    return table.detach().float().clone()
