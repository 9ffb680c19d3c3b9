"""Compiled search in subsets: the nearest entries of each row among the entries of its own sentences."""

import numpy as np

from nearmt.compiled import compiled
from nearmt.compiled.dots import LANES, ROWS, dots


@compiled
def gather(keys, values, starts, ends, slot, out_keys, out_norms, out_values, out_entries):  # type: ignore[no-untyped-def]
    """Copy ranges of entries, whose keys are bytes, to slots from `slot` on.

    out_keys (blocks, pairs of dimensions, 2 · LANES) has LANES keys in a block, two dimensions at a time. out_norms
    gets Σ (k² - 256 k) of each key.
    """
    dims = keys.shape[1]
    for piece in range(len(starts)):
        for entry in range(starts[piece], ends[piece]):
            block, lane = slot // LANES, 2 * (slot % LANES)
            norm = np.int64(0)
            for dim in range(dims):
                key = np.int64(keys[entry, dim])
                out_keys[block, dim >> 1, lane + (dim & 1)] = key
                norm += key * (key - 256)
            out_norms[slot] = norm
            out_values[slot] = values[entry]
            out_entries[slot] = entry
            slot += 1


@compiled(fastmath=True)
def project_rows(states, first_row, last_row, projection, lowest, factors, out):  # type: ignore[no-untyped-def]
    """out[row, :dims] = (states[row] · projection - lowest) · factors, for rows `first_row` … `last_row` - 1.

    Not a library's matrix product: its threads would wait actively and take the processor from the model's.
    """
    width, dims = projection.shape
    row = first_row
    while row < last_row:
        count = min(ROWS, last_row - row)
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


@compiled
def _insert(distance, place, distances, places, found):  # type: ignore[no-untyped-def]
    """Insert into a sorted row; of equal distances the one inserted first stays first. Returns the number found."""
    k = len(distances)
    slot = found if found < k else k - 1
    while slot > 0 and distances[slot - 1] > distance:
        distances[slot], places[slot] = distances[slot - 1], places[slot - 1]
        slot -= 1
    distances[slot], places[slot] = distance, place
    return min(found + 1, k)


@compiled
def _num_together(row, last_row, subsets):  # type: ignore[no-untyped-def]
    """How many rows from `row` on belong to one subset, at most ROWS."""
    count = 1
    while count < ROWS and row + count < last_row and subsets[row + count] == subsets[row]:
        count += 1
    return count


@compiled
def _rounded(query, limit, out):  # type: ignore[no-untyped-def]
    """Fill `out` with 16-bit multiples of a query less 128. Returns the factor, and the square of the rounded query."""
    greatest = 1.0
    for dim in range(len(query)):
        greatest = max(greatest, abs(query[dim] - 128.0))
    factor = 2.0 ** np.floor(np.log2(limit / greatest))  # a power of two, so that whole numbers stay exact
    square = 0.0
    for dim in range(len(query)):
        level = np.rint((query[dim] - 128.0) * factor)
        out[dim] = np.int16(level)
        square += (level / factor + 128) ** 2
    return factor, square


@compiled
def nearest_codes(queries, first_row, last_row, subsets, begins, keys, norms, distances, places):  # type: ignore[no-untyped-def]
    """The nearest of keys that `gather` arranged, for rows `first_row` … `last_row` - 1, by their slots, nearest first.

    queries (rows, dims) are in the units of the keys. Row i searches the slots from begins[s] to begins[s + 1], with
    s = subsets[i], both multiples of LANES; rows of one subset are adjacent. Only the query is rounded, to about a
    hundredth of a unit; Σ (q - k)² is then exact, as Σ q² + Σ (k² - 256 k) - 2 Σ (q - 128) k. Norms of empty slots are
    infinite. Slots of the result that stay empty are left as they are.
    """
    dims, k = 2 * keys.shape[1], distances.shape[1]
    limit = min(32767.0, (2.0**31 - 1) / (255 * dims))  # so that no sum of products exceeds 32 bits
    group, products = np.zeros((ROWS, dims), np.int16), np.empty((ROWS, LANES), np.int32)
    factors, squares = np.zeros(ROWS), np.zeros(ROWS)
    found, farthest = np.zeros(ROWS, np.int64), np.empty(ROWS)
    best, sums = np.empty((ROWS, k)), np.empty(LANES)
    row = first_row
    while row < last_row:
        count = _num_together(row, last_row, subsets)
        for number in range(count):
            factor, squares[number] = _rounded(queries[row + number], limit, group[number])
            factors[number] = -2 / factor
        found[:], farthest[:] = 0, np.inf
        for block in range(begins[subsets[row]] // LANES, begins[subsets[row] + 1] // LANES):
            dots(keys, block, group, products)
            for number in range(count):
                least = np.inf
                for lane in range(LANES):
                    sums[lane] = norms[LANES * block + lane] + factors[number] * products[number, lane]
                    least = min(least, sums[lane])
                if not least < farthest[number]:
                    continue
                for lane in range(LANES):
                    if sums[lane] < farthest[number]:
                        found[number] = _insert(
                            sums[lane], LANES * block + lane, best[number], places[row + number], found[number]
                        )
                        if found[number] == k:
                            farthest[number] = best[number, k - 1]
        for number in range(count):
            for slot in range(found[number]):
                distances[row + number, slot] = max(best[number, slot] + squares[number], 0.0)
        row += count


@compiled(fastmath={"reassoc", "contract", "nsz"})  # sums in any order, but infinity counts
def nearest_floats(queries, first_row, last_row, subsets, begins, keys, distances, places):  # type: ignore[no-untyped-def]
    """The same for keys (slots, dims) of type float32, as they are."""
    k = distances.shape[1]
    for row in range(first_row, last_row):
        found, query = 0, queries[row]
        for slot in range(begins[subsets[row]], begins[subsets[row] + 1]):
            distance = np.float32(0)
            for dim in range(len(query)):
                difference = query[dim] - keys[slot, dim]
                distance += difference * difference
            if found < k or distance < distances[row, k - 1]:
                found = _insert(distance, slot, distances[row], places[row], found)
