"""The interface of engines, which run a model, and the row order that all engines share while they decode a batch."""

from dataclasses import dataclass
from typing import Protocol

import torch


@dataclass(frozen=True)
class StepOutput:
    """The result of one decoding step, for every row."""

    states: torch.Tensor  # (rows, width) float32: the input of the output projection
    logits: torch.Tensor  # (rows, vocabulary) float32: with every bias, unmasked; valid until the next step
    shift: torch.Tensor | None = None  # (rows,) what must be added to logits to make them log-probabilities
    maxima: torch.Tensor | None = None  # (rows, blocks) the maximum of each block of logits, see `topk`


class DecodingSession(Protocol):
    """A batch that is being decoded, owned by one caller. The encoder has already run."""

    @property
    def num_source_rows(self) -> int:
        """Rows of the cross-attention cache: one per live sentence, or one per row if sources cannot be shared."""

    def step(self, token_ids: torch.Tensor, parents: torch.Tensor) -> StepOutput:
        """Continue row `parents[i]` of the last step with `token_ids[i]`.

        The first call has one row per sentence, with the start token and the parents 0, 1, 2, …. Later calls have the
        live sentences in the same order, each with the same number of adjacent rows.
        """


class Engine(Protocol):
    """Runs the network of a `Seq2Seq`. It keeps nothing of a request, so one object serves many threads."""

    name: str

    @property
    def device(self) -> torch.device:
        """The device of states and logits."""

    def project(self, states: torch.Tensor) -> torch.Tensor:
        """Logits (n, vocabulary) of states (n, width): float32, with every bias."""

    def start(self, source_ids: torch.Tensor, source_mask: torch.Tensor) -> DecodingSession:
        """Run the encoder over right-padded ids (sentences, time) and prepare the first step."""

    def force(self, source_ids: torch.Tensor, source_mask: torch.Tensor, decoder_ids: torch.Tensor) -> torch.Tensor:
        """The states (rows, time, width) at every position of the right-padded decoder inputs (rows, time)."""


class RowOrder:
    """Tracks which sentence each row of a session belongs to."""

    def __init__(self, num_sentences: int, device: torch.device) -> None:
        self.rows = torch.arange(num_sentences, device=device)  # (rows,) the sentence of each
        self.sentences = self.rows  # (live sentences,)
        self._is_first = True

    def follow(self, parents: torch.Tensor) -> bool:
        """Take the parents of the next step's rows; True if every row continues the row at its own position."""
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
