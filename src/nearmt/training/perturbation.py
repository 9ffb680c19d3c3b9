"""Perturbed training batches, as in the papers on kernel-smoothed and robust kNN-MT."""

import math
from dataclasses import replace

import numpy as np
import torch

from nearmt.methods.retrieved import EntryColumns, Retrieved
from nearmt.methods.robust import Robust
from nearmt.methods.variant import VariantNetwork
from nearmt.retrieval.neighbors import Neighbors, repeat_last
from nearmt.training.cache import NeighborCache

DROPOUT = 0.5  # probability that a training row loses its nearest neighbour
FADING_STEPS = 1000  # α falls to 1/e in this many steps
NOISE_LENGTH = 1024 * 0.01**2  # expected squared length of the noise, in scaled distances


def perturbed(
    network: VariantNetwork, cache: NeighborCache, columns: EntryColumns, step: int, rng: np.random.Generator
) -> Retrieved:
    """A training batch, perturbed as in the network's paper."""
    if isinstance(network, Robust):
        return _noisy_with_pseudo_neighbors(network, cache, columns, step, rng)
    return _without_some_nearest(cache, columns, rng)


def _without_some_nearest(cache: NeighborCache, columns: EntryColumns, rng: np.random.Generator) -> Retrieved:
    """Retrieval dropout: drop the nearest neighbour of some rows."""
    rows = torch.from_numpy(rng.random(len(cache)) < DROPOUT)
    return without_nearest(cache, rows).retrieved(columns)


def without_nearest(cache: NeighborCache, rows: torch.Tensor) -> NeighborCache:
    """Drop the nearest neighbour of the masked rows, unless it is the only one."""
    neighbors = cache.neighbors
    shift = (rows & (neighbors.found.sum(dim=1) > 1)).long().unsqueeze(1)
    slots = torch.arange(neighbors.max_k) + shift  # (rows, K)
    is_beyond = slots >= neighbors.max_k
    slots = slots.masked_fill(is_beyond, 0)
    found = neighbors.found.gather(1, slots) & ~is_beyond
    kept = Neighbors(
        repeat_last(neighbors.squared_distances.gather(1, slots), found),
        neighbors.token_ids.gather(1, slots),
        neighbors.entry_ids.gather(1, slots).masked_fill(~found, -1),
        found,
    )
    return replace(cache, neighbors=kept, neighbor_probabilities=cache.neighbor_probabilities.gather(1, slots))


def _noisy_with_pseudo_neighbors(
    network: Robust, cache: NeighborCache, columns: EntryColumns, step: int, rng: np.random.Generator
) -> Retrieved:
    """Noisy keys and pseudo neighbours with the gold token, both rarer as training proceeds."""
    retrieved = cache.retrieved(columns)
    rate = math.exp(-step / FADING_STEPS)
    near, width = cache.neighbors, cache.states.shape[1]
    variance = NOISE_LENGTH / width / network.distance_scale
    rows, is_noisy = len(cache), torch.from_numpy(rng.random(len(cache)) < rate)
    distances = near.squared_distances.clone()
    distances[is_noisy] = noisy(distances[is_noisy], variance, width, rng)
    has_gold = ((near.token_ids == cache.gold.unsqueeze(1)) & near.found).any(dim=1)
    pseudo = torch.from_numpy(rng.random(rows) < rate) & ~has_gold
    own = noisy(torch.zeros(rows, 1), variance, width, rng)
    at_query = cache.gold_probability.unsqueeze(1)
    return _sorted(
        retrieved,
        Neighbors(
            _put_first(pseudo, own, distances),
            _put_first(pseudo, cache.gold.unsqueeze(1), near.token_ids),
            _put_first(pseudo, torch.full((rows, 1), -1), near.entry_ids),
            _put_first(pseudo, torch.ones(rows, 1, dtype=torch.bool), near.found),
        ),
        _put_first(pseudo, at_query, retrieved.stored_probabilities),
        _put_first(pseudo, at_query, retrieved.neighbor_probabilities),
    )


def noisy(squared_distances: torch.Tensor, variance: float, width: int, rng: np.random.Generator) -> torch.Tensor:
    """The distances after adding noise of this variance to each of the `width` numbers of a key."""
    shape = tuple(squared_distances.shape)
    along = torch.from_numpy(rng.standard_normal(shape, np.float32)) * math.sqrt(variance)
    across = torch.from_numpy(rng.chisquare(width - 1, shape)).float() * variance
    return (squared_distances.clamp_min(0).sqrt() + along).square() + across


def _put_first(rows: torch.Tensor, new: torch.Tensor, old: torch.Tensor) -> torch.Tensor:
    """In the masked rows, insert `new`, (rows, 1), in front and drop the last."""
    return torch.where(rows.unsqueeze(1), torch.cat([new, old[:, :-1]], dim=1), old)


def _sorted(retrieved: Retrieved, neighbors: Neighbors, stored: torch.Tensor, at_query: torch.Tensor) -> Retrieved:
    """Perturbed neighbours sorted by distance, with their probabilities. Their keys are unknown."""
    distances = torch.where(neighbors.found, neighbors.squared_distances, torch.inf)
    order = distances.sort(dim=1, stable=True).indices
    found = neighbors.found.gather(1, order)

    def unknown() -> torch.Tensor:
        raise NotImplementedError("a perturbed neighbour has no stored key")

    return Retrieved(
        Neighbors(
            repeat_last(neighbors.squared_distances.gather(1, order), found),
            neighbors.token_ids.gather(1, order),
            neighbors.entry_ids.gather(1, order),
            found,
        ),
        _states=lambda: retrieved.states,
        _keys=unknown,
        _stored_probabilities=lambda: stored.gather(1, order),
        _neighbor_probabilities=lambda: at_query.gather(1, order),
        _top_probabilities=lambda: retrieved.top_probabilities,
    )
