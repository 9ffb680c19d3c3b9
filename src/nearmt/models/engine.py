"""A batch of sentences being decoded step by step: what every engine offers, and the order of its rows."""

from dataclasses import dataclass
from typing import Protocol

import torch


@dataclass(frozen=True)
class StepOutput:
    """What one decoding step gives for every row."""

    states: torch.Tensor  # (rows, width) float32: the input of the output projection
    logits: torch.Tensor  # (rows, vocabulary) float32: every bias included, unmasked


class DecodingSession(Protocol):
    """A batch under way, owned by one caller. The encoder has run once."""

    @property
    def num_source_rows(self) -> int:
        """Rows of the cross-attention cache: one a live sentence, or one a row where sources cannot be shared."""

    def step(self, token_ids: torch.Tensor, parents: torch.Tensor) -> StepOutput:
        """Continue row `parents[i]` of the last step with `token_ids[i]`.

        First call: one row a sentence, the start token, parents 0, 1, 2 …. Later: the live sentences in their
        old order, each with the same number of rows side by side.
        """


class Engine(Protocol):
    """What a `Seq2Seq` runs on. Nothing of a request is kept on it; one object serves many threads."""

    name: str

    @property
    def device(self) -> torch.device:
        """Where states and logits are."""

    def project(self, states: torch.Tensor) -> torch.Tensor:
        """States (n, width) to logits (n, vocabulary), float32, every bias included."""

    def start(self, source_ids: torch.Tensor, source_mask: torch.Tensor) -> DecodingSession:
        """Run the encoder over right-padded ids (sentences, time) and get ready for the first step."""

    def force(self, source_ids: torch.Tensor, source_mask: torch.Tensor, decoder_ids: torch.Tensor) -> torch.Tensor:
        """The states (rows, time, width) at every position of the right-padded decoder inputs (rows, time)."""


class RowOrder:
    """Which sentence each row of a session belongs to, from step to step."""

    def __init__(self, num_sentences: int, device: torch.device) -> None:
        self.rows = torch.arange(num_sentences, device=device)  # (rows,) the sentence of each
        self.sentences = self.rows  # (live sentences,)
        self._is_first = True

    def follow(self, parents: torch.Tensor) -> bool:
        """Take the order of the next step's rows; true if every row continues the row in its own place."""
        rows = self.rows[parents]
        sentences, sizes = torch.unique_consecutive(rows, return_counts=True)
        if bool((sizes != sizes[0]).any()) or bool((sentences.diff() <= 0).any()):
            raise ValueError("rows must be grouped by sentence, in order, with groups of one size")
        is_identity = len(rows) == len(self.rows) and torch.equal(
            parents, torch.arange(len(parents), device=parents.device)
        )
        if self._is_first and not is_identity:
            raise ValueError("the first step has one row for each sentence, in order")
        self.rows, self.sentences, self._is_first = rows, sentences, False
        return is_identity
