"""Captures the input of the output projection with one permanent hook.

Captured tensors go to a list in the caller's own context, so threads that share a model never see each other's states
and nothing is left on the model.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

import torch
from torch import nn

from nearmt.errors import ModelError


@dataclass
class Capture:
    """The inputs of the projection in all forward passes while the capture is active."""

    skip_projection: bool
    inputs: list[torch.Tensor] = field(default_factory=list)

    @property
    def states(self) -> torch.Tensor:
        """The only captured input: (rows, time, width)."""
        if len(self.inputs) != 1 or self.inputs[0].dim() != 3:
            raise ModelError(f"the output projection ran {len(self.inputs)} times in one decoding step instead of once")
        return self.inputs[0]


_active: ContextVar[Capture | None] = ContextVar("nearmt_capture", default=None)


def _capture_input(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...] | None:
    capture = _active.get()
    if capture is None:
        return None
    capture.inputs.append(inputs[0])
    # If the logits are not needed, one position is enough for the rest of the forward pass: the padded
    # (rows, time, vocabulary) product is by far the largest tensor in forced decoding.
    return (inputs[0][:1, :1],) if capture.skip_projection else None


def install_hook(projection: nn.Module) -> None:
    """Make the inputs of this projection available to captures."""
    projection.register_forward_pre_hook(_capture_input)


@contextmanager
def capture_states(*, skip_projection: bool) -> Iterator[Capture]:
    """Capture the projection's inputs inside the block; `skip_projection` saves computing the model's logits."""
    capture = Capture(skip_projection)
    token = _active.set(capture)
    try:
        yield capture
    finally:
        _active.reset(token)


def find_projection(model: nn.Module) -> tuple[str, nn.Linear]:
    """The name of the output projection, and the module itself."""
    stated = model.get_output_embeddings()  # type: ignore[operator]
    linear = [(name, module) for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    found = [(name, module) for name, module in linear if module is stated]
    if not found:  # FSMT returns an embedding instead
        found = [(name, module) for name, module in linear if name.endswith("output_projection")]
    if len(found) != 1:
        raise ModelError(f"{type(model).__name__} has no output projection that nearmt recognises")
    return found[0]
