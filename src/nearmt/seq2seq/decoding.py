"""One batch of sentences being decoded step by step, and the caches that belong to it."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from transformers import DynamicCache, EncoderDecoderCache, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from nearmt.seq2seq.capture import capture_states


@dataclass(frozen=True)
class StepOutput:
    """What one decoding step gives for every row."""

    states: torch.Tensor  # (rows, width) float32: the input of the output projection
    logits: torch.Tensor  # (rows, vocabulary) float32: every bias included, unmasked


class DecodingSession:
    """A batch under way, owned by one caller.

    The encoder has run once. Cross-attention keys and values are held once a sentence where the model's
    attention allows it (`shares_sources`), else once a row. Only the self-attention cache follows the hypotheses.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        project: Callable[[torch.Tensor], torch.Tensor],
        source_ids: torch.Tensor,
        source_mask: torch.Tensor,
        *,
        shares_sources: bool,
    ) -> None:
        self._model = model
        self._project = project
        self._shares_sources = shares_sources
        with torch.inference_mode():
            encoded = model.get_encoder()(input_ids=source_ids, attention_mask=source_mask, return_dict=True)
        self._encoded: torch.Tensor = encoded.last_hidden_state  # (sources, time, width)
        self._source_mask = source_mask  # (sources, time)
        self._row_sentences = torch.arange(source_ids.shape[0], device=source_ids.device)
        self._source_sentences = self._row_sentences  # which sentence each row of the source side holds
        self._cache = EncoderDecoderCache(DynamicCache(config=model.config), DynamicCache(config=model.config))
        self._is_first = True

    @property
    def num_source_rows(self) -> int:
        """Rows of the cross-attention cache: one a live sentence, or one a row where sources cannot be shared."""
        return self._encoded.shape[0]

    def step(self, token_ids: torch.Tensor, parents: torch.Tensor) -> StepOutput:
        """Continue row `parents[i]` of the last step with `token_ids[i]`.

        First call: one row a sentence, the start token, parents 0, 1, 2 …. Later: the live sentences in their
        old order, each with the same number of rows side by side.
        """
        with torch.inference_mode():
            self._follow(parents.to(self._encoded.device))
            with capture_states(skip_projection=True) as capture:
                self._model(
                    encoder_outputs=BaseModelOutput(last_hidden_state=self._encoded),
                    attention_mask=self._source_mask,
                    decoder_input_ids=token_ids.to(self._encoded.device)[:, None],
                    past_key_values=self._cache,
                    use_cache=True,
                )
            caught = capture.states[:, -1]
        self._is_first = False
        states = caught.to(torch.float32, copy=True)  # an ordinary tensor: this line is outside inference mode
        return StepOutput(states=states, logits=self._project(states))

    def _follow(self, parents: torch.Tensor) -> None:
        """Bring caches and source rows into the order of the new rows."""
        rows = self._row_sentences[parents]
        sentences, sizes = torch.unique_consecutive(rows, return_counts=True)
        if bool((sizes != sizes[0]).any()) or bool((sentences.diff() <= 0).any()):
            raise ValueError("rows must be grouped by sentence, in order, with groups of one size")
        is_identity = len(rows) == len(self._row_sentences) and torch.equal(
            parents, torch.arange(len(parents), device=parents.device)
        )
        if self._is_first and not is_identity:
            raise ValueError("the first step has one row for each sentence, in order")
        if not is_identity:
            self._cache.self_attention_cache.reorder_cache(parents)
        self._row_sentences = rows
        self._select_sources(sentences if self._shares_sources else rows)

    def _select_sources(self, wanted: torch.Tensor) -> None:
        """Keep the source side's rows for these sentences; nothing moves unless the list changed."""
        if torch.equal(wanted, self._source_sentences):
            return
        kept = torch.searchsorted(self._source_sentences, wanted)  # both are sorted; the first row of each will do
        self._encoded = self._encoded.index_select(0, kept)
        self._source_mask = self._source_mask.index_select(0, kept)
        self._cache.cross_attention_cache.batch_select_indices(kept)
        self._source_sentences = wanted
