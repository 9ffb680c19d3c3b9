"""One pass over the logits: applies scale and bias, and computes what beam search needs to know about each row.

The result of a row depends on nothing but the row. Callers divide the rows between threads.
"""

from typing import Any

import numpy as np

from nearmt.compiled import compiled, float_of_bits
from nearmt.models.topk import BLOCK

_LOG2_E = np.float32(1.4426950408889634)
_LOWEST = np.float32(-126.0)  # the least exponent of a normal number
# 2^f for |f| ≤ 1/2: coefficients with the least relative error, 2e-7.
_C = tuple(np.float32(c) for c in (1.0, 0.69314718, 0.24022651, 0.05550411, 0.00961813, 0.00133336, 0.00015403))


_FASTMATH = {"arcp", "contract", "nnan", "nsz", "reassoc"}  # not ninf: logits may be masked
_LANES = 16  # adjacent values that are compared or added at once
_PIECE = 4096  # exponentials that are added in single precision


@compiled(fastmath=_FASTMATH, error_model="numpy")
def _power_of_two(exponent: Any) -> Any:
    """2^exponent for a number that is at most 0, as float32."""
    exponent = max(exponent, _LOWEST)
    whole = np.int32(exponent - np.float32(0.5))  # truncates towards 0, so it rounds to the nearest
    f = exponent - np.float32(whole)
    power = _C[0] + f * (_C[1] + f * (_C[2] + f * (_C[3] + f * (_C[4] + f * (_C[5] + f * _C[6])))))
    return power * float_of_bits((whole + np.int32(127)) << np.int32(23))


@compiled(fastmath=_FASTMATH, error_model="numpy")
def _block_maxima(values: Any, lanes: Any, maxima: Any) -> Any:
    """Fill `maxima` with the maximum of every block of a row; return the maximum of all."""
    greatest = np.float32(-np.inf)
    for block in range(len(maxima)):
        start = block * BLOCK
        if start + BLOCK <= len(values):
            for lane in range(_LANES):  # a plain loop over the block would not be vectorised
                peak = values[start + lane]
                for part in range(1, BLOCK // _LANES):
                    peak = max(peak, values[start + part * _LANES + lane])
                lanes[lane] = peak
            peak = lanes[0]
            for lane in range(1, _LANES):
                peak = max(peak, lanes[lane])
        else:
            peak = values[start]
            for i in range(start + 1, len(values)):
                peak = max(peak, values[i])
        maxima[block] = peak
        greatest = max(greatest, peak)
    return greatest


@compiled(fastmath=_FASTMATH, error_model="numpy")
def finish_logits(raw: Any, scales: Any, bias: Any, logits: Any, log_totals: Any, maxima: Any) -> None:
    """Fill `logits` (rows, vocabulary) with raw · scales + bias, row by row, each of which fits into the cache.

    Fills `log_totals` (rows,) with the log of the sum of the exponentials, and `maxima` (rows, blocks) with the maximum
    of each block of logits. The last block may be shorter.
    """
    lanes = np.empty(_LANES, np.float32)
    values = np.empty(raw.shape[1], np.float32)
    for row in range(len(raw)):
        given, scale = raw[row], scales[row]
        for i in range(len(values)):
            values[i] = given[i] * scale + bias[i]
        logits[row] = values
        greatest = _block_maxima(values, lanes, maxima[row])
        total = 0.0
        for start in range(0, len(values), _PIECE):
            piece, subtotal = values[start : start + _PIECE], np.float32(0.0)
            for i in range(len(piece)):
                subtotal += _power_of_two((piece[i] - greatest) * _LOG2_E)
            total += subtotal
        log_totals[row] = np.float32(greatest + np.log(total))
