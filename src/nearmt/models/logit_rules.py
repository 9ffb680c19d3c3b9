"""The hard rules of a model's generation config, applied to log-probabilities as `generate` applies them.

The log-probabilities may be a mixture with neighbours, so a rule masks and never renormalises. Supported are
forced first and last tokens, bad words, suppressed tokens, minimum length, n-gram and repetition rules, and
sequence bias. Sampling options (do_sample, temperature, top_k, top_p …), beam defaults (num_beams,
length_penalty, early_stopping, max_length) and remove_invalid_values are ignored. A model with any other option
that would change the output is refused when it is loaded.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from transformers import (
    GenerationConfig,
    LogitsProcessor,
    MinLengthLogitsProcessor,
    MinNewTokensLengthLogitsProcessor,
    NoBadWordsLogitsProcessor,
    NoRepeatNGramLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
)

from nearmt.errors import ModelError

# Option → the values that do not affect decoding.
_UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    "num_beam_groups": (None, 0, 1),
    "constraints": (None, []),
    "force_words_ids": (None, []),
    "penalty_alpha": (None, 0, 0.0),
    "dola_layers": (None,),
    "guidance_scale": (None, 1, 1.0),
    "encoder_repetition_penalty": (None, 1, 1.0),
    "encoder_no_repeat_ngram_size": (None, 0),
    "exponential_decay_length_penalty": (None,),
    "watermarking_config": (None,),
}


def _token_ids(value: int | Sequence[int] | None) -> list[int]:
    if value is None:
        return []
    return [value] if isinstance(value, int) else [int(token) for token in value]


class DecodingRules:
    """The rules of one model. It has no state, so one object serves every caller."""

    def __init__(self, config: GenerationConfig, *, eos_token_ids: Sequence[int], forced_prefix: Sequence[int]) -> None:
        for option, harmless in _UNSUPPORTED.items():
            if getattr(config, option, None) not in harmless:
                raise ModelError(f"the model's generation config sets {option}, which nearmt does not support")
        self._forced_prefix = tuple(forced_prefix)
        self._forced_end = _token_ids(config.forced_eos_token_id)
        self._banned, phrases = self._split_bad_words(config.bad_words_ids or [], eos_token_ids)
        self._suppressed = _token_ids(config.suppress_tokens)
        self._suppressed_at_start = _token_ids(config.begin_suppress_tokens)
        self._processors = self._build_processors(config, phrases, list(eos_token_ids))

    @staticmethod
    def _split_bad_words(
        bad_words: Sequence[Sequence[int]], eos_token_ids: Sequence[int]
    ) -> tuple[list[int], list[list[int]]]:
        """Single tokens, which are masked by index, and longer phrases; EOS is never a bad word."""
        single = [word[0] for word in bad_words if len(word) == 1 and word[0] not in eos_token_ids]
        return single, [list(word) for word in bad_words if len(word) > 1]

    @staticmethod
    def _build_processors(
        config: GenerationConfig, phrases: list[list[int]], eos_token_ids: list[int]
    ) -> list[LogitsProcessor]:
        """The rules that need the prefix of each row, in the order of `generate`."""
        found: list[LogitsProcessor] = []
        if config.sequence_bias:
            found.append(SequenceBiasLogitsProcessor(config.sequence_bias))
        if config.repetition_penalty not in (None, 1, 1.0):
            found.append(RepetitionPenaltyLogitsProcessor(config.repetition_penalty))
        if config.no_repeat_ngram_size:
            found.append(NoRepeatNGramLogitsProcessor(config.no_repeat_ngram_size))
        if phrases:
            found.append(NoBadWordsLogitsProcessor(phrases, eos_token_ids))
        if config.min_length:
            found.append(MinLengthLogitsProcessor(config.min_length, eos_token_ids))
        if config.min_new_tokens:
            found.append(MinNewTokensLengthLogitsProcessor(1, config.min_new_tokens, eos_token_ids))
        return found

    def forced_token(self, step: int) -> int | None:
        """The token that every row must take at this step (counted from 0); None if there is none."""
        return self._forced_prefix[step] if step < len(self._forced_prefix) else None

    def looks_at_values(self, is_last: torch.Tensor) -> bool:
        """True if a rule does more than mask at this step; then rows must be normalised before it."""
        return bool(self._processors) or (bool(self._forced_end) and bool(is_last.any()))

    def apply(self, prefixes: torch.Tensor, log_probs: torch.Tensor, is_last: torch.Tensor) -> torch.Tensor:
        """Apply the rules; the given tensor may be changed and must not be used again.

        prefixes (rows, t) with the decoder start; log_probs (rows, vocabulary); is_last (rows,) is True where the
        sentence of the row can have only one more token.
        """
        step = prefixes.shape[1] - 1
        for processor in self._processors:
            log_probs = processor(prefixes, log_probs)
        if self._banned:
            log_probs[:, self._banned] = -math.inf
        forced = self.forced_token(step)
        if forced is not None:
            log_probs.fill_(-math.inf)
            log_probs[:, forced] = 0.0
        if self._forced_end and bool(is_last.any()):
            log_probs[is_last] = -math.inf
            for token in self._forced_end:
                log_probs[is_last, token] = 0.0
        if self._suppressed:
            log_probs[:, self._suppressed] = -math.inf
        if self._suppressed_at_start and step == len(self._forced_prefix):
            log_probs[:, self._suppressed_at_start] = -math.inf
        return log_probs
