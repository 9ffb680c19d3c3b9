"""Not asking: a small network that tells, from what the decoder already has, whether a search would be worth it.

Its inputs are the entropy of p_NMT, its two highest probabilities, the length of the state, and how near the nearest
neighbour was when the memory was last asked, and how many steps ago. It learns to foretell the gain of a token: by how
much its mixed log-probability is above the model's own. Where less than the threshold is foretold nothing is searched,
and the token is the model's alone.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from nearmt.errors import StoreDamagedError
from nearmt.greatest import greatest
from nearmt.metak import NeighborCache, TrainingSettings
from nearmt.metak.cache import TINY
from nearmt.metak.schedule import BETAS, OnCheck, check_parts, fit, one_thread
from nearmt.mixture import Method
from nearmt.neighbors import EntryColumns

_HEADER = "nearmt_gate"
_HIDDEN, _RATE = 16, 1e-3
_LONGEST_GAP = 4  # steps since the last search; longer ones look alike
_LOWEST, _HIGHEST = -2.0, 4.0  # gains beyond these count as these
_NUM_FEATURES = 6


@dataclass(frozen=True)
class Glance:
    """What is known of each row before any search."""

    entropy: torch.Tensor  # (rows,)
    top_probabilities: torch.Tensor  # (rows, ≥ 2)
    lengths: torch.Tensor  # (rows,) of the states
    last_distance: torch.Tensor  # (rows,) of the nearest neighbour when the memory was last asked; 0 if never
    gap: torch.Tensor  # (rows,) steps since then, 0 if never

    @classmethod
    def at(
        cls, states: torch.Tensor, log_probs: torch.Tensor, last_distance: torch.Tensor, gap: torch.Tensor
    ) -> "Glance":
        probs = log_probs.exp()
        return cls(
            -(probs * log_probs.clamp_min(-100)).sum(dim=1).cpu(),
            greatest(log_probs, 2)[0].exp().cpu(),
            states.norm(dim=1).cpu(),
            last_distance,
            gap,
        )


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
        return Glance.at(states, log_probs, self._distance, self._gap)


class Gate(nn.Module):
    """Foretells the gain of a search."""

    def __init__(self, length_scale: float = 1.0, distance_scale: float = 1.0, threshold: float = 0.0) -> None:
        super().__init__()
        self.length_scale, self.distance_scale, self.threshold = length_scale, distance_scale, threshold
        self.layers = nn.Sequential(nn.Linear(_NUM_FEATURES, _HIDDEN), nn.Tanh(), nn.Linear(_HIDDEN, 1))

    def inputs(self, glance: Glance) -> torch.Tensor:
        """(rows, 6), each of a size near 1."""
        return torch.stack(
            [
                glance.entropy,
                glance.top_probabilities[:, 0],
                glance.top_probabilities[:, 1],
                glance.lengths * self.length_scale,
                (glance.last_distance * self.distance_scale).log1p(),
                glance.gap.clamp_max(_LONGEST_GAP) / _LONGEST_GAP,
            ],
            dim=1,
        )

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """The gain foretold for each row, in nats."""
        gains: torch.Tensor = self.layers(inputs)
        return gains.squeeze(1)

    @torch.inference_mode()
    def is_worth_it(self, glance: Glance) -> torch.Tensor:
        """(rows,) bool: where to search."""
        return self.forward(self.inputs(glance)) >= self.threshold

    def with_threshold(self, threshold: float) -> "Gate":
        """The same network, stricter or more lenient."""
        other = Gate(self.length_scale, self.distance_scale, threshold)
        other.load_state_dict(self.state_dict())
        return other.eval()

    def to_bytes(self) -> bytes:
        settings = {
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


def gains(cache: NeighborCache, method: Method, columns: EntryColumns) -> torch.Tensor:
    """By how much the mixed log-probability of each gold token is above the model's own, within limits."""
    weights = method.weigh(cache.retrieved(columns))
    token_ids = cache.neighbors.token_ids[:, : weights.neighbor_weights.shape[1]]
    hits = (weights.neighbor_weights * (token_ids == cache.gold.unsqueeze(1))).sum(dim=1)
    mixed = weights.nmt_share * cache.gold_probability + hits
    gain = mixed.clamp_min(TINY).log() - cache.gold_probability.clamp_min(TINY).log()
    return gain.clamp(_LOWEST, _HIGHEST)


def glance_at(cache: NeighborCache, rng: np.random.Generator) -> Glance:
    """The rows of a cache as the decoder would see them, had it searched now and then."""
    where = {
        key: row for row, key in enumerate(zip(cache.sentence_ids.tolist(), cache.positions.tolist(), strict=True))
    }
    back = rng.geometric(0.5, len(cache))
    last, gap = torch.zeros(len(cache)), torch.zeros(len(cache))
    for (sentence, position), row in where.items():
        before = where.get((sentence, position - int(back[row])))
        if before is not None:
            last[row] = cache.neighbors.squared_distances[before, 0]
            gap[row] = float(back[row])
    return Glance(cache.entropy, cache.top_probabilities[:, :2], cache.states.float().norm(dim=1), last, gap)


def train_gate(
    cache: NeighborCache,
    held_out: NeighborCache,
    columns: EntryColumns,
    method: Method,
    settings: TrainingSettings | None = None,
    on_check: OnCheck = lambda step, loss: None,
) -> Gate:
    """Train on the tokens that Meta-k was trained on; keep the state that foretells the held-out gains best."""
    settings = settings or TrainingSettings()
    check_parts(cache, held_out)
    rng = np.random.default_rng(settings.seed)
    glances = [glance_at(part, rng) for part in (cache, held_out)]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        middle = float(glances[0].lengths.median())
        near = cache.median_distance(0)
        gate = Gate(1 / middle if middle > 0 else 1.0, 1 / near if near > 0 else 1.0)
    parts = [
        (gate.inputs(glance), gains(part, method, columns))
        for glance, part in zip(glances, (cache, held_out), strict=True)
    ]
    with one_thread():
        (best,) = fit(_Learner(gate, *parts), cache.sentence_ids, settings, on_check)
    gate.load_state_dict(best.state)
    return gate.eval()


class _Learner:
    """The gate under the schedule that every network learns by."""

    num_networks = 1

    def __init__(
        self,
        gate: Gate,
        train: tuple[torch.Tensor, torch.Tensor],
        held_out: tuple[torch.Tensor, torch.Tensor],
    ) -> None:
        self._gate, self._train, self._held_out = gate, train, held_out
        self._optimizer = torch.optim.Adam(gate.parameters(), lr=_RATE, betas=BETAS)

    def step(self, rows: torch.Tensor, rates: torch.Tensor) -> None:
        inputs, wanted = self._train
        loss = nn.functional.huber_loss(self._gate(inputs[rows]), wanted[rows])
        self._optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        if not float(rates[0]):
            return
        self._optimizer.step()

    def held_out_losses(self) -> list[float]:
        inputs, wanted = self._held_out
        with torch.inference_mode():
            return [float(nn.functional.huber_loss(self._gate(inputs), wanted))]

    def state_of(self, number: int) -> dict[str, torch.Tensor]:
        return {name: part.detach().clone() for name, part in self._gate.state_dict().items()}


def asked_along(gate: Gate, states: torch.Tensor, log_probs: torch.Tensor, nearest: torch.Tensor) -> torch.Tensor:
    """Where the memory was asked along one finished hypothesis, whose tokens are the rows; (rows,) bool."""
    last, asked = LastAsked(), torch.zeros(len(states), dtype=torch.bool)
    for row in range(len(states)):
        last.follow(torch.zeros(1, dtype=torch.int64))
        asked[row] = bool(gate.is_worth_it(last.glance(states[row : row + 1], log_probs[row : row + 1]))[0])
        if asked[row]:
            last.note(torch.zeros(1, dtype=torch.int64), nearest[row : row + 1])
    return asked
