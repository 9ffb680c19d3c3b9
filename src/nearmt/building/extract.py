"""Force-decoding sentence pairs: the states that become a store's keys, with the tokens that came next."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from nearmt.corpus import SentencePair
from nearmt.datastore import SegmentData
from nearmt.errors import ModelError
from nearmt.models import Seq2Seq

_PROJECTED_ROWS = 512


@dataclass(frozen=True)
class Batch:
    """Sentences of like length that are decoded together."""

    rows: list[int]  # indices into the segment
    sources: list[list[int]]
    targets: list[list[int]]


def batches_by_length(sources: Sequence[list[int]], targets: Sequence[list[int]], batch_tokens: int) -> Iterator[Batch]:
    """Group sentences of like length, so that little is padded."""
    order = sorted(range(len(sources)), key=lambda i: (len(targets[i]), len(sources[i])))
    rows: list[int] = []
    width = 0
    for i in order:
        wider = max(width, len(sources[i]), len(targets[i]))
        if rows and wider * (len(rows) + 1) > batch_tokens:
            yield Batch(rows, [sources[r] for r in rows], [targets[r] for r in rows])
            rows, wider = [], max(len(sources[i]), len(targets[i]))
        rows.append(i)
        width = wider
    if rows:
        yield Batch(rows, [sources[r] for r in rows], [targets[r] for r in rows])


def gold_probabilities(model: Seq2Seq, states: torch.Tensor, token_ids: torch.Tensor) -> torch.Tensor:
    """p_NMT of each row's token, a few rows at a time: the vocabulary is wide."""
    parts = []
    for start in range(0, len(states), _PROJECTED_ROWS):
        logits = model.project(states[start : start + _PROJECTED_ROWS])
        tokens = token_ids[start : start + _PROJECTED_ROWS].unsqueeze(1)
        parts.append((logits.gather(1, tokens).squeeze(1) - logits.logsumexp(dim=1)).exp())
    return torch.cat(parts) if parts else torch.zeros(0)


def decode_segment(
    model: Seq2Seq,
    pairs: Sequence[SentencePair],
    sources: Sequence[list[int]],
    targets: Sequence[list[int]],
    *,
    key_type: str,
    batch_tokens: int,
) -> SegmentData:
    """Force-decode sentences and lay their entries out in the sentences' order."""
    counts = np.array([len(model.kept_positions(target)) for target in targets], dtype=np.int64)
    starts = np.cumsum(counts) - counts
    total = int(counts.sum())
    keys = np.zeros((total, model.width), np.float16 if key_type == "float16" else np.float32)
    values, positions = np.zeros(total, np.int32), np.zeros(total, np.uint16)
    probabilities = np.zeros(total, np.float16)
    for batch in batches_by_length(sources, targets, batch_tokens):
        forced = model.force_decode(batch.sources, batch.targets)
        rows = np.array(batch.rows)[forced.rows.cpu().numpy()]
        # Entries of one row stand together and in order: count within the row from where the row begins.
        first_of_row = np.flatnonzero(np.r_[True, rows[1:] != rows[:-1]])
        within = np.arange(len(rows)) - np.repeat(first_of_row, np.diff(np.r_[first_of_row, len(rows)]))
        at = starts[rows] + within
        states = forced.states.cpu()
        keys[at] = states.to(torch.float16 if key_type == "float16" else torch.float32).numpy()
        values[at], positions[at] = forced.token_ids.cpu().numpy(), forced.positions.cpu().numpy()
        probabilities[at] = gold_probabilities(model, forced.states, forced.token_ids).cpu().numpy()
    if not np.isfinite(keys).all():
        raise ModelError("this model's states do not fit 16-bit floats: set `key_type` to float32")
    return SegmentData(pairs, counts, keys, values, probabilities, positions)
