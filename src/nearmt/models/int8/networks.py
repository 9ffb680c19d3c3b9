"""The three graphs of a model with the architecture of BART: encoder, decoder and output projection.

One decoder graph serves single steps and whole targets; only the mask differs. In a step the rows of a sentence are its
hypotheses, each of which sees itself and its own past in the cache. With a whole target they are its positions, each of
which sees the positions before it.
"""

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

    def __init__(self, layers: Layers, norms: list[nn.LayerNorm], *, norm_first: bool) -> None:
        self._layers, self._norm_first = layers, norm_first
        self._norms = iter(norms)
        self.residual = layers.rows
        self.rows = layers.norm(layers.rows, next(self._norms)) if norm_first else layers.rows

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


def _norms(side: Any, *names: str, norm_first: bool) -> list[nn.LayerNorm]:
    found = [getattr(layer, name) for layer in side.layers for name in names]
    return [*found, side.layer_norm] if norm_first else found


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


def build_decoder(model: Any, shape: Shape) -> GraphSession:
    """The decoder's layers.

    hidden (sentences, group, width), self_mask (sentences, 1, group, slots + group), source_mask (sentences, 1, 1,
    source), keys and values of the source and of the cache for every layer → states (rows, width), and the new keys
    and values of all layers, stacked: (2 × layers × sentences, heads, group, head width).
    """
    graph, decoder = Graph("decoder"), model.get_decoder()
    width, heads = shape.width, shape.decoder_heads
    hidden = graph.input("hidden", ["sentences", "group", width])
    self_mask = graph.input("self_mask", ["sentences", 1, "group", "slots_and_group"])
    source_mask = graph.input("source_mask", ["sentences", 1, 1, "source"])
    layers = Layers(graph, hidden, heads=heads, width=width)
    names = "self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"
    norms = _norms(decoder, *names, norm_first=shape.norm_first)
    stream = _Stream(layers, norms, norm_first=shape.norm_first)
    fresh: list[str] = []
    for number, layer in enumerate(decoder.layers):
        past, source = (
            tuple(
                graph.input(f"{kind}_{part}{number}", ["sentences", heads, time, width // heads])
                for part in ("keys", "values")
            )
            for kind, time in (("past", "slots"), ("source", "source"))
        )
        weights = _attention_weights(layer.self_attn, width, heads)
        parts = graph.add_many("Split", 3, layers.linear(stream.rows, weights), axis=1, num_outputs=3)
        queries, keys, values = map(layers.heads, parts)
        fresh += [keys, values]
        context = layers.attend_both(queries, (past[0], past[1]), (keys, values), self_mask)
        outer = quantize_weights(layer.self_attn.out_proj)
        stream.add(layers.product(layers.quantize(context), outer), outer.bias)

        weights = _query_scaled(quantize_weights(layer.encoder_attn.q_proj), width, heads)
        queries = layers.heads(layers.linear(stream.rows, weights))
        context = layers.attend(queries, source[0], source[1], source_mask)
        outer = quantize_weights(layer.encoder_attn.out_proj)
        stream.add(layers.product(layers.quantize(context), outer), outer.bias)
        stream.add(*layers.feed_forward(stream.rows, layer.fc1, layer.fc2, shape.activation))
    graph.output(stream.rows, "states")
    graph.output(graph.add("Concat", *fresh, axis=0), "fresh")
    return graph.session()


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
