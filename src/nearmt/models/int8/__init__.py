"""The fast engine for CPUs: int8 weights in ONNX Runtime, for Marian, M2M100 and NLLB.

The ONNX graphs are built by hand, node by node, so that the beams of a sentence share its source and its cache and
every step returns the decoder states that nearmt searches with. docs/performance.md compares it with other engines.
onnx and onnxruntime are imported only when an engine is built.
"""

from typing import Any

FAMILIES = ("MarianMTModel", "M2M100ForConditionalGeneration")  # NLLB is an M2M100
_MIN_WIDTH = 256  # in narrower models the products are too small to be faster


def is_supported(model: Any) -> bool:
    """True if the engine supports this kind of model."""
    return type(model).__name__ in FAMILIES


def is_worthwhile(model: Any) -> bool:
    """True if the engine is known to be faster for a model of this size."""
    return is_supported(model) and model.config.d_model >= _MIN_WIDTH
