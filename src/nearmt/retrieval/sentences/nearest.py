"""Compiled search in subsets: the nearest entries of each row among the entries of its own sentences."""

import numpy as np

from nearmt.compiled import compiled

BLOCK = 64  # dimensions that are compared at a time; keys are padded to a multiple
_ROWS = 4  # rows of one subset that are compared with a key at a time, as many as a usual beam has
_KEYS = 256  # that stay in the processor's cache while all rows are compared with them


@compiled
def gather(keys, values, starts, ends, out_keys, out_values, out_entries, at):  # type: ignore[no-untyped-def]
    """Copy ranges of entries, one after the other, to places from `at` on. Returns the place after the last."""
    dims = keys.shape[1]
    for piece in range(len(starts)):
        start, end = starts[piece], ends[piece]
        out_keys[at : at + end - start, :dims] = keys[start:end]
        out_values[at : at + end - start] = values[start:end]
        for entry in range(start, end):
            out_entries[at] = entry
            at += 1
    return at


@compiled(fastmath=True)
def project_rows(states, first_row, last_row, projection, lowest, factors, out):  # type: ignore[no-untyped-def]
    """out[row, :dims] = (states[row] · projection - lowest) · factors, for rows `first_row` … `last_row` - 1.

    Not a library's matrix product: its threads would wait actively and take the processor from the model's.
    """
    width, dims = projection.shape
    row = first_row
    while row < last_row:
        count = min(_ROWS, last_row - row)
        out[row : row + count, :dims] = 0
        for i in range(width):
            line = projection[i]
            for number in range(count):
                target, factor = out[row + number], states[row + number, i]
                for dim in range(dims):
                    target[dim] += factor * line[dim]
        for number in range(count):
            for dim in range(dims):
                out[row + number, dim] = (out[row + number, dim] - lowest[dim]) * factors[dim]
        row += count


@compiled(fastmath=True)
def _first_blocks(queries, keys, start, count, out):  # type: ignore[no-untyped-def]
    """Squared distances of four queries from `count` keys in the first dimensions; (4, count)."""
    for number in range(count):
        first, second, third, fourth = np.float32(0), np.float32(0), np.float32(0), np.float32(0)
        for dim in range(BLOCK):  # a constant, so that the loop becomes a few vector instructions
            key = np.float32(keys[start + number, dim])
            first += (queries[0, dim] - key) * (queries[0, dim] - key)
            second += (queries[1, dim] - key) * (queries[1, dim] - key)
            third += (queries[2, dim] - key) * (queries[2, dim] - key)
            fourth += (queries[3, dim] - key) * (queries[3, dim] - key)
        out[0, number], out[1, number], out[2, number], out[3, number] = first, second, third, fourth


@compiled(fastmath={"reassoc", "contract", "nsz"})  # sums in any order, but infinity counts
def nearest_places(queries, first_row, last_row, subsets, begins, keys, distances, places):  # type: ignore[no-untyped-def]
    """The nearest keys of rows `first_row` … `last_row` - 1, by their places, nearest first.

    queries (rows, dims) are in the units of the keys, and dims is a multiple of BLOCK. Row i searches the places from
    begins[s] to begins[s + 1], with s = subsets[i]; rows of one subset are adjacent. Reduced keys have their dimensions
    in order of variance, so the first block rules most keys out. Slots that stay empty are left as they are.
    """
    dims, k = keys.shape[1], distances.shape[1]
    group = np.empty((_ROWS, dims), np.float32)
    partial = np.empty((_ROWS, _KEYS), np.float32)
    found, limits = np.zeros(_ROWS, np.int64), np.empty(_ROWS, np.float32)
    row = first_row
    while row < last_row:
        count = 1
        while count < _ROWS and row + count < last_row and subsets[row + count] == subsets[row]:
            count += 1
        for number in range(_ROWS):
            group[number] = queries[row + min(number, count - 1)]
        found[:], limits[:] = 0, np.inf
        start, end = begins[subsets[row]], begins[subsets[row] + 1]
        while start < end:
            size = min(_KEYS, end - start)
            _first_blocks(group, keys, start, size, partial)
            for number in range(count):
                target = row + number
                for at in range(size):
                    if partial[number, at] >= limits[number]:
                        continue
                    distance = np.float32(0)
                    for dim in range(BLOCK, dims):
                        difference = group[number, dim] - np.float32(keys[start + at, dim])
                        distance += difference * difference
                    distance += partial[number, at]
                    if distance >= limits[number]:
                        continue
                    # Insert into the sorted row; of equal distances the one inserted first stays first.
                    slot = found[number] if found[number] < k else k - 1
                    while slot > 0 and distances[target, slot - 1] > distance:
                        distances[target, slot] = distances[target, slot - 1]
                        places[target, slot] = places[target, slot - 1]
                        slot -= 1
                    distances[target, slot] = distance
                    places[target, slot] = start + at
                    found[number] = min(found[number] + 1, k)
                    if found[number] == k:
                        limits[number] = distances[target, k - 1]
            start += size
        row += count
