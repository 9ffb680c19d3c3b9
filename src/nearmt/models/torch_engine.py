"""The engine that runs any encoder–decoder of transformers with torch, on any device."""

import torch
from torch import nn
from transformers import DynamicCache, EncoderDecoderCache, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from nearmt.models.attention import GROUPED_ATTENTION, register_grouped_attention
from nearmt.models.capture import capture_states, install_hook
from nearmt.models.engine import RowOrder, StepOutput

_TOLERANCE = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}


class TorchEngine:
    """Runs the model as transformers loaded it."""

    name = "torch"

    def __init__(self, model: PreTrainedModel, projection: nn.Linear) -> None:
        self.model = model
        self.projection = projection
        self.shares_sources = False
        install_hook(projection)

    @property
    def device(self) -> torch.device:
        return self.projection.weight.device

    def project(self, states: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            logits: torch.Tensor = self.projection(states.to(self.device, self.model.dtype))
            bias = getattr(self.model, "final_logits_bias", None)
            return (logits if bias is None else logits.add_(bias)).float()

    def start(self, source_ids: torch.Tensor, source_mask: torch.Tensor) -> "TorchSession":
        return TorchSession(self, source_ids, source_mask)

    def force(self, source_ids: torch.Tensor, source_mask: torch.Tensor, decoder_ids: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode(), capture_states(skip_projection=True) as capture:
            self.model(input_ids=source_ids, attention_mask=source_mask, decoder_input_ids=decoder_ids, use_cache=False)
            return capture.states

    def projects_as_the_model(self, source_ids: torch.Tensor, source_mask: torch.Tensor, start: torch.Tensor) -> bool:
        """True if `project` turns the captured states into the model's own logits."""
        with torch.inference_mode(), capture_states(skip_projection=False) as capture:
            output = self.model(
                input_ids=source_ids, attention_mask=source_mask, decoder_input_ids=start[:, None], use_cache=False
            )
            states, expected = capture.states[:, -1], output.logits[:, -1].float()
        return self._is_close(self.project(states), expected)

    def try_sharing_sources(self, source_ids: torch.Tensor, source_mask: torch.Tensor, start: torch.Tensor) -> None:
        """Store sources once per sentence if the model's attention supports it, which is tested and not assumed."""
        expected = self._second_step(source_ids, source_mask, start)
        register_grouped_attention()
        before = self.model.config._attn_implementation
        try:
            self.model.set_attn_implementation(GROUPED_ATTENTION)
            self.shares_sources = True
            if self._is_close(self._second_step(source_ids, source_mask, start), expected):
                return
        except (RuntimeError, ValueError, AssertionError, KeyError):
            pass
        self.shares_sources = False
        self.model.set_attn_implementation(before)

    def _second_step(self, source_ids: torch.Tensor, source_mask: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        """The states of two rows for each of two sentences."""
        session = self.start(source_ids, source_mask)
        session.step(start, torch.arange(2, device=self.device))
        twice = torch.tensor([0, 0, 1, 1], device=self.device)
        return session.step(source_ids[1, :2].repeat(2), twice).states

    def _is_close(self, found: torch.Tensor, expected: torch.Tensor) -> bool:
        if found.shape != expected.shape:
            return False
        scale = expected.abs().max().clamp(min=1.0)
        return bool((found - expected).abs().max() <= _TOLERANCE.get(self.model.dtype, 1e-2) * scale)


class TorchSession:
    """A batch that is being decoded.

    Cross-attention keys and values are stored once per sentence if the model's attention allows it (`shares_sources`),
    else once per row. Only the self-attention cache is reordered with the hypotheses.
    """

    def __init__(self, engine: TorchEngine, source_ids: torch.Tensor, source_mask: torch.Tensor) -> None:
        self._engine = engine
        with torch.inference_mode():
            encoder = engine.model.get_encoder()
            encoded = encoder(input_ids=source_ids, attention_mask=source_mask, return_dict=True)
        self._encoded: torch.Tensor = encoded.last_hidden_state  # (sources, time, width)
        self._source_mask = source_mask  # (sources, time)
        self._order = RowOrder(len(source_ids), source_ids.device)
        self._source_sentences = self._order.sentences  # the sentence of each row of the source side
        config = engine.model.config
        self._cache = EncoderDecoderCache(DynamicCache(config=config), DynamicCache(config=config))

    @property
    def num_source_rows(self) -> int:
        return self._encoded.shape[0]

    def step(self, token_ids: torch.Tensor, parents: torch.Tensor) -> StepOutput:
        parents = parents.to(self._encoded.device)
        with torch.inference_mode():
            if not self._order.follow(parents):
                self._cache.self_attention_cache.reorder_cache(parents)
            self._select_sources(self._order.sentences if self._engine.shares_sources else self._order.rows)
            with capture_states(skip_projection=True) as capture:
                self._engine.model(
                    encoder_outputs=BaseModelOutput(last_hidden_state=self._encoded),
                    attention_mask=self._source_mask,
                    decoder_input_ids=token_ids.to(self._encoded.device)[:, None],
                    past_key_values=self._cache,
                    use_cache=True,
                )
            captured = capture.states[:, -1]
        states = captured.to(torch.float32, copy=True)  # a normal tensor, because it is made outside inference mode
        return StepOutput(states=states, logits=self._engine.project(states))

    def _select_sources(self, wanted: torch.Tensor) -> None:
        """Keep the rows of the source side for these sentences; nothing is copied if they have not changed."""
        if torch.equal(wanted, self._source_sentences):
            return
        kept = torch.searchsorted(self._source_sentences, wanted)  # both are sorted; the first row of each sentence
        self._encoded = self._encoded.index_select(0, kept)
        self._source_mask = self._source_mask.index_select(0, kept)
        self._cache.cross_attention_cache.batch_select_indices(kept)
        self._source_sentences = wanted
