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
def _attend(query: Any, keys: Any, values: Any, places: Any, scores: Any, out: Any) -> None:
    """The attention of one query over some places of `keys` and `values` (time, size); fills `scores` and `out`.

    Four places at a time, because a loop over the few numbers of one place is mostly overhead.
    """
    count = len(places)
    whole = count - count % 4
    for n in range(0, whole, 4):
        a, b, c, d = keys[places[n]], keys[places[n + 1]], keys[places[n + 2]], keys[places[n + 3]]
        sum_a, sum_b, sum_c, sum_d = np.float32(0.0), np.float32(0.0), np.float32(0.0), np.float32(0.0)
        for i in range(len(query)):
            sum_a += query[i] * a[i]
            sum_b += query[i] * b[i]
            sum_c += query[i] * c[i]
            sum_d += query[i] * d[i]
        scores[n], scores[n + 1], scores[n + 2], scores[n + 3] = sum_a, sum_b, sum_c, sum_d
    for n in range(whole, count):
        scores[n] = _dot(query, keys[places[n]])
    _softmax(scores[:count])
    out[:] = np.float32(0.0)
    for n in range(0, whole, 4):
        a, b, c, d = values[places[n]], values[places[n + 1]], values[places[n + 2]], values[places[n + 3]]
        w, x, y, z = scores[n], scores[n + 1], scores[n + 2], scores[n + 3]
        for i in range(len(out)):
            out[i] += w * a[i] + x * b[i] + y * c[i] + z * d[i]
    for n in range(whole, count):
        own, weight = values[places[n]], scores[n]
        for i in range(len(out)):
            out[i] += weight * own[i]


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
    places = np.empty(steps + 1, np.int64)
    for sentence in range(sentences):
        for head in range(heads):
            start = head * size
            own_keys, own_values = keys[sentence, head], values[sentence, head]
            for member in range(group):
                row, slot = sentence * group + member, first_slot + member
                own = projected[row]
                own_keys[slot] = own[width + start : width + start + size]
                own_values[slot] = own[2 * width + start : 2 * width + start + size]
                places[:steps] = past[row]
                places[steps] = slot
                query, target = own[start : start + size], out[row, start : start + size]
                _attend(query, own_keys, own_values, places, scores, target)


@compiled(fastmath=_FASTMATH, error_model="numpy")
def attend_source(queries: Any, keys: Any, values: Any, lengths: Any, out: Any) -> None:
    """Attention of `queries` (rows, width) over the first `lengths` positions of each sentence.

    `keys` and `values` are (sentences, heads, time, head width); the result goes to `out` (rows, width).
    """
    sentences, heads, time, size = keys.shape
    group = len(queries) // sentences
    scores = np.empty(time, np.float32)
    places = np.arange(time)
    for sentence in range(sentences):
        seen = places[: lengths[sentence]]
        for head in range(heads):
            start = head * size
            own_keys, own_values = keys[sentence, head], values[sentence, head]
            for row in range(sentence * group, (sentence + 1) * group):
                query, target = queries[row, start : start + size], out[row, start : start + size]
                _attend(query, own_keys, own_values, seen, scores, target)
