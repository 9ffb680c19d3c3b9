"""The engine that runs a model with the architecture of BART in int8, with ONNX Runtime on the CPU."""

from typing import Any

import torch
from torch import nn

from nearmt.models.int8.embedding import Embedding
from nearmt.models.int8.networks import Shape, build_decoder, build_encoder, build_projection
from nearmt.models.int8.session import HIDDEN, Int8Session


class Int8Engine:
    """Encoder, decoder and projection as three graphs; the torch model is not kept."""

    name = "int8"

    def __init__(self, model: Any, projection: nn.Linear) -> None:
        encoder, decoder, config = model.get_encoder(), model.get_decoder(), model.config
        shape = Shape(
            width=config.d_model,
            encoder_heads=config.encoder_attention_heads,
            decoder_heads=config.decoder_attention_heads,
            norm_first=hasattr(decoder, "layer_norm"),
            activation=config.activation_function,
        )
        self.num_layers = len(decoder.layers)
        self.heads, self.head_width = shape.decoder_heads, shape.width // shape.decoder_heads
        self.embed_sources, self.embed_targets = Embedding.of(encoder, decoder)
        self.encoder = build_encoder(model, shape)
        self.decoder = build_decoder(model, shape)
        self.projection = build_projection(projection)
        bias = projection.bias if projection.bias is not None else torch.zeros(1, len(projection.weight))
        self._bias = bias.detach().float().reshape(1, -1).clone()  # (1, vocabulary)
        extra = getattr(model, "final_logits_bias", None)
        if extra is not None:
            self._bias = self._bias + extra.detach().float()

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    def project(self, states: torch.Tensor) -> torch.Tensor:
        if not len(states):
            return torch.zeros(0, self._bias.shape[1])
        with torch.no_grad():
            logits, scales = self.projection.run({HIDDEN: states[None]})
            return torch.addcmul(self._bias, logits, scales, out=logits)

    def start(self, source_ids: torch.Tensor, source_mask: torch.Tensor) -> Int8Session:
        return Int8Session(self, source_ids, source_mask)

    def force(self, source_ids: torch.Tensor, source_mask: torch.Tensor, decoder_ids: torch.Tensor) -> torch.Tensor:
        return Int8Session(self, source_ids, source_mask, keeps_memory=False).force(decoder_ids)
