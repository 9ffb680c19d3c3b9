"""Low-rank adapters (LoRA, Hu et al., ICLR 2022) for the linear layers of a network, and merging them into it."""

import math
from collections.abc import Iterator
from typing import TypeVar

import torch
from torch import nn
from torch.nn import functional

RANK = 16
SCALE = 2.0  # α/r
Layer = TypeVar("Layer", bound=nn.Module)


class LowRank(nn.Module):
    """A frozen linear layer, and a trained product of two small matrices that is added to it."""

    def __init__(self, linear: nn.Linear, rank: int) -> None:
        super().__init__()
        self.linear = linear
        self.down = nn.Parameter(torch.empty(rank, linear.in_features))
        self.up = nn.Parameter(torch.zeros(linear.out_features, rank))  # at first, the layer does what it did
        nn.init.kaiming_uniform_(self.down, a=math.sqrt(5))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        reduced = functional.linear(inputs, self.down)
        result: torch.Tensor = self.linear(inputs) + SCALE * functional.linear(reduced, self.up)
        return result

    def merged(self) -> nn.Linear:
        """The linear layer with the product added to its weight."""
        with torch.no_grad():
            self.linear.weight += SCALE * (self.up @ self.down)
        return self.linear


def add_adapters(network: nn.Module, projection: nn.Module, rank: int = RANK) -> None:
    """Freeze a network and give an adapter to every linear layer except the output projection."""
    network.requires_grad_(False)
    for parent, name, layer in list(_layers(network, nn.Linear)):
        if layer is not projection:
            setattr(parent, name, LowRank(layer, rank))


def merge_adapters(network: nn.Module) -> None:
    """Put the linear layers back, with what their adapters have learnt."""
    for parent, name, layer in list(_layers(network, LowRank)):
        setattr(parent, name, layer.merged())


def _layers(network: nn.Module, kind: type[Layer]) -> Iterator[tuple[nn.Module, str, Layer]]:
    """The layers of a kind, each with its parent and its name there."""
    for parent in network.modules():
        for name, layer in parent.named_children():
            if isinstance(layer, kind):
                yield parent, name, layer
