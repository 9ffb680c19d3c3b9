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
        """Project states (rows, width). With `out`, the logits may be written to its first rows."""
        rows = len(states)
        totals = np.empty((len(self._parts), rows), np.float32)
        maxima = torch.empty(rows, -(-self.vocabulary // BLOCK))
        if not rows:
            return Logits(torch.empty(0, self.vocabulary), torch.empty(0), maxima)
        if len(self._parts) == 1:
            values = self._run(0, states, None, totals, maxima.numpy())
            return Logits(values, torch.from_numpy(totals[0]), maxima)
        values = torch.empty(rows, self.vocabulary) if out is None else out[:rows]
        tasks = [
            partial(self._run, number, states, values.numpy(), totals, maxima.numpy())
            for number in range(len(self._parts))
        ]
        self._lanes.run(tasks, are_short=rows <= _FEW_ROWS)
        return Logits(values, torch.from_numpy(totals).logsumexp(dim=0), maxima)

    def _run(
        self, number: int, states: torch.Tensor, out: np.ndarray | None, totals: np.ndarray, maxima: np.ndarray
    ) -> torch.Tensor:
        """Compute one part of the vocabulary; without `out`, the result is computed in place."""
        part = self._parts[number]
        raw, scales = self._sessions[number].run({"hidden": states[None]})
        logits = raw.numpy() if out is None else out[:, part]
        blocks = slice(part.start // BLOCK, -(-part.stop // BLOCK))
        row_scales = scales.expand(len(raw), 1)[:, 0].numpy()
        finish_logits(raw.numpy(), row_scales, self._bias[part], logits, totals[number], maxima[:, blocks])
        return raw
