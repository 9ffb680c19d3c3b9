"""The output projection, divided by vocabulary between the lanes."""

from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import nn

from nearmt.models.int8.graph import GraphSession
from nearmt.models.int8.kernels import finish_logits
from nearmt.models.int8.lanes import Lanes
from nearmt.models.int8.layers import quantize_weights
from nearmt.models.int8.networks import build_projection
from nearmt.models.topk import BLOCK

_FEW_ROWS = 8  # a part of the vocabulary takes a millisecond or two


@dataclass(frozen=True)
class Logits:
    """The logits of some rows, and what one pass over them found out."""

    values: torch.Tensor  # (rows, vocabulary) with every bias
    log_totals: torch.Tensor  # (rows,) the log of the sum of their exponentials
    maxima: torch.Tensor  # (rows, blocks) the maximum of each block of logits


class Projection:
    """States to logits. It keeps nothing of a request."""

    def __init__(self, module: nn.Linear, bias: torch.Tensor, lanes: Lanes) -> None:
        """`bias` (vocabulary,) is added to that of the module."""
        weights = quantize_weights(module)
        self.vocabulary = weights.values.shape[1]
        self._lanes = lanes
        self._bias = weights.bias + bias.numpy()
        self._parts = lanes.share(self.vocabulary, BLOCK)
        self._sessions: list[GraphSession] = [build_projection(weights.part(part)) for part in self._parts]

    def project(self, states: torch.Tensor, out: torch.Tensor | None = None) -> Logits:
        """Project states (rows, width). With `out`, the logits are written to its first rows."""
        rows = len(states)
        values = torch.empty(rows, self.vocabulary) if out is None else out[:rows]
        totals = np.empty((len(self._parts), rows), np.float32)
        maxima = np.empty((rows, -(-self.vocabulary // BLOCK)), np.float32)
        if rows:
            logits, found = values.numpy(), torch.from_numpy(totals)
            self._lanes.run(
                [partial(self._run, number, states, logits, totals, maxima) for number in range(len(self._parts))],
                are_short=rows <= _FEW_ROWS,
            )
            log_totals = found[0] if len(found) == 1 else found.logsumexp(dim=0)
        else:
            log_totals = torch.empty(0)
        return Logits(values, log_totals, torch.from_numpy(maxima))

    def _run(
        self, number: int, states: torch.Tensor, logits: np.ndarray, totals: np.ndarray, maxima: np.ndarray
    ) -> None:
        """Compute one part of the vocabulary."""
        part = self._parts[number]
        raw, scales = self._sessions[number].run({"hidden": states[None]})
        blocks = slice(part.start // BLOCK, -(-part.stop // BLOCK))
        row_scales = scales.expand(len(raw), 1)[:, 0].numpy()
        finish_logits(raw.numpy(), row_scales, self._bias[part], logits[:, part], totals[number], maxima[:, blocks])
