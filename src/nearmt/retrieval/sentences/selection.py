"""Compiled loops of the sentence index: which sentences share n-grams with a text, and which few cover it best."""

import numpy as np

from nearmt.compiled import compiled

_NOTHING = 1e-12  # a gain that is only what rounding has left
MAX_ORDER = 4  # longest n-gram that counts when sentences are compared
_SUM, _FACTOR, _MASK, _SHIFT = np.uint64(0x9E3779B9), np.uint64(0x85EBCA6B), np.uint64(0xFFFFFFFF), np.uint64(15)
_SPREAD, _HALF = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)


@compiled
def _extended(prefix, term):  # type: ignore[no-untyped-def]
    """The 32-bit hash of an n-gram, from that of its prefix and its last term; the empty prefix is 0."""
    mixed = ((np.uint64(prefix) ^ np.uint64(term)) * _FACTOR + _SUM) & _MASK
    return mixed ^ (mixed >> _SHIFT)


@compiled
def indexed_ngrams(terms, starts):  # type: ignore[no-untyped-def]
    """The unigrams and bigrams of texts: one number each, with the hash in its high 32 bits and the text in the low."""
    out = np.empty(2 * len(terms), np.uint64)
    at = 0
    for text in range(len(starts) - 1):
        before = np.uint64(0)
        for place in range(starts[text], starts[text + 1]):
            single = _extended(np.uint64(0), terms[place])
            out[at] = (single << np.uint64(32)) | np.uint64(text)
            at += 1
            if place > starts[text]:
                out[at] = (_extended(before, terms[place]) << np.uint64(32)) | np.uint64(text)
                at += 1
            before = single
    return out[:at]


@compiled
def score_table(count):  # type: ignore[no-untyped-def]
    """An open hash table for the scores of up to `count` sentences: their ids (-1: none), and their scores."""
    size = 64
    while size < 2 * count:
        size *= 2
    return np.full(size, -1, np.int64), np.zeros(size, np.float32)


@compiled
def add_scores(begins, ends, weights, postings, first, ids, scores):  # type: ignore[no-untyped-def]
    """Add the weight of each n-gram to the sentences of one segment that have it, in a table of scores."""
    mask = len(ids) - 1
    for ngram in range(len(begins)):
        weight = weights[ngram]
        for at in range(begins[ngram], ends[ngram]):
            sentence = first + np.int64(postings[at])
            slot = np.int64((np.uint64(sentence) * _SPREAD) >> _HALF) & mask
            while ids[slot] >= 0 and ids[slot] != sentence:
                slot = (slot + 1) & mask
            ids[slot] = sentence
            scores[slot] += weight


@compiled
def ngram_table(terms):  # type: ignore[no-untyped-def]
    """An open hash table of a text's n-grams: their hashes, their numbers (-1: no n-gram), and how many there are."""
    size = 64
    while size < 4 * MAX_ORDER * len(terms):
        size *= 2
    hashes, numbers = np.zeros(size, np.uint64), np.full(size, -1, np.int32)
    count = 0
    for start in range(len(terms)):
        value = np.uint64(0)
        for place in range(start, min(start + MAX_ORDER, len(terms))):
            value = _extended(value, terms[place])
            slot = np.int64(value) & (size - 1)
            while numbers[slot] >= 0 and hashes[slot] != value:
                slot = (slot + 1) & (size - 1)
            if numbers[slot] < 0:
                hashes[slot], numbers[slot] = value, count
                count += 1
    return hashes, numbers, count


@compiled
def _number_of(value, hashes, numbers):  # type: ignore[no-untyped-def]
    slot = np.int64(value) & (len(hashes) - 1)
    while numbers[slot] >= 0:
        if hashes[slot] == value:
            return numbers[slot]
        slot = (slot + 1) & (len(hashes) - 1)
    return np.int32(-1)


@compiled
def shared_ngrams(candidates, terms, starts, hashes, numbers, num_ngrams):  # type: ignore[no-untyped-def]
    """The n-grams that each candidate shares with a text: their numbers, and how many each candidate has."""
    shared = np.empty(len(candidates) * num_ngrams, np.int32)
    counts = np.zeros(len(candidates), np.int64)
    seen = np.full(num_ngrams, -1, np.int64)
    at = 0
    for candidate in range(len(candidates)):
        before = at
        end = starts[candidates[candidate] + 1]
        for start in range(starts[candidates[candidate]], end):
            value = np.uint64(0)
            for place in range(start, min(start + MAX_ORDER, end)):
                value = _extended(value, terms[place])
                ngram = _number_of(value, hashes, numbers)
                if ngram < 0:
                    break
                if seen[ngram] != candidate:
                    seen[ngram] = candidate
                    shared[at] = ngram
                    at += 1
        counts[candidate] = at - before
    return shared[:at], counts


@compiled
def _gain(candidate, firsts, shared, values, cost):  # type: ignore[no-untyped-def]
    """What a candidate would add for its cost."""
    total = 0.0
    for at in range(firsts[candidate], firsts[candidate + 1]):
        total += values[shared[at]]
    return total / cost


@compiled
def _comes_first(one, other, gains):  # type: ignore[no-untyped-def]
    return gains[one] > gains[other] or (gains[one] == gains[other] and one > other)


@compiled
def _sift_down(heap, gains, place, length):  # type: ignore[no-untyped-def]
    """Restore the heap order below one place: largest gain first, and of equal gains the last candidate."""
    candidate = heap[place]
    while True:
        child = 2 * place + 1
        if child >= length:
            break
        if child + 1 < length and _comes_first(heap[child + 1], heap[child], gains):
            child += 1
        if not _comes_first(heap[child], candidate, gains):
            break
        heap[place] = heap[child]
        place = child
    heap[place] = candidate


@compiled
def cover(shared, counts, weights, costs, decay, max_cost):  # type: ignore[no-untyped-def]
    """Choose candidates one by one, each time the one that adds most for its cost; of equals the last, the newest.

    An n-gram counts `decay` times as much each time that it is covered. What a candidate would add can only shrink, so
    it is computed again only for those that come first in the heap. Ends when the cost is reached. Returns the chosen
    candidates.
    """
    total = len(counts)
    values, firsts = weights.astype(np.float64), np.zeros(total + 1, np.int64)
    firsts[1:] = np.cumsum(counts)
    gains, heap = np.zeros(total), np.arange(total)
    for candidate in range(total):
        gains[candidate] = _gain(candidate, firsts, shared, values, costs[candidate])
    for place in range(total // 2 - 1, -1, -1):
        _sift_down(heap, gains, place, total)
    chosen = np.empty(total, np.int64)
    count, spent, length = 0, 0, total
    while length and spent < max_cost:
        best = heap[0]
        gain = _gain(best, firsts, shared, values, costs[best])
        if gain < gains[best]:
            gains[best] = gain
            _sift_down(heap, gains, 0, length)
            continue
        if not gain > _NOTHING:
            break
        chosen[count] = best
        count += 1
        spent += costs[best]
        for at in range(firsts[best], firsts[best + 1]):
            values[shared[at]] *= decay
        length -= 1
        heap[0] = heap[length]
        _sift_down(heap, gains, 0, length)
    return chosen[:count]
