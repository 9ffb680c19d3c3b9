"""Compiled search in subsets: the nearest entries of each row among the entries of its own sentences."""

import numpy as np

from nearmt.compiled import compiled
from nearmt.compiled.dots import LANES, ROWS, dots

_PROJECTED = 16  # rows together
_FARTHEST = 1e300  # greater than every distance, but not than that of an empty slot


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


@compiled(fastmath=True)
def project_rows(states, first_row, last_row, projection, lowest, factors, out):  # type: ignore[no-untyped-def]
    """out[row, :dims] = (states[row] · projection - lowest) · factors, for rows `first_row` … `last_row` - 1.

    Not a library's matrix product: its threads would wait actively and take the processor from the model's.
    """
    width, dims = projection.shape
    row = first_row
    while row < last_row:
        count = min(_PROJECTED, last_row - row)
        out[row : row + count, :dims] = 0
        for i in range(0, width - 3, 4):  # four at a time, so that sums are loaded and stored less often
            line0, line1, line2, line3 = projection[i], projection[i + 1], projection[i + 2], projection[i + 3]
            for number in range(row, row + count):
                target, state = out[number], states[number]
                f0, f1, f2, f3 = state[i], state[i + 1], state[i + 2], state[i + 3]
                for dim in range(dims):
                    target[dim] += f0 * line0[dim] + f1 * line1[dim] + f2 * line2[dim] + f3 * line3[dim]
        for i in range(width - width % 4, width):
            for number in range(row, row + count):
                for dim in range(dims):
                    out[number, dim] += states[number, i] * projection[i, dim]
        for number in range(row, row + count):
            for dim in range(dims):
                out[number, dim] = (out[number, dim] - lowest[dim]) * factors[dim]
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
def _bound(least, k, rounding):  # type: ignore[no-untyped-def]
    """No distance above it is among the k smallest: k blocks have one below, up to `rounding`."""
    if len(least) <= k:
        return _FARTHEST
    return np.float64(np.partition(least, k - 1)[k - 1]) + rounding


@compiled
def _nearest_of_blocks(norms, factor, products, least, bound, distances, places):  # type: ignore[no-untyped-def]
    """Find the nearest slots in the blocks that may have them. Returns how many were found."""
    k, found = len(distances), 0
    for block in range(len(norms) // LANES):
        if least[block] > bound:
            continue
        for lane in range(LANES * block, LANES * (block + 1)):
            distance = norms[lane] + np.float64(factor) * products[lane]
            if distance <= bound and (found < k or distance < distances[k - 1]):
                found = _insert(distance, lane, distances, places, found)
    return found


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
    most = (begins[1:] - begins[:-1]).max()
    group, products = np.zeros((ROWS, dims), np.int16), np.empty((ROWS, most), np.int32)
    factors, squares, least = np.zeros(ROWS, np.float32), np.zeros(ROWS), np.empty((ROWS, most // LANES), np.float32)
    best = np.empty(k)
    row = first_row
    while row < last_row:
        count = _num_together(row, last_row, subsets)
        for number in range(count):
            factor, squares[number] = _rounded(queries[row + number], limit, group[number])
            factors[number] = -2 / factor
        first, end = begins[subsets[row]], begins[subsets[row] + 1]
        num_blocks = (end - first) // LANES
        for block in range(num_blocks):
            dots(keys, norms, first // LANES + block, group, factors, products, least, block)
        for number in range(count):
            rounding = 2.0**-20 * (2.0**14 * dims + squares[number])  # of the sums with 32 bits in `least`
            bound = _bound(least[number, :num_blocks], k, rounding)
            found = _nearest_of_blocks(
                norms[first:end], factors[number], products[number], least[number], bound, best, places[row + number]
            )
            for slot in range(found):
                distances[row + number, slot] = max(best[slot] + squares[number], 0.0)
                places[row + number, slot] += first
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


@compiled
def look_up(first_row, last_row, places, values, probabilities, tokens, counts, found_probabilities):  # type: ignore[no-untyped-def]
    """Fill the rows with what stands in the slots that were found, and count these."""
    for row in range(first_row, last_row):
        count = 0
        while count < places.shape[1] and places[row, count] >= 0:
            place = places[row, count]
            tokens[row, count], found_probabilities[row, count] = values[place], probabilities[place]
            count += 1
        counts[row] = count
