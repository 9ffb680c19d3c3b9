"""Attention that lets many query rows share one row of keys.

The hypotheses of one sentence attend to the same source. Their cross-attention keys are stored once per sentence, and
this function folds the hypotheses into the query's time axis instead of repeating the keys.
"""

from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface

GROUPED_ATTENTION = "nearmt_grouped"


def attend_in_groups(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **options: Any,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Scaled dot-product attention; with fewer key rows than query rows, consecutive query rows share a key row.

    query (rows, heads, 1, d), key and value (sentences, heads, source, d), mask with one row per sentence.
    """
    attend = AttentionInterface()["sdpa"]
    rows, heads, time, width = query.shape
    sentences = key.shape[0]
    if rows == sentences:
        output, weights = attend(module, query, key, value, attention_mask, **options)
        return output, weights
    if time != 1 or rows % sentences:
        raise ValueError(f"{rows} query rows of {time} positions cannot share {sentences} rows of keys")
    group = rows // sentences
    options["is_causal"] = False
    folded = query.view(sentences, group, heads, width).transpose(1, 2)  # (sentences, heads, group, d)
    output, _ = attend(module, folded, key, value, attention_mask, **options)  # (sentences, group, heads, d)
    return output.reshape(rows, 1, heads, width), None


def register_grouped_attention() -> None:
    """Register the function with transformers; repeated calls are harmless."""
    AttentionInterface.register(GROUPED_ATTENTION, attend_in_groups)
    AttentionMaskInterface.register(GROUPED_ATTENTION, AttentionMaskInterface()["sdpa"])
