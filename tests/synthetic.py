"""Synthetic neighbours and caches for tests of methods, without a model or a store."""

from collections.abc import Callable

import torch

from nearmt.methods.damping import STAGES, Damping
from nearmt.methods.retrieved import Retrieved
from nearmt.retrieval.neighbors import Neighbors
from nearmt.training.cache import NeighborCache

VOCABULARY = 20


def bare(neighbors: Neighbors) -> Retrieved:
    """Neighbours alone: a method that uses anything else fails."""

    def refuse(what: str) -> Callable[[], torch.Tensor]:
        def fail() -> torch.Tensor:
            raise AssertionError(f"the method used {what}")

        return fail

    return Retrieved(
        neighbors,
        refuse("states"),
        refuse("keys"),
        refuse("stored_probabilities"),
        refuse("neighbor_probabilities"),
        refuse("top_probabilities"),
    )


def make_cache(num_tokens: int = 1500, max_k: int = 8, trust: str = "distance", seed: int = 1) -> NeighborCache:
    """With `trust` "distance", near neighbours are right and far ones random; with "noise", all are random."""
    torch.manual_seed(seed)
    is_near = torch.rand(num_tokens) < 0.4
    distances = torch.where(is_near[:, None], 5.0, 200.0) + torch.rand(num_tokens, max_k).cumsum(1)
    gold = torch.randint(0, VOCABULARY, (num_tokens,))
    noise = torch.randint(0, VOCABULARY, (num_tokens, max_k))
    tokens = torch.where(is_near[:, None], gold[:, None], noise) if trust == "distance" else noise
    ids = torch.arange(num_tokens * max_k).view(num_tokens, max_k)
    neighbors = Neighbors(distances, tokens, ids, torch.ones(num_tokens, max_k, dtype=torch.bool))
    own = torch.full((num_tokens,), 0.3)
    zeros = torch.zeros(num_tokens)
    return NeighborCache(
        neighbors=neighbors,
        gold=gold,
        sentence_ids=torch.arange(num_tokens) // 10,
        positions=zeros,
        gold_probability=own,
        neighbor_probabilities=torch.zeros(num_tokens, max_k),
        top_probabilities=own[:, None].expand(num_tokens, 8),
        states=torch.zeros(num_tokens, 4),
    )


def even_damping(middle: float, far: float, strength: float, scale: float = 1.0) -> Damping:
    """Damping with the same limits at every stage of a sentence."""
    return Damping(scale, (middle,) * len(STAGES), (far,) * len(STAGES), strength)
