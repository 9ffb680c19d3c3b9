"""Compiled mixtures: from neighbours to log-probabilities in one loop over the rows.

They compute what `weigh`, `damped` and `add_knn_mass` compute with tensors, which remain the reference and the code for
training and for other devices. For a few rows, the overhead of thirty small tensor operations is as large as a search.
"""

import numpy as np

from nearmt.compiled import compiled
from nearmt.models.topk import BLOCK

_SMALLEST_SHARE = np.float32(1e-30)
_SMALLEST_PROBABILITY = np.float32(2.0**-24)
_TINY = np.float32(1.1754944e-38)
_MAX_LOG_ODDS = np.float32(30.0)


@compiled
def count_distinct(tokens, found, counts):  # type: ignore[no-untyped-def]
    """counts[i] = number of distinct tokens among the first i + 1 of the neighbours that were found."""
    distinct = np.float32(0)
    for i in range(len(tokens)):
        if i < found:
            is_new = True
            for j in range(i):
                if tokens[j] == tokens[i]:
                    is_new = False
                    break
            if is_new:
                distinct += np.float32(1)
        counts[i] = distinct


@compiled
def repeat_last(row, found):  # type: ignore[no-untyped-def]
    """Repeat the last value that was found in the slots after it."""
    for i in range(found, len(row)):
        row[i] = row[found - 1]


@compiled
def tanh(value):  # type: ignore[no-untyped-def]
    """The hyperbolic tangent, to an absolute error of 1e-7, in a quarter of the time of the library's."""
    return np.float32(1) - np.float32(2) / (np.float32(1) + np.exp(np.float32(2) * value))


@compiled(fastmath={"reassoc", "contract", "nsz"})  # sums in any order, which is what makes them fast
def dense(inputs, weights, bias, out):  # type: ignore[no-untyped-def]
    """out = weights · inputs + bias."""
    for unit in range(len(out)):
        total = bias[unit]
        for i in range(len(inputs)):
            total += weights[unit, i] * inputs[i]
        out[unit] = total


@compiled
def damp(share, weights, found, distance, scale, slopes, offsets, stages, running):  # type: ignore[no-untyped-def]
    """Add a distance to the running sums, and damp the neighbours' weights; returns the model's share.

    `running` is the sum of log(1 + scale · d_1) and the number of tokens; without damping, `stages` is empty.
    """
    if not len(stages):
        return share
    if found:
        running[0] += np.float32(np.log1p(max(distance, np.float32(0)) * scale))
        running[1] += np.float32(1)
    stage = 0
    while stage + 1 < len(stages) and stages[stage + 1] <= running[1]:
        stage += 1
    mean = running[0] / max(running[1], np.float32(1))
    log_odds = min(max(mean * slopes[stage] - offsets[stage], np.float32(0)), _MAX_LOG_ODDS)
    kept = np.float32(np.exp(-log_odds))
    if kept < 1:
        factor = kept / (share + (1 - share) * kept)
        for i in range(len(weights)):
            weights[i] *= factor
        share = 1 - (1 - share) * factor
    return np.float32(share)


@compiled
def add_mass(share, weights, tokens, found, values, shift, maxima):  # type: ignore[no-untyped-def]
    """Add the neighbours' weights to the values of their tokens; returns the new shift of the row.

    log p = value + shift before, and value + new shift afterwards, for every token of the vocabulary.
    """
    log_share = np.float32(np.log(max(share, _SMALLEST_SHARE)))
    for i in range(found):
        mass = np.float32(0)
        is_first = True
        for j in range(found):
            if tokens[j] == tokens[i]:
                if j < i:
                    is_first = False
                    break
                mass += weights[j]
        if is_first and mass > 0:
            added = np.float32(np.log(mass)) - log_share - shift
            value = values[tokens[i]]
            high, low = max(value, added), min(value, added)
            value = high + np.float32(np.log1p(np.exp(low - high)))
            values[tokens[i]] = value
            if len(maxima):
                block = tokens[i] // BLOCK
                maxima[block] = max(maxima[block], value)
    return shift + log_share


@compiled
def _sized_weights(distances, found, probabilities, sizes, temperature, weights):  # type: ignore[no-untyped-def]
    """w_i = e_i · Σ_{k≥i} p(k)/Z_k, with e_i = exp(-(d_i - d_1)/T) of the neighbours that were found."""
    total = np.float32(0)
    size = 1
    for i in range(len(weights)):
        weights[i] = np.float32(np.exp((distances[0] - distances[i]) / temperature)) if i < found else np.float32(0)
    share_from = np.zeros(len(weights), np.float32)
    for i in range(len(weights)):
        total += weights[i]
        while size < len(sizes) and sizes[size] == i + 1:
            share_from[i] += probabilities[size] / max(total, _TINY)
            size += 1
    share = np.float32(0)
    for i in range(len(weights) - 1, -1, -1):
        share += share_from[i]
        weights[i] *= share


@compiled
def mix_sizes(first, last, neighbors, logits, network, sizes, temperature, damping, running):  # type: ignore[no-untyped-def]
    """Vanilla, uniform and Meta-k. `network` has a hidden layer, or only fixed probabilities of the sizes.

    neighbors: distances (rows, K), tokens (rows, K), numbers found (rows,). logits: values (rows, vocabulary), shifts
    (rows,), maxima (rows, blocks), all changed in place.
    """
    distances, tokens, counted = neighbors
    values, shifts, maxima = logits
    scale, uses_distances, uses_counts, w1, b1, w2, b2 = network
    damping_scale, slopes, offsets, stages = damping
    k = tokens.shape[1]
    inputs, hidden, probabilities = np.zeros(w1.shape[1], np.float32), np.zeros_like(b1), b2.copy()
    weights, row_distances, counts = np.zeros(k, np.float32), np.zeros(k, np.float32), np.zeros(k, np.float32)
    for row in range(first, last):
        found = counted[row]
        if not found:
            continue
        row_distances[:] = distances[row]
        repeat_last(row_distances, found)
        if len(hidden):
            at = 0
            if uses_distances:
                inputs[:k] = row_distances * scale
                at = k
            if uses_counts:
                count_distinct(tokens[row], found, counts)
                inputs[at:] = counts
            dense(inputs, w1, b1, hidden)
            for unit in range(len(hidden)):
                hidden[unit] = tanh(hidden[unit])
            dense(hidden, w2, b2, probabilities)
            highest, total = probabilities.max(), np.float32(0)
            for i in range(len(probabilities)):
                probabilities[i] = np.exp(probabilities[i] - highest)
                total += probabilities[i]
            probabilities /= total
        _sized_weights(row_distances, found, probabilities, sizes, temperature, weights)
        share = damp(
            probabilities[0], weights, found, row_distances[0], damping_scale, slopes, offsets, stages, running[row]
        )
        shifts[row] = add_mass(share, weights, tokens[row], found, values[row], shifts[row], maxima[row])


@compiled
def mix_robust(first, last, neighbors, logits, stored, top, network, damping, running):  # type: ignore[no-untyped-def]
    """Robust kNN-MT. `stored` (rows, K) are the probabilities at the keys, `top` (rows, 8) the highest logits."""
    distances, tokens, counted = neighbors
    values, shifts, maxima = logits
    scale, w1, b1, w2, b2, c1, d1, c2, d2, confidence, confidence_bias = network
    damping_scale, slopes, offsets, stages = damping
    k, num_top = tokens.shape[1], top.shape[1]
    inputs, hidden, scores = np.zeros(2 * k, np.float32), np.zeros_like(b1), np.zeros(2, np.float32)
    row_distances, weights = np.zeros(k, np.float32), np.zeros(k, np.float32)
    at_key, at_query = np.zeros(k, np.float32), np.zeros(k, np.float32)
    lowest = np.float32(np.log(_SMALLEST_PROBABILITY))
    for row in range(first, last):
        found = counted[row]
        if not found:
            continue
        row_distances[:] = distances[row]
        repeat_last(row_distances, found)
        row_distances *= scale
        inputs[:k] = row_distances
        count_distinct(tokens[row], found, inputs[k:])
        dense(inputs, w1, b1, hidden)
        for unit in range(len(hidden)):
            hidden[unit] = tanh(hidden[unit])
        dense(hidden, w2, b2, scores)
        for i in range(found):
            at_key[i] = np.log(max(np.float32(stored[row, i]), _SMALLEST_PROBABILITY))
            at_query[i] = max(values[row, tokens[row, i]] + shifts[row], lowest)
        repeat_last(at_key, found)
        repeat_last(at_query, found)
        model_score = confidence_bias
        for i in range(num_top):
            model_score += confidence[i] * max(top[row, i] + shifts[row], lowest)
        inverse_temperature = 1 / (1 + np.exp(-scores[1]))
        highest = np.float32(-np.inf)
        for i in range(k):
            model_score += confidence[num_top + i] * at_key[i] + confidence[num_top + k + i] * at_query[i]
            calibration = d2
            for unit in range(len(d1)):
                calibration += c2[unit] * tanh(c1[unit, 0] * at_key[i] + c1[unit, 1] * at_query[i] + d1[unit])
            weights[i] = (row_distances[0] - row_distances[i]) * inverse_temperature + calibration
            if i < found:
                highest = max(highest, weights[i])
        total = np.float32(0)
        for i in range(k):
            weights[i] = np.exp(weights[i] - highest) if i < found else np.float32(0)
            total += weights[i]
        logit = scores[0] - model_score
        share = np.float32(1 / (1 + np.exp(logit)))
        weights *= np.float32(1 / (1 + np.exp(-logit))) / total
        share = damp(share, weights, found, distances[row, 0], damping_scale, slopes, offsets, stages, running[row])
        shifts[row] = add_mass(share, weights, tokens[row], found, values[row], shifts[row], maxima[row])
