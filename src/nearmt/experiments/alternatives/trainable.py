"""A translation model whose weights can be trained: the loss of pairs, its gradients, and saving the model."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from nearmt.building.extract import batches_by_length, fits_model
from nearmt.corpus import SentencePair
from nearmt.models import Seq2Seq
from nearmt.models.capture import capture_states, find_projection, install_hook
from nearmt.models.loading import load_files, quiet

SMOOTHING = 0.1
_PROJECTED_ROWS = 256  # logits of a large vocabulary take much memory, and memory takes time


@dataclass(frozen=True)
class Batch:
    """Pairs as padded token ids."""

    source_ids: torch.Tensor  # (pairs, time)
    source_mask: torch.Tensor
    decoder_ids: torch.Tensor  # (pairs, time)
    labels: torch.Tensor  # (pairs, time) the next token of each position; -1 where none is learnt


class Trainable:
    """A network in float32 and the model whose token ids it uses."""

    def __init__(self, network: Any, model: Seq2Seq, tokenizer_files: Sequence[Path] = ()) -> None:
        self.network, self.model, self.tokenizer_files = network, model, tuple(tokenizer_files)
        self.projection: nn.Linear = find_projection(network)[1]

    @classmethod
    def load(cls, name: str, model: Seq2Seq) -> "Trainable":
        """The weights of a hub id or a folder, for training; `model` is the same model for translating."""
        files = load_files(name, revision=None, device="cpu", dtype="float32", offline=False)
        loaded = cls(files.model, model, files.tokenizer_files)
        install_hook(loaded.projection)
        files.model.requires_grad_(True)
        return loaded

    def batches(self, pairs: Sequence[SentencePair], batch_tokens: int) -> list[Batch]:
        """Batches of pairs of similar length, without the pairs that are too long for the model."""
        sources = self.model.tokenize_sources([pair.source for pair in pairs])
        targets = self.model.tokenize_targets([pair.target for pair in pairs])
        kept = [i for i in range(len(pairs)) if fits_model(self.model, sources[i], targets[i])]
        grouped = batches_by_length([sources[i] for i in kept], [targets[i] for i in kept], batch_tokens)
        return [self.batch(group.sources, group.targets) for group in grouped]

    def batch(self, sources: Sequence[list[int]], targets: Sequence[list[int]]) -> Batch:
        """A batch of tokenised pairs."""
        start, forced = self.model.start_token_id, list(self.model.forced_prefix)
        inputs = [[start, *forced, *target[:-1]] for target in targets]
        labels = [[-1] * len(forced) + target for target in targets]
        pad = int(self.network.config.pad_token_id or 0)
        source_ids = _padded(sources, pad)
        lengths = torch.tensor([len(source) for source in sources])
        return Batch(
            source_ids,
            (torch.arange(source_ids.shape[1]) < lengths[:, None]).long(),
            _padded(inputs, pad),
            _padded(labels, -1),
        )

    def accumulate(self, batch: Batch) -> float:
        """Add the gradients of the mean label-smoothed loss per token, and return the loss.

        The projection is done in parts, each with its own backward pass: the logits of a whole batch are never needed.
        """
        states, labels = self._states(batch)
        leaf = states.detach().requires_grad_(True)
        total = 0.0
        for start in range(0, len(leaf), _PROJECTED_ROWS):
            rows = slice(start, start + _PROJECTED_ROWS)
            loss = self._loss(leaf[rows], labels[rows], SMOOTHING) / len(leaf)
            loss.backward()  # type: ignore[no-untyped-call]
            total += float(loss.detach())
        states.backward(leaf.grad)  # type: ignore[no-untyped-call]
        return total

    def loss(self, batches: Sequence[Batch]) -> float:
        """The mean loss per token, without smoothing and dropout."""
        was_training = self.network.training
        self.network.eval()
        total, count = 0.0, 0
        with torch.no_grad():
            for batch in batches:
                states, labels = self._states(batch)
                for start in range(0, len(states), _PROJECTED_ROWS):
                    rows = slice(start, start + _PROJECTED_ROWS)
                    total += float(self._loss(states[rows], labels[rows], 0.0))
                count += len(states)
        self.network.train(was_training)
        return total / max(count, 1)

    def _states(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """The decoder states (tokens, width) that predict something, and what they should predict."""
        with capture_states(skip_projection=True) as capture:
            self.network(
                input_ids=batch.source_ids,
                attention_mask=batch.source_mask,
                decoder_input_ids=batch.decoder_ids,
                use_cache=False,
            )
        is_learnt = batch.labels >= 0
        return capture.states[is_learnt], batch.labels[is_learnt]

    def _loss(self, states: torch.Tensor, labels: torch.Tensor, smoothing: float) -> torch.Tensor:
        logits = self.projection(states)
        bias = getattr(self.network, "final_logits_bias", None)
        if bias is not None:
            logits = logits + bias
        return functional.cross_entropy(logits, labels, reduction="sum", label_smoothing=smoothing)

    def save(self, folder: Path) -> Path:
        """Save the model as a Hugging Face folder that nearmt can load."""
        folder.mkdir(parents=True, exist_ok=True)
        with quiet():
            self.network.save_pretrained(folder)
        for path in self.tokenizer_files:
            shutil.copy(path, folder / path.name)
        return folder


def _padded(rows: Sequence[Sequence[int]], filler: int) -> torch.Tensor:
    width = max(map(len, rows))
    return torch.tensor([[*row, *[filler] * (width - len(row))] for row in rows])
