"""The graphs of a model with the architecture of BART: encoder, decoder and output projection.

The decoder is cut into segments at its attentions, which are not part of the graphs: kernels compute them faster,
because each hypothesis only reads its own past.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn

from nearmt.models.int8.graph import Graph, GraphSession
from nearmt.models.int8.layers import Layers, QuantizedWeights, quantize_weights


@dataclass(frozen=True)
class Shape:
    """Sizes and options of the layers."""

    width: int
    encoder_heads: int
    decoder_heads: int
    norm_first: bool  # M2M100 normalises before each block, Marian after it
    activation: str


class _Stream:
    """The input of the next block, and the residual to which its result is added."""

    def __init__(
        self, layers: Layers, norms: Iterator[nn.LayerNorm], *, norm_first: bool, residual: str | None = None
    ) -> None:
        """With `residual`, it continues after an attention, whose result is the input of the layers."""
        self._layers, self._norm_first, self._norms = layers, norm_first, norms
        self.rows, self.residual = layers.rows, residual or layers.rows
        if residual is None and norm_first:
            self.rows = layers.norm(layers.rows, next(norms))

    def add(self, product: str, bias: np.ndarray) -> None:
        normed, total = self._layers.add_and_norm(product, bias, self.residual, next(self._norms))
        self.rows, self.residual = normed, total if self._norm_first else normed


def _query_scaled(weights: QuantizedWeights, width: int, heads: int) -> QuantizedWeights:
    """Scale the first `width` outputs, which are the queries, by one over the square root of the head width."""
    factors = np.ones_like(weights.scales)
    factors[:width] = (width // heads) ** -0.5
    return QuantizedWeights(weights.values, weights.scales * factors, weights.bias * factors)


def _attention_weights(attention: Any, width: int, heads: int) -> QuantizedWeights:
    """The weights of queries, keys and values, concatenated."""
    return _query_scaled(quantize_weights(attention.q_proj, attention.k_proj, attention.v_proj), width, heads)


def _norms(side: Any, *names: str, norm_first: bool) -> Iterator[nn.LayerNorm]:
    found = [getattr(layer, name) for layer in side.layers for name in names]
    return iter([*found, side.layer_norm] if norm_first else found)


def build_encoder(model: Any, shape: Shape) -> GraphSession:
    """hidden (sentences, time, width), mask (sentences, 1, 1, time) → keys and values of every decoder layer."""
    graph, encoder = Graph("encoder"), model.get_encoder()
    hidden = graph.input("hidden", ["sentences", "time", shape.width])
    mask = graph.input("mask", ["sentences", 1, 1, "time"])
    layers = Layers(graph, hidden, heads=shape.encoder_heads, width=shape.width)
    norms = _norms(encoder, "self_attn_layer_norm", "final_layer_norm", norm_first=shape.norm_first)
    stream = _Stream(layers, norms, norm_first=shape.norm_first)
    for layer in encoder.layers:
        weights = _attention_weights(layer.self_attn, shape.width, shape.encoder_heads)
        queries, keys, values = graph.add_many("Split", 3, layers.linear(stream.rows, weights), axis=1, num_outputs=3)
        context = layers.attend(layers.heads(queries), layers.heads(keys), layers.heads(values), mask)
        outer = quantize_weights(layer.self_attn.out_proj)
        stream.add(layers.product(layers.quantize(context), outer), outer.bias)
        stream.add(*layers.feed_forward(stream.rows, layer.fc1, layer.fc2, shape.activation))
    # From here on, the number of heads is that of the decoder.
    cross = Layers(graph, hidden, heads=shape.decoder_heads, width=shape.width)
    quantized = layers.quantize(stream.rows)
    for number, layer in enumerate(model.get_decoder().layers):
        for part in ("k_proj", "v_proj"):
            weights = quantize_weights(getattr(layer.encoder_attn, part))
            graph.output(cross.heads(layers.linear(quantized, weights)), f"{part}{number}")
    return graph.session()


def build_decoder(model: Any, shape: Shape) -> list[GraphSession]:
    """The decoder's segments: one before the first attention, and one after each.

    hidden (1, rows, width), which is the embedding or the result of an attention, and after the first segment residual
    (rows, width) → projected (rows, …), and the residual for the next segment. What is projected are queries, keys and
    values for self-attention, queries for attention to the source, and after the last segment the states.
    """
    decoder, width, heads = model.get_decoder(), shape.width, shape.decoder_heads
    names = "self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"
    norms = _norms(decoder, *names, norm_first=shape.norm_first)
    attentions = [_attention_weights(layer.self_attn, width, heads) for layer in decoder.layers]
    first = _Segment(shape, norms, is_first=True)
    sessions = [first.finish(attentions[0])]
    for layer, following in zip(decoder.layers, [*attentions[1:], None], strict=True):
        after_self = _Segment(shape, norms)
        after_self.add_attention(layer.self_attn.out_proj)
        sessions.append(after_self.finish(_query_scaled(quantize_weights(layer.encoder_attn.q_proj), width, heads)))
        after_source = _Segment(shape, norms)
        after_source.add_attention(layer.encoder_attn.out_proj)
        after_source.stream.add(
            *after_source.layers.feed_forward(after_source.stream.rows, layer.fc1, layer.fc2, shape.activation)
        )
        sessions.append(after_source.finish(following))
    return sessions


class _Segment:
    """A part of the decoder under construction."""

    def __init__(self, shape: Shape, norms: Iterator[nn.LayerNorm], *, is_first: bool = False) -> None:
        self.graph = Graph("decoder")
        hidden = self.graph.input("hidden", [1, "rows", shape.width])
        residual = None if is_first else self.graph.input("residual", ["rows", shape.width])
        self.layers = Layers(self.graph, hidden, heads=shape.decoder_heads, width=shape.width)
        self.stream = _Stream(self.layers, norms, norm_first=shape.norm_first, residual=residual)

    def add_attention(self, projection: nn.Linear) -> None:
        """Project the result of an attention and add it to the stream."""
        outer = quantize_weights(projection)
        self.stream.add(self.layers.product(self.layers.quantize(self.layers.rows), outer), outer.bias)

    def finish(self, weights: QuantizedWeights | None) -> GraphSession:
        """Project the stream for the next attention; without weights, it is the output."""
        rows = self.stream.rows
        self.graph.output(rows if weights is None else self.layers.linear(rows, weights), "projected")
        self.graph.output(self.stream.residual, "residual_after")
        return self.graph.session()


def build_projection(weights: QuantizedWeights) -> GraphSession:
    """states (1, rows, width) → unscaled logits (rows, vocabulary) without bias, and the scales (rows, 1).

    Scales and bias are applied later in one pass, because a second pass over the logits would be slow.
    """
    graph, width = Graph("projection"), weights.values.shape[0]
    hidden = graph.input("hidden", [1, "rows", width])
    layers = Layers(graph, hidden, heads=1, width=width)
    rows = layers.quantize(layers.rows)
    graph.output(layers.integer_product(rows, weights), "logits")
    graph.output(rows.scales, "scales")
    return graph.session()
