"""Chooses the engine that runs a model: torch or int8."""

import torch

from nearmt.errors import MissingExtraError, ModelError, SettingError
from nearmt.models import int8
from nearmt.models.engine import Engine
from nearmt.models.torch_engine import TorchEngine

ENGINES = ("auto", "torch", "int8")
# Rounding alone moves the states of the tiny random models of the tests by 10 %, those of trained models by 3 %.
# A network that was converted wrongly gives unrelated states, which differ by about 140 %.
_TOLERANCE = 0.35


def choose_engine(
    wanted: str, plain: TorchEngine, name: str, probe: tuple[torch.Tensor, ...], *, is_fallback: bool = False
) -> Engine:
    """The requested engine; "auto" is int8 if it is known to be faster for the model and gives the states of torch.

    `is_fallback` says that the model is in float32 only because this processor does not support its 16-bit type. Such a
    model gets the engine that it has on other machines: a store is tied to its engine and must open on both.
    """
    if wanted not in ENGINES:
        raise SettingError(f"`engine` must be one of {', '.join(ENGINES)}, not {wanted!r}")
    fits = plain.device.type == "cpu" and plain.model.dtype == torch.float32 and not is_fallback
    if wanted == "torch" or (wanted == "auto" and not (fits and int8.is_worthwhile(plain.model))):
        return plain
    kind = type(plain.model).__name__
    if not int8.is_supported(plain.model):
        raise ModelError(f"the int8 engine supports {' and '.join(int8.FAMILIES)}, but {name} is a {kind}")
    if not fits:
        raise SettingError("the int8 engine needs `device` cpu and `dtype` float32")
    try:
        from nearmt.models.int8.engine import Int8Engine
    except ImportError as error:
        if wanted == "auto":
            return plain
        raise MissingExtraError("the int8 engine", "onnx onnxruntime") from error
    try:
        fast = Int8Engine(plain.model, plain.projection)
        difference = _difference(fast, plain, *probe)
    except (RuntimeError, ValueError, AttributeError) as error:
        if wanted == "auto":
            return plain
        raise ModelError(f"{name} ({kind}) cannot be run by the int8 engine: {error}") from error
    if difference > _TOLERANCE:
        if wanted == "auto":
            return plain
        raise ModelError(f"the int8 engine does not reproduce {name} ({kind}): states differ by {difference:.0%}")
    return fast


def _difference(
    fast: Engine, plain: Engine, source_ids: torch.Tensor, source_mask: torch.Tensor, start: torch.Tensor
) -> float:
    """The relative difference between the states of the two engines for a few decoder inputs."""
    decoder_ids = torch.cat((start[:, None], source_ids), dim=1)
    expected, found = (engine.force(source_ids, source_mask, decoder_ids) for engine in (plain, fast))
    return float((found - expected).norm() / expected.norm())
