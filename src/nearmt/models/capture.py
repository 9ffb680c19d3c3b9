"""The input of the output projection, caught by one permanent hook.

What is caught goes to a list that only the caller's own context knows, so two threads that use one model at the
same time never see each other's states, and nothing is left on the model.
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
    """The projection's inputs of the forward passes made while the capture was active."""

    skip_projection: bool
    inputs: list[torch.Tensor] = field(default_factory=list)

    @property
    def states(self) -> torch.Tensor:
        """The only input caught: (rows, time, width)."""
        if len(self.inputs) != 1 or self.inputs[0].dim() != 3:
            raise ModelError(
                f"the output projection ran {len(self.inputs)} times in one decoding step, where nearmt expects one"
            )
        return self.inputs[0]


_active: ContextVar[Capture | None] = ContextVar("nearmt_capture", default=None)


def _catch_input(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...] | None:
    capture = _active.get()
    if capture is None:
        return None
    capture.inputs.append(inputs[0])
    # One position is enough for the rest of the forward pass when the logits are not wanted: the padded
    # (rows, time, vocabulary) product is by far the largest tensor of a forced decoding.
    return (inputs[0][:1, :1],) if capture.skip_projection else None


def install_hook(projection: nn.Module) -> None:
    """Let captures see the inputs of this projection from now on."""
    projection.register_forward_pre_hook(_catch_input)


@contextmanager
def capture_states(*, skip_projection: bool) -> Iterator[Capture]:
    """Catch the projection's inputs inside the block; `skip_projection` leaves the model's own logits uncomputed."""
    capture = Capture(skip_projection)
    token = _active.set(capture)
    try:
        yield capture
    finally:
        _active.reset(token)


def find_projection(model: nn.Module) -> tuple[str, nn.Linear]:
    """The module whose output is the logits, with its name."""
    stated = model.get_output_embeddings()  # type: ignore[operator]
    linear = [(name, module) for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    found = [(name, module) for name, module in linear if module is stated]
    if not found:  # FSMT states an embedding instead
        found = [(name, module) for name, module in linear if name.endswith("output_projection")]
    if len(found) != 1:
        raise ModelError(f"{type(model).__name__} has no output projection that nearmt can find")
    return found[0]
