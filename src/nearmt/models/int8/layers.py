"""Transformer layers as ONNX nodes, their weights in int8.

Weights have one scale per output channel, activations one per row, computed at run time. So products are sums of
integers, which are the same on every processor, and the result for a row never depends on the other rows.
Processors without VNNI add two adjacent products in 16 bits before they continue in 32. Activations use all 8 bits,
and weights are scaled so that two adjacent ones cannot overflow: |w₀| + |w₁| ≤ 128.
All rows of a batch are one matrix (rows, width); attention sees them as (sentences, heads, group, head width).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from nearmt.models.int8.graph import Graph

_SMALLEST = 1e-20  # added to every scale, so that a row of zeros has one
_ZERO = 128  # the uint8 value that represents 0 among signed values
# Name in a model's config → the node, its attributes and its minimum.
_ACTIVATIONS: dict[str, tuple[str, dict[str, Any], float]] = {
    "relu": ("Relu", {}, 0.0),
    "gelu": ("Gelu", {}, -0.1699713),
    "silu": ("QuickGelu", {"alpha": 1.0}, -0.2784646),
    "swish": ("QuickGelu", {"alpha": 1.0}, -0.2784646),
}


@dataclass(frozen=True)
class QuantizedRows:
    """Rows as uint8, and the scale of each row."""

    values: str  # (rows, width) uint8; `zero` represents 0
    scales: str  # (rows, 1) float32
    zero: int


@dataclass(frozen=True)
class QuantizedWeights:
    """The weights of one or more linear modules side by side."""

    values: np.ndarray  # (in, out) int8
    scales: np.ndarray  # (out,) float32
    bias: np.ndarray  # (out,) float32

    def part(self, outputs: slice) -> "QuantizedWeights":
        """The weights of some of the outputs."""
        return QuantizedWeights(self.values[:, outputs], self.scales[outputs], self.bias[outputs])


def quantize_weights(*modules: nn.Linear) -> QuantizedWeights:
    """Quantise with one scale per output channel, from its greatest sum of two adjacent weights."""
    weights = torch.cat([module.weight.detach().float() for module in modules])
    biases = [torch.zeros(len(m.weight)) if m.bias is None else m.bias.detach().float() for m in modules]
    if weights.shape[1] % 2:
        raise ValueError(f"a layer with an odd number of inputs ({weights.shape[1]}) is not supported")
    sizes = weights.abs()
    # 127, because rounding can add 0.5 to each of the two.
    scales = (sizes[:, ::2] + sizes[:, 1::2]).amax(dim=1).div_(127).add_(_SMALLEST)
    values = (weights / scales[:, None]).round_().to(torch.int8)
    return QuantizedWeights(values.t().contiguous().numpy(), scales.numpy(), torch.cat(biases).numpy())


class Layers:
    """Adds layers to a graph whose rows are all (sentences × group, width)."""

    def __init__(self, graph: Graph, hidden: str, *, heads: int, width: int) -> None:
        """`hidden` is the graph's input (sentences, group, width)."""
        self.graph = graph
        self._one = graph.constant(1.0, np.float32)
        self._last_axis = graph.constant([1], np.int64)
        self._smallest = graph.constant(_SMALLEST, np.float32)
        self.rows = graph.add("Reshape", hidden, graph.constant([-1, width], np.int64))
        batch = graph.add("Shape", hidden, start=0, end=2)
        self._split_heads = graph.add("Concat", batch, graph.constant([heads, width // heads], np.int64), axis=0)
        self._join_heads = graph.constant([-1, width], np.int64)
        num_rows = graph.add("Shape", self.rows, start=0, end=1)
        self._zeros = graph.add("Expand", graph.constant([_ZERO], np.uint8), num_rows)

    def quantize(self, rows: str, *, is_positive: bool = False) -> QuantizedRows:
        """Quantise rows to 8 bits: −127 … 127 around 128, or 0 … 255 if no value is negative."""
        graph, zero, top = self.graph, 0 if is_positive else _ZERO, 255 if is_positive else 127
        size = rows if is_positive else graph.add("Abs", rows)
        peak = graph.add("ReduceMax", size, self._last_axis, keepdims=1)
        scale = graph.add("Add", graph.add("Mul", peak, graph.constant(1 / top, np.float32)), self._smallest)
        flat = graph.add("Squeeze", scale, self._last_axis)
        zeros = () if is_positive else (self._zeros,)
        return QuantizedRows(graph.add("QuantizeLinear", rows, flat, *zeros, axis=0), scale, zero)

    def integer_product(self, rows: QuantizedRows, weights: QuantizedWeights) -> str:
        """Rows times weights without the rows' scales and the bias."""
        graph = self.graph
        inputs = [graph.constant(weights.values), self._one, graph.constant(weights.scales)]
        return graph.add("MatMulIntegerToFloat", rows.values, *inputs, graph.constant(rows.zero, np.uint8))

    def product(self, rows: QuantizedRows, weights: QuantizedWeights) -> str:
        """Rows times weights, without the bias."""
        return self.graph.add("Mul", self.integer_product(rows, weights), rows.scales)

    def linear(self, rows: str | QuantizedRows, weights: QuantizedWeights) -> str:
        """Rows times weights, plus the bias."""
        quantized = self.quantize(rows) if isinstance(rows, str) else rows
        return self.graph.add("Add", self.product(quantized, weights), self.graph.constant(weights.bias))

    def heads(self, rows: str) -> str:
        """(rows, width) → (sentences, heads, group, head width)."""
        return self.graph.add("Transpose", self.graph.add("Reshape", rows, self._split_heads), perm=[0, 2, 1, 3])

    def join(self, heads: str) -> str:
        """(sentences, heads, group, head width) → (rows, width)."""
        return self.graph.add("Reshape", self.graph.add("Transpose", heads, perm=[0, 2, 1, 3]), self._join_heads)

    def attend(self, queries: str, keys: str, values: str, mask: str) -> str:
        """Attention over one set of keys; the queries are already scaled."""
        scores = self.graph.add("FusedMatMul", queries, keys, transB=1)
        weights = self.graph.add("Softmax", self.graph.add("Add", scores, mask), axis=3)
        return self.join(self.graph.add("MatMul", weights, values))

    def feed_forward(self, rows: str, inner: nn.Linear, outer: nn.Linear, activation: str) -> tuple[str, np.ndarray]:
        """The two layers of a feed-forward block without the bias of the second, and this bias."""
        if activation not in _ACTIVATIONS:
            raise ValueError(f"the activation {activation} is not supported")
        graph, weights = self.graph, quantize_weights(outer)
        op, options, lowest = _ACTIVATIONS[activation]
        hidden = graph.add(op, self.linear(rows, quantize_weights(inner)), **options)
        bias = weights.bias
        if lowest:
            # Shifted so that no value is negative; the bias is corrected by what the shift adds to the product.
            hidden = graph.add("Sub", hidden, graph.constant(lowest, np.float32))
            bias = bias + lowest * weights.scales * weights.values.sum(axis=0, dtype=np.float64)
        return self.product(self.quantize(hidden, is_positive=True), weights), bias.astype(np.float32)

    def norm(self, rows: str, norm: nn.LayerNorm) -> str:
        """Layer normalisation."""
        weights = [self.graph.constant(w.detach().float().numpy()) for w in (norm.weight, norm.bias)]
        return self.graph.add("LayerNormalization", rows, *weights, axis=-1, epsilon=norm.eps)

    def add_and_norm(self, rows: str, bias: np.ndarray, residual: str, norm: nn.LayerNorm) -> tuple[str, str]:
        """The layer norm of rows + bias + residual, and this sum."""
        total = self.graph.add("Add", self.graph.add("Add", rows, self.graph.constant(bias)), residual)
        return self.norm(total, norm), total
