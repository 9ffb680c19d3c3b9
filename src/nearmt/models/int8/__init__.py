"""The fast engine for CPUs: int8 weights in ONNX Runtime. Only this room knows onnx and onnxruntime.

Nothing is imported before an engine is built; a model whose family is not in the list is none of its business.
"""

from typing import Any

FAMILIES = ("MarianMTModel", "M2M100ForConditionalGeneration")  # NLLB is an M2M100
_LEAST_WIDTH = 256  # in narrower models the products are too small to gain


def is_supported(model: Any) -> bool:
    """Whether the engine knows this kind of model."""
    return type(model).__name__ in FAMILIES


def is_worthwhile(model: Any) -> bool:
    """Whether the engine is known to be faster for a model of this size."""
    return is_supported(model) and model.config.d_model >= _LEAST_WIDTH
