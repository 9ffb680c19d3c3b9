"""The engine that runs a model with the architecture of BART in int8, with ONNX Runtime on the CPU."""

from functools import partial
from typing import Any

import torch
from torch import nn

from nearmt.models.int8.embedding import Embedding
from nearmt.models.int8.lanes import Lanes
from nearmt.models.int8.networks import Shape, build_decoder, build_encoder
from nearmt.models.int8.projection import Projection
from nearmt.models.int8.session import Int8Session, LaneSession


class Int8Engine:
    """Encoder, decoder and projection as graphs, with a lane for each thread of torch. The torch model is not kept."""

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
        self.lanes = Lanes(torch.get_num_threads())
        extra = getattr(model, "final_logits_bias", None)
        bias = torch.zeros(len(projection.weight)) if extra is None else extra.detach().float().flatten()
        self.projection = Projection(projection, bias, self.lanes)

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    def project(self, states: torch.Tensor) -> torch.Tensor:
        return self.projection.project(states.detach()).values

    def start(self, source_ids: torch.Tensor, source_mask: torch.Tensor) -> Int8Session:
        return Int8Session(self, source_ids, source_mask)

    def force(self, source_ids: torch.Tensor, source_mask: torch.Tensor, decoder_ids: torch.Tensor) -> torch.Tensor:
        def force(part: slice) -> torch.Tensor:
            return LaneSession(self, source_ids[part], source_mask[part], keeps_memory=False).force(decoder_ids[part])

        return torch.cat(self.lanes.run([partial(force, part) for part in self.lanes.share(len(source_ids))]))
