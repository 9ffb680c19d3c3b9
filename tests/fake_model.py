"""A fake translation model: words are tokens, and states are random numbers seeded by the prefix."""

import hashlib
from collections.abc import Sequence

import numpy as np
import torch

from nearmt.models.model import ForcedTokens

WIDTH = 8
VOCABULARY = 64
EOS = 0


def word_id(word: str) -> int:
    return 1 + int.from_bytes(hashlib.blake2b(word.encode(), digest_size=4).digest(), "little") % (VOCABULARY - 1)


def state_of(source: Sequence[int], prefix: Sequence[int]) -> np.ndarray:
    """Prefixes with the same last word have similar states."""
    far = np.random.default_rng([7, *source, 99, *prefix]).standard_normal(WIDTH)
    near = np.random.default_rng([3, *list(prefix)[-1:]]).standard_normal(WIDTH)
    return (near + 0.3 * far).astype(np.float32)


class FakeModel:
    """The methods of a model that ingesting and extracting states need."""

    width = WIDTH
    max_source_tokens = 12
    max_target_tokens = 12
    forced_prefix: tuple[int, ...] = ()

    def tokenize_sources(self, texts: Sequence[str]) -> list[list[int]]:
        return [[*map(word_id, text.split()), EOS] for text in texts]

    tokenize_targets = tokenize_sources

    def kept_positions(self, target: Sequence[int]) -> list[int]:
        return list(range(len(target)))

    def force_decode(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> ForcedTokens:
        places = [(row, at) for row, target in enumerate(targets) for at in range(len(target))]
        states = [state_of(sources[row], targets[row][:at]) for row, at in places]
        return ForcedTokens(
            torch.from_numpy(np.array(states)),
            torch.tensor([targets[row][at] for row, at in places]),
            torch.tensor([row for row, _ in places]),
            torch.tensor([at for _, at in places]),
        )

    def project(self, states: torch.Tensor) -> torch.Tensor:
        return torch.zeros(len(states), VOCABULARY)
