"""Compiled kernels: attention in a decoding step, and one pass over the logits.

The result of a row depends on nothing but the row. Callers divide the work between threads. All kernels are in this
file, because the cache of machine code does not notice changes of a kernel in another one.
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
        total: Any = 0.0
        for start in range(0, len(values), _PIECE):
            piece: Any = values[start : start + _PIECE]
            subtotal: Any = np.float32(0.0)
            for i in range(len(piece)):
                subtotal += _power_of_two((piece[i] - greatest) * _LOG2_E)
            total += subtotal
        log_totals[row] = np.float32(greatest + np.log(total))


@compiled(fastmath=_FASTMATH, error_model="numpy")
def _softmax(scores: Any) -> None:
    """Replace scores by their softmax."""
    greatest, total = scores[0], np.float32(0.0)
    for i in range(1, len(scores)):
        greatest = max(greatest, scores[i])
    for i in range(len(scores)):
        scores[i] = _power_of_two((scores[i] - greatest) * _LOG2_E)
    for i in range(len(scores)):
        total += scores[i]
    for i in range(len(scores)):
        scores[i] /= total


@compiled(fastmath=_FASTMATH, error_model="numpy")
def _dot(a: Any, b: Any) -> Any:
    total = np.float32(0.0)
    for i in range(len(a)):
        total += a[i] * b[i]
    return total


@compiled(fastmath=_FASTMATH, error_model="numpy")
def _add_scaled(total: Any, factor: Any, values: Any) -> None:
    for i in range(len(total)):
        total[i] += factor * values[i]


@compiled(fastmath=_FASTMATH, error_model="numpy")
def attend_past(projected: Any, keys: Any, values: Any, past: Any, first_slot: Any, out: Any) -> None:
    """Self-attention of hypotheses, each over its own past and itself.

    `projected` (rows, 3 · width) has queries, keys and values. The last two are written to the cache, `keys` and
    `values` (sentences, heads, slots, head width), from `first_slot` on. `past` (rows, steps) lists the slots of each
    row's past. The result goes to `out` (rows, width).
    """
    sentences, heads, _, size = keys.shape
    rows, steps = past.shape
    group, width = rows // sentences, heads * size
    scores = np.empty(steps + 1, np.float32)
    for sentence in range(sentences):
        for head in range(heads):
            start = head * size
            own_keys, own_values = keys[sentence, head], values[sentence, head]
            for member in range(group):
                row, slot = sentence * group + member, first_slot + member
                own = projected[row]
                own_keys[slot] = own[width + start : width + start + size]
                own_values[slot] = own[2 * width + start : 2 * width + start + size]
                query, slots = own[start : start + size], past[row]
                for step in range(steps):
                    scores[step] = _dot(query, own_keys[slots[step]])
                scores[steps] = _dot(query, own_keys[slot])
                _softmax(scores)
                total = out[row, start : start + size]
                total[:] = 0.0
                for step in range(steps):
                    _add_scaled(total, scores[step], own_values[slots[step]])
                _add_scaled(total, scores[steps], own_values[slot])


@compiled(fastmath=_FASTMATH, error_model="numpy")
def attend_source(queries: Any, keys: Any, values: Any, lengths: Any, out: Any) -> None:
    """Attention of `queries` (rows, width) over the first `lengths` positions of each sentence.

    `keys` and `values` are (sentences, heads, time, head width); the result goes to `out` (rows, width).
    """
    sentences, heads, time, size = keys.shape
    group = len(queries) // sentences
    weights = np.empty(time, np.float32)
    for sentence in range(sentences):
        length = lengths[sentence]
        scores = weights[:length]
        for head in range(heads):
            start = head * size
            own_keys, own_values = keys[sentence, head], values[sentence, head]
            for row in range(sentence * group, (sentence + 1) * group):
                query = queries[row, start : start + size]
                for place in range(length):
                    scores[place] = _dot(query, own_keys[place])
                _softmax(scores)
                total = out[row, start : start + size]
                total[:] = 0.0
                for place in range(length):
                    _add_scaled(total, scores[place], own_values[place])
