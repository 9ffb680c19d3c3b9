"""Force-decoding sentence pairs into entries: a decoder state as the key and the next token as the value."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from nearmt.corpus import SentencePair
from nearmt.datastore import CommitData
from nearmt.errors import ModelError
from nearmt.models import Seq2Seq

_PROJECTED_ROWS = 512


@dataclass(frozen=True)
class DecodingBatch:
    """Sentences of similar length that are decoded together."""

    rows: list[int]  # positions in the given sentences
    sources: list[list[int]]
    targets: list[list[int]]


def batches_by_length(
    sources: Sequence[list[int]], targets: Sequence[list[int]], batch_tokens: int
) -> Iterator[DecodingBatch]:
    """Group sentences of similar length, so that there is little padding."""
    order = sorted(range(len(sources)), key=lambda i: (len(targets[i]), len(sources[i])))
    rows: list[int] = []
    width = 0
    for i in order:
        wider = max(width, len(sources[i]), len(targets[i]))
        if rows and wider * (len(rows) + 1) > batch_tokens:
            yield DecodingBatch(rows, [sources[r] for r in rows], [targets[r] for r in rows])
            rows, wider = [], max(len(sources[i]), len(targets[i]))
        rows.append(i)
        width = wider
    if rows:
        yield DecodingBatch(rows, [sources[r] for r in rows], [targets[r] for r in rows])


def gold_probabilities(model: Seq2Seq, states: torch.Tensor, token_ids: torch.Tensor) -> torch.Tensor:
    """p_NMT of each row's token, some rows at a time: logits of a large vocabulary take much memory."""
    parts = []
    for start in range(0, len(states), _PROJECTED_ROWS):
        logits = model.project(states[start : start + _PROJECTED_ROWS])
        tokens = token_ids[start : start + _PROJECTED_ROWS].unsqueeze(1)
        parts.append((logits.gather(1, tokens).squeeze(1) - logits.logsumexp(dim=1)).exp())
    return torch.cat(parts) if parts else torch.zeros(0)


def fits_model(model: Seq2Seq, source: Sequence[int], target: Sequence[int]) -> bool:
    """True if the model accepts a tokenised pair of this length."""
    max_target_tokens = model.max_target_tokens - len(model.forced_prefix)
    return len(source) <= model.max_source_tokens and len(target) <= max_target_tokens


def extract_entries(
    model: Seq2Seq,
    pairs: Sequence[SentencePair],
    sources: Sequence[list[int]],
    targets: Sequence[list[int]],
    *,
    key_type: str,
    batch_tokens: int,
) -> CommitData:
    """Force-decode sentences. The entries are in the order of the sentences."""
    counts = np.array([len(model.kept_positions(target)) for target in targets], dtype=np.int64)
    starts = np.cumsum(counts) - counts
    total = int(counts.sum())
    keys = np.zeros((total, model.width), np.float16 if key_type == "float16" else np.float32)
    values, positions = np.zeros(total, np.int32), np.zeros(total, np.uint16)
    probabilities = np.zeros(total, np.float16)
    for batch in batches_by_length(sources, targets, batch_tokens):
        forced = model.force_decode(batch.sources, batch.targets)
        rows = np.array(batch.rows)[forced.rows.cpu().numpy()]
        # Entries of one row are adjacent and in order: number them from the start of the row.
        first_of_row = np.flatnonzero(np.r_[True, rows[1:] != rows[:-1]])
        within = np.arange(len(rows)) - np.repeat(first_of_row, np.diff(np.r_[first_of_row, len(rows)]))
        at = starts[rows] + within
        states = forced.states.cpu()
        keys[at] = states.to(torch.float16 if key_type == "float16" else torch.float32).numpy()
        values[at], positions[at] = forced.token_ids.cpu().numpy(), forced.positions.cpu().numpy()
        probabilities[at] = gold_probabilities(model, forced.states, forced.token_ids).cpu().numpy()
    if not np.isfinite(keys).all():
        raise ModelError("this model's states do not fit 16-bit floats: set `key_type` to float32")
    return CommitData(pairs, counts, keys, values, probabilities, positions)
