"""Compiled loops that arrange keys of bytes in blocks, as compiled searches read them."""

import numpy as np

from nearmt.compiled import compiled
from nearmt.compiled.dots import LANES


@compiled(fastmath={"reassoc"})  # whole numbers, whose sum is exact up to 1,024 dimensions
def _norm(key):  # type: ignore[no-untyped-def]
    total = np.float32(0)
    for dim in range(len(key)):
        value = np.float32(key[dim])
        total += value * (value - np.float32(256))
    return total


@compiled
def gather(keys, values, starts, ends, slot, out_keys, out_norms, out_values, out_entries):  # type: ignore[no-untyped-def]
    """Copy ranges of entries, whose keys are bytes, to slots from `slot` on.

    out_keys (blocks, pairs of dimensions, 2 · LANES) has LANES keys in a block, two dimensions at a time. out_norms
    gets Σ (k² - 256 k) of each key.
    """
    for piece in range(len(starts)):
        for entry in range(starts[piece], ends[piece]):
            block, lane = slot // LANES, 2 * (slot % LANES)
            key = keys[entry]
            for dim in range(len(key)):
                out_keys[block, dim >> 1, lane + (dim & 1)] = key[dim]
            out_norms[slot] = _norm(key)
            out_values[slot] = values[entry]
            out_entries[slot] = entry
            slot += 1


@compiled
def arrange(keys, rows, slots, ids, out_keys, out_norms, out_ids):  # type: ignore[no-untyped-def]
    """Copy some keys of bytes to slots, arranged as `gather` does, with the ids of the rows."""
    for number in range(len(rows)):
        key, slot = keys[rows[number]], slots[number]
        block, lane = slot // LANES, 2 * (slot % LANES)
        for dim in range(len(key)):
            out_keys[block, dim >> 1, lane + (dim & 1)] = key[dim]
        out_norms[slot] = _norm(key)
        out_ids[slot] = ids[number]


@compiled
def only_allowed(begins, norms, ids, allowed, out_norms, sizes):  # type: ignore[no-untyped-def]
    """Copy the norms of arranged keys whose ids are allowed, and count these in each list; others stay as they are."""
    for number in range(len(sizes)):
        for slot in range(LANES * begins[number], LANES * begins[number + 1]):
            if norms[slot] < np.inf and allowed[ids[slot]]:
                out_norms[slot] = norms[slot]
                sizes[number] += 1
