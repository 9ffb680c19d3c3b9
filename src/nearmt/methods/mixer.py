"""Mixing neighbours into a batch that is being decoded, in compiled code on the CPU."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from nearmt.methods import kernels
from nearmt.methods.damping import STAGES, Damping
from nearmt.methods.metak import MetaK
from nearmt.methods.mixture import Method, Uniform, Vanilla, neighbor_counts
from nearmt.methods.network import Network
from nearmt.methods.retrieved import NUM_TOP, EntryColumns
from nearmt.methods.robust import Robust
from nearmt.models.topk import topk
from nearmt.retrieval.neighbors import NearArrays, Neighbors, UnfilledArrays
from nearmt.retrieval.threads import in_threads

_NONE = np.zeros((1, 1), np.float32)


class Logits(NamedTuple):
    """The model's output for every row: log p = values + shift. Changed in place."""

    values: torch.Tensor  # (rows, vocabulary) float32
    shift: torch.Tensor | None  # (rows,); None is 0
    maxima: torch.Tensor | None  # (rows, blocks), see `topk`


class Mixer:
    """Mixes neighbours in, and keeps the running mean distance of every row of one beam search."""

    def __init__(self, method: Method, columns: EntryColumns) -> None:
        self._columns = columns
        self.max_k = method.max_k
        damping = method.damping if isinstance(method, Network) else None
        self._damping = _damping_arrays(damping)
        self._is_damped = damping is not None
        self._running = np.zeros((0, 2), np.float32)
        self._needs_probabilities = isinstance(method, Robust)
        self._call: Callable[..., None]
        if isinstance(method, Robust):
            network = _robust_arrays(method)
            self._call = lambda first, last, near, logits, stored, top: kernels.mix_robust(
                first, last, near, logits, stored, top, network, self._damping, self._running
            )
        else:
            sizes, temperature, parts = _sizes_arrays(method)
            self._call = lambda first, last, near, logits, stored, top: kernels.mix_sizes(
                first, last, near, logits, parts, sizes, temperature, self._damping, self._running
            )

    @staticmethod
    def supports(method: Method | None) -> bool:
        """True if there is compiled code for a method."""
        return isinstance(method, Vanilla | Uniform | MetaK | Robust)

    def reorder(self, parents: torch.Tensor) -> None:
        """Start the next step: row i continues row `parents[i]`."""
        if not self._is_damped or not len(self._running):
            self._running = np.zeros((len(parents), 2), np.float32)
        else:
            self._running = self._running[parents.numpy()]

    def mix(self, logits: Logits, neighbors: Neighbors | UnfilledArrays) -> torch.Tensor:
        """Mix the neighbours into the values, in place; returns the new shift, (rows,).

        Each thread searches for its rows and mixes at once what it has found.
        """
        if isinstance(neighbors, Neighbors):
            neighbors = UnfilledArrays(self._arrays(neighbors), lambda first, last: None)
        near, fill = neighbors
        rows = len(near.counts)
        shift = torch.zeros(rows) if logits.shift is None else logits.shift.clone()
        top = np.full((rows, NUM_TOP), -np.inf, np.float32) if self._needs_probabilities else _NONE
        maxima = np.zeros((rows, 0), np.float32) if logits.maxima is None else logits.maxima.numpy()
        arrays = (logits.values.numpy(), shift.numpy(), maxima)

        def search_and_mix(first: int, last: int) -> None:
            fill(first, last)
            if self._needs_probabilities:
                part = None if logits.maxima is None else logits.maxima[first:last]
                highest = topk(logits.values[first:last], min(NUM_TOP, logits.values.shape[1]), part)[0]
                top[first:last, : highest.shape[1]] = highest.numpy()
            self._call(first, last, near[:3], arrays, near.probabilities, top)

        in_threads(search_and_mix, rows)
        return shift

    def _arrays(self, neighbors: Neighbors) -> NearArrays:
        near = neighbors.nearest(self.max_k)
        stored = self._columns.probabilities_of(near.entry_ids).numpy() if self._needs_probabilities else None
        return NearArrays(
            np.ascontiguousarray(near.squared_distances),
            np.ascontiguousarray(near.token_ids),
            near.found.numpy().sum(axis=1),
            stored if stored is not None else np.zeros((len(near), near.max_k), np.float32),
        )


def _array(tensor: torch.Tensor) -> np.ndarray:
    return np.ascontiguousarray(tensor.detach().numpy(), np.float32)


def _damping_arrays(damping: Damping | None) -> tuple[Any, ...]:
    if damping is None:
        none = np.zeros(0, np.float32)
        return np.float32(1), none, none, none
    slopes, offsets = (_array(line) for line in damping.lines)
    return np.float32(damping.scale), slopes, offsets, np.array(STAGES, np.float32)


def _sizes_arrays(method: Method) -> tuple[np.ndarray, np.float32, tuple[Any, ...]]:
    """Sizes, temperature, and the network or, without one, the fixed probabilities of the sizes."""
    if isinstance(method, MetaK):
        layers = [_array(part) for layer in (method.layers[0], method.layers[2]) for part in layer.parameters()]
        uses = "distances" in method.features, "counts" in method.features
        sizes = np.array(method.sizes, np.int64)
        return sizes, np.float32(method.temperature), (np.float32(method.distance_scale), *uses, *layers)
    if isinstance(method, Vanilla):
        chosen: tuple[int, ...] = (0, method.k)
        fixed = np.array([1 - method.knn_share, method.knn_share], np.float32)
    else:
        assert isinstance(method, Uniform)
        chosen = neighbor_counts(method.max_k)
        fixed = np.full(len(chosen), 1 / len(chosen), np.float32)
    none = np.zeros((0, 0), np.float32)
    network = (np.float32(1), False, False, none, none[0:0, 0] if none.size else np.zeros(0, np.float32), none, fixed)
    return np.array(chosen, np.int64), np.float32(method.temperature), network


def _robust_arrays(method: Robust) -> tuple[Any, ...]:
    retrieval = [_array(part) for layer in (method.retrieval[0], method.retrieval[2]) for part in layer.parameters()]
    c1, d1, c2, d2 = (_array(part) for part in method.calibration.parameters())
    confidence, bias = (_array(part) for part in method.confidence.parameters())
    scale = np.float32(method.distance_scale)
    return scale, *retrieval, c1, d1, c2[0], np.float32(d2[0]), confidence[0], np.float32(bias[0])
