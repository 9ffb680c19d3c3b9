"""What all trained networks have in common, Meta-k and its variants."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from torch import nn

from nearmt.methods.damping import Damping
from nearmt.methods.mixture import MixtureWeights, neighbor_counts
from nearmt.methods.retrieved import Retrieved


class Network(nn.Module, ABC):
    """A trained network that weighs neighbours against the model; a `Method` of the mixture.

    `distance_scale` multiplies squared distances, so that the median of the farthest neighbour's is 100 for every
    model. With `damping`, the model gets a larger share in sentences far from the memory.
    """

    name: ClassVar[str]

    def __init__(self, max_k: int, distance_scale: float) -> None:
        super().__init__()
        neighbor_counts(max_k)  # raises if max_k is out of range
        self.max_k, self.distance_scale = max_k, distance_scale
        self.damping: Damping | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """The constructor's arguments, and the damping under "guard", its name in files."""
        guard = self.damping.as_dict() if self.damping is not None else None
        return {"max_k": self.max_k, "distance_scale": self.distance_scale, "guard": guard}

    @abstractmethod
    def weigh(self, retrieved: Retrieved) -> MixtureWeights:
        """The weights of the mixture, without gradients."""
