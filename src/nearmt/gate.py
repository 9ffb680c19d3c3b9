"""Not asking: a small network that tells, from what the decoder already has, whether a search would be worth it.

Its inputs are the state, its length, the highest probabilities of p_NMT and the entropy that they leave, how near the
nearest neighbour was when the memory was last asked, and how many steps ago. It foretells the gain of a token, by how
much its mixed log-probability would be above the model's own, and how far the nearest neighbour would be. Where less
than the threshold is to be gained nothing is searched, and the token is the model's alone; the guard, which wants to
know how far a sentence is from the memory, is told the distance that was foretold.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from nearmt.errors import StoreDamagedError
from nearmt.neighbors import NUM_TOP, Neighbors, Trail, top_probabilities, trails_of

_HEADER = "nearmt_gate"
_HIDDEN, _DROPOUT = 32, 0.2
_LONGEST_GAP = 4  # steps since the last search; longer ones look alike
_BESIDE_STATE = NUM_TOP + 4


@dataclass(frozen=True)
class Glance:
    """What is known of each row before any search."""

    states: torch.Tensor  # (rows, width) float32
    top_probabilities: torch.Tensor  # (rows, 8)
    last_distance: torch.Tensor  # (rows,) of the nearest neighbour when the memory was last asked; 0 if never
    gap: torch.Tensor  # (rows,) steps since then, 0 if never

    @property
    def entropy(self) -> torch.Tensor:
        """(rows,) in nats, the lower probabilities taken for one: to sum them all would cost as much as a search."""
        rest = (1 - self.top_probabilities.sum(dim=1, keepdim=True)).clamp_min(0)
        parts: torch.Tensor = torch.special.entr(torch.cat((self.top_probabilities, rest), dim=1))
        return parts.sum(dim=1)


class LastAsked:
    """For each row of a batch under way: how near the memory was when it was last asked, and how long ago."""

    def __init__(self) -> None:
        self._distance, self._gap, self._is_known = torch.zeros(0), torch.zeros(0), torch.zeros(0, dtype=torch.bool)

    def follow(self, parents: torch.Tensor) -> None:
        """The next step: each row goes on from the row that `parents` names."""
        if not len(self._distance):
            count = len(parents)
            self._distance, self._gap = torch.zeros(count), torch.zeros(count)
            self._is_known = torch.zeros(count, dtype=torch.bool)
        self._distance, self._is_known = self._distance[parents], self._is_known[parents]
        self._gap = torch.where(self._is_known, self._gap[parents] + 1, 0.0)

    def note(self, rows: torch.Tensor, distances: torch.Tensor) -> None:
        """These rows were searched just now."""
        self._distance[rows], self._gap[rows], self._is_known[rows] = distances, 0.0, True

    def glance(self, states: torch.Tensor, log_probs: torch.Tensor) -> Glance:
        """What is known of the rows before any search."""
        return Glance(states.to("cpu", torch.float32), top_probabilities(log_probs).cpu(), self._distance, self._gap)


class Foretold(NamedTuple):
    """What a search would bring."""

    gains: torch.Tensor  # (rows,) in nats
    squared_distances: torch.Tensor  # (rows,) of the nearest neighbour
    is_worth_it: torch.Tensor  # (rows,) bool: where to search


class Gate(nn.Module):
    """Foretells what a search would bring."""

    middle: torch.Tensor  # (width,) of the states of the dev set
    spread: torch.Tensor

    def __init__(
        self, width: int, length_scale: float = 1.0, distance_scale: float = 1.0, threshold: float = 0.0
    ) -> None:
        super().__init__()
        self.width, self.length_scale, self.distance_scale = width, length_scale, distance_scale
        self.threshold = threshold
        self.register_buffer("middle", torch.zeros(width))
        self.register_buffer("spread", torch.ones(width))
        self.layers = nn.Sequential(
            nn.Linear(width + _BESIDE_STATE, _HIDDEN), nn.Tanh(), nn.Dropout(_DROPOUT), nn.Linear(_HIDDEN, 2)
        )

    def inputs(self, glance: Glance) -> torch.Tensor:
        """(rows, width + 12), each of a size near 1."""
        beside = (
            glance.entropy,
            glance.states.norm(dim=1) * self.length_scale,
            self.log_distances(glance.last_distance),
            glance.gap.clamp_max(_LONGEST_GAP) / _LONGEST_GAP,
        )
        states = (glance.states - self.middle) / self.spread
        return torch.cat((states, glance.top_probabilities, torch.stack(beside, dim=1)), dim=1)

    def log_distances(self, squared_distances: torch.Tensor) -> torch.Tensor:
        """Distances of any size as the network sees them."""
        return (squared_distances * self.distance_scale).log1p()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """(rows, 2): the gain in nats, and the distance as `log_distances` has it."""
        found: torch.Tensor = self.layers(inputs)
        return found

    @torch.inference_mode()
    def foretell(self, glance: Glance) -> Foretold:
        """What searches for these rows would bring."""
        gains, distances = self.forward(self.inputs(glance)).unbind(dim=1)
        return Foretold(gains, distances.clamp_min(0).expm1() / self.distance_scale, gains >= self.threshold)

    def with_threshold(self, threshold: float) -> "Gate":
        """The same network, stricter or more lenient."""
        other = Gate(self.width, self.length_scale, self.distance_scale, threshold)
        other.load_state_dict(self.state_dict())
        return other.eval()

    def to_bytes(self) -> bytes:
        settings = {
            "width": self.width,
            "length_scale": self.length_scale,
            "distance_scale": self.distance_scale,
            "threshold": self.threshold,
        }
        tensors = {name: tensor.contiguous() for name, tensor in self.state_dict().items()}
        content: bytes = safetensors.torch.save(tensors, {_HEADER: json.dumps(settings)})
        return content

    @classmethod
    def load(cls, path: Path) -> "Gate":
        try:
            with safe_open(path, "pt") as opened:
                gate = cls(**json.loads(opened.metadata()[_HEADER]))
                gate.load_state_dict({name: opened.get_tensor(name) for name in opened.keys()})  # noqa: SIM118
        except (SafetensorError, KeyError, TypeError, RuntimeError, OSError, ValueError) as error:
            raise StoreDamagedError(f"{path} is missing or damaged: run nearmt verify, or train again") from error
        return gate.eval()


class Walk(NamedTuple):
    """What became of the tokens of one finished hypothesis."""

    asked: torch.Tensor  # (rows,) bool: where the memory was searched
    foretold: torch.Tensor  # (rows,) the squared distances foretold before that

    def trails(self, neighbors: Neighbors, scale: float) -> Trail:
        """How far the sentence was so far, as the decoder knew it."""
        distances = torch.where(self.asked, neighbors.squared_distances[:, 0], self.foretold)
        return trails_of(distances, neighbors.found[:, 0] | ~self.asked, scale)


def walk_along(gate: Gate, states: torch.Tensor, log_probs: torch.Tensor, nearest: torch.Tensor) -> Walk:
    """Where the memory was asked along one finished hypothesis, whose tokens are the rows."""
    last, rows = LastAsked(), len(states)
    walk = Walk(torch.zeros(rows, dtype=torch.bool), torch.zeros(rows))
    here = torch.zeros(1, dtype=torch.int64)
    for row in range(rows):
        last.follow(here)
        foretold = gate.foretell(last.glance(states[row : row + 1], log_probs[row : row + 1]))
        walk.asked[row], walk.foretold[row] = foretold.is_worth_it[0], foretold.squared_distances[0]
        if walk.asked[row]:
            last.note(here, nearest[row : row + 1])
    return walk
