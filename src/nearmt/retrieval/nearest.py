"""Compiled search: the nearest entries of each row among those of its own sentences, or of the lists nearest to it."""

import numpy as np

from nearmt.compiled import compiled
from nearmt.compiled.dots import LANES, ROWS, dots

_HALVINGS, _ENOUGH = 16, 4  # the search for a threshold ends with so many values more than needed


@compiled
def _insert(distance, place, distances, places, found):  # type: ignore[no-untyped-def]
    """Insert into a row that is sorted by distance, then by place. Returns the number found."""
    k = len(distances)
    slot = found if found < k else k - 1
    while slot > 0 and distances[slot - 1] > distance:
        distances[slot], places[slot] = distances[slot - 1], places[slot - 1]
        slot -= 1
    while slot > 0 and distances[slot - 1] == distance and places[slot - 1] > place:
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
def _round_rows(queries, row, count, group, factors, squares):  # type: ignore[no-untyped-def]
    """Round `count` queries from `row` on. Returns the error of distances in single precision."""
    limit = min(32767.0, (2.0**31 - 1) / (255 * group.shape[1]))  # so that no sum of products exceeds 32 bits
    for number in range(count):
        factor, squares[number] = _rounded(queries[row + number], limit, group[number])
        factors[number] = -2 / factor
    return 2.0**-20 * (2.0**14 * group.shape[1] + squares[:count].max())


@compiled
def _workspace(blocks):  # type: ignore[no-untyped-def]
    """Arrays for at most so many blocks: products, least distances, norms and ids; the rest is for `_best`."""
    return (
        np.empty((ROWS, LANES * blocks), np.int32),
        np.empty((ROWS, blocks), np.float32),
        np.empty(LANES * blocks, np.float32),
        np.empty(LANES * blocks, np.int64),
        np.empty(LANES * blocks, np.float32),
        np.empty(blocks, np.int64),
    )


@compiled
def _score(keys, norms, ids, first, end, rows, group, factors, work, place):  # type: ignore[no-untyped-def]
    """Compare four queries with blocks, from `place` on; `rows` has a bit for each query that they belong to.

    Without `ids`, slots have their own numbers.
    """
    products, least, own_norms, own_ids, _, _ = work
    for block in range(first, end):
        dots(keys, norms, block, group, factors, products, least, place)
        for number in range(ROWS):
            if not (rows >> number) & 1:
                least[number, place] = np.inf
        for lane in range(LANES):
            own_norms[LANES * place + lane] = norms[LANES * block + lane]
            own_ids[LANES * place + lane] = ids[LANES * block + lane] if len(ids) else LANES * block + lane
        place += 1
    return place


@compiled
def _threshold(values, k):  # type: ignore[no-untyped-def]
    """A number that at least `k` of some values do not exceed, and not many more; infinite if fewer are finite."""
    lowest, highest, finite = np.float32(np.inf), np.float32(-np.inf), np.int32(0)
    for i in range(len(values)):
        is_finite = values[i] < np.inf
        lowest = min(lowest, values[i])
        highest = max(highest, values[i] if is_finite else np.float32(-np.inf))
        finite += np.int32(is_finite)
    if finite < k:
        return np.float32(np.inf)
    for _ in range(_HALVINGS):
        middle = np.float32(0.5) * (lowest + highest)
        count = np.int32(0)
        for i in range(len(values)):
            count += np.int32(values[i] <= middle)
        if count < k:
            lowest = middle
        else:
            highest = middle
            if count <= k + _ENOUGH:
                break
    return highest


@compiled
def _best(number, places, factor, rounding, work, distances, found_ids):  # type: ignore[no-untyped-def]
    """Find the nearest ids for one of four queries in some blocks, of which `work` has the products and so on.

    First the least distance of every block tells which blocks may have one of them, then single precision which slots.
    Of equal distances, the lower id comes first. Returns how many were found.
    """
    products, least, norms, ids, near, kept = work
    k, count, found = len(distances), 0, 0
    bound = _threshold(least[number, :places], k) + rounding
    for place in range(places):
        if least[number, place] <= bound and least[number, place] < np.inf:
            kept[count] = place
            for lane in range(LANES):
                product = np.float32(products[number, LANES * place + lane])
                near[LANES * count + lane] = norms[LANES * place + lane] + factor * product
            count += 1
    bound = _threshold(near[: LANES * count], k) + rounding
    for i in range(LANES * count):
        if near[i] <= bound and near[i] < np.inf:
            slot = LANES * kept[i // LANES] + i % LANES
            distance = norms[slot] + np.float64(factor) * products[number, slot]
            if (
                found < k
                or distance < distances[k - 1]
                or (distance == distances[k - 1] and ids[slot] < found_ids[k - 1])
            ):
                found = _insert(distance, ids[slot], distances, found_ids, found)
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
    work = _workspace(max((begins[1:] - begins[:-1]).max() // LANES, 1))
    group, factors, squares = np.zeros((ROWS, dims), np.int16), np.zeros(ROWS, np.float32), np.zeros(ROWS)
    best, none = np.empty(k), np.empty(0, np.int64)
    row = first_row
    while row < last_row:
        count = _num_together(row, last_row, subsets)
        rounding = _round_rows(queries, row, count, group, factors, squares)
        first, end = begins[subsets[row]], begins[subsets[row] + 1]
        everyone = (1 << count) - 1
        _score(keys, norms, none, first // LANES, end // LANES, everyone, group, factors, work, 0)
        for number in range(count):
            blocks = (end - first) // LANES
            found = _best(number, blocks, factors[number], rounding, work, best, places[row + number])
            for slot in range(found):
                distances[row + number, slot] = max(best[slot] + squares[number], 0.0)
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
def _nearest_lists(count, probes, clusters, group, factors, rounding, of_group, work, best, found_ids, chosen):  # type: ignore[no-untyped-def]
    """Fill `chosen` (ROWS, probed lists) with the nearest lists of each query, -1 where there are fewer."""
    group_keys, group_norms, begins, keys, norms, numbers = clusters
    everyone, none = (1 << count) - 1, np.empty(0, np.int64)
    if len(of_group) <= probes[0]:
        of_group[:] = everyone
    else:
        of_group[:] = 0
        places = _score(group_keys, group_norms, none, 0, len(group_keys), everyone, group, factors, work, 0)
        for number in range(count):
            found = _best(number, places, factors[number], rounding, work, best[: probes[0]], found_ids)
            for i in range(found):
                of_group[found_ids[i]] |= 1 << number
    places = 0
    for number in range(len(of_group)):
        if of_group[number]:
            first, end = begins[number], begins[number + 1]
            places = _score(keys, norms, numbers, first, end, of_group[number], group, factors, work, places)
    chosen[:] = -1
    for number in range(count):
        _best(number, places, factors[number], rounding, work, best[: probes[1]], chosen[number])


@compiled
def _in_order(chosen, count, touched, rows):  # type: ignore[no-untyped-def]
    """Fill `touched` with the lists that were chosen, each once, and `rows` with a bit for each query that chose it.

    Returns the number of lists.
    """
    num_chosen = 0
    for number in range(count):
        for place in range(chosen.shape[1]):
            if chosen[number, place] >= 0:
                touched[num_chosen] = ROWS * chosen[number, place] + number
                num_chosen += 1
    touched[:num_chosen].sort()
    num_lists = 0
    for place in range(num_chosen):
        number, row = touched[place] // ROWS, touched[place] % ROWS
        if num_lists and touched[num_lists - 1] == number:
            rows[num_lists - 1] |= 1 << row
        else:
            touched[num_lists], rows[num_lists] = number, 1 << row
            num_lists += 1
    return num_lists


@compiled
def nearest_lists(queries, first_row, last_row, num_groups, clusters, found):  # type: ignore[no-untyped-def]
    """Fill `found` (rows,) with the nearest list of each row; the arguments are those of `nearest_in_lists`."""
    dims, probes = 2 * clusters[0].shape[1], np.array([num_groups, 1])
    group, factors, squares = np.zeros((ROWS, dims), np.int16), np.zeros(ROWS, np.float32), np.zeros(ROWS)
    of_group, chosen = np.zeros(len(clusters[2]) - 1, np.int64), np.empty((ROWS, 1), np.int64)
    work = _workspace(max(len(clusters[0]), len(clusters[3]), 1))
    best, found_ids = np.empty(num_groups), np.empty(num_groups, np.int64)
    for row in range(first_row, last_row, ROWS):
        count = min(ROWS, last_row - row)
        rounding = _round_rows(queries, row, count, group, factors, squares)
        _nearest_lists(count, probes, clusters, group, factors, rounding, of_group, work, best, found_ids, chosen)
        found[row : row + count] = chosen[:count, 0]


@compiled
def nearest_in_lists(queries, first_row, last_row, probes, clusters, parts, distances, entry_ids):  # type: ignore[no-untyped-def]
    """The nearest entries of rows `first_row` … `last_row` - 1 among those of their nearest lists, nearest first.

    Distances are as in `nearest_codes`. A row's result does not depend on the other rows; they only share the work.
    probes: how many groups and lists are read for a row. clusters: keys and norms of the groups' centroids; begins
    (groups + 1,) of each group's lists, in blocks; keys and norms of the lists' centroids, and the list in each of
    their slots. parts: three times the begins (lists + 1,) of each list, in blocks, and keys, norms and ids of entries;
    the third part is one list that all rows read. Places of the result that stay empty are left as they are.
    """
    begins_0, keys_0, norms_0, ids_0 = parts[0]
    begins_1, keys_1, norms_1, ids_1 = parts[1]
    _, keys_2, norms_2, ids_2 = parts[2]
    dims, k = 2 * clusters[0].shape[1], distances.shape[1]
    work = _workspace(max(len(clusters[0]), len(clusters[3]), len(keys_2), 1))
    group, factors, squares = np.zeros((ROWS, dims), np.int16), np.zeros(ROWS, np.float32), np.zeros(ROWS)
    of_group, chosen = np.zeros(len(clusters[2]) - 1, np.int64), np.empty((ROWS, probes[1]), np.int64)
    touched, rows = np.empty(ROWS * probes[1], np.int64), np.empty(ROWS * probes[1], np.int64)
    best, found_ids = np.empty(max(k, probes[0], probes[1])), np.empty(probes[0], np.int64)
    for row in range(first_row, last_row, ROWS):
        count = min(ROWS, last_row - row)
        rounding = _round_rows(queries, row, count, group, factors, squares)
        _nearest_lists(count, probes, clusters, group, factors, rounding, of_group, work, best, found_ids, chosen)
        num_touched = _in_order(chosen, count, touched, rows)
        needed = len(keys_2)
        for number in touched[:num_touched]:
            needed += begins_0[number + 1] - begins_0[number] + begins_1[number + 1] - begins_1[number]
        if needed > len(work[5]):
            work = _workspace(needed)
        places = 0
        for i in range(num_touched):
            first, end = begins_0[touched[i]], begins_0[touched[i] + 1]
            places = _score(keys_0, norms_0, ids_0, first, end, rows[i], group, factors, work, places)
            first, end = begins_1[touched[i]], begins_1[touched[i] + 1]
            places = _score(keys_1, norms_1, ids_1, first, end, rows[i], group, factors, work, places)
        places = _score(keys_2, norms_2, ids_2, 0, len(keys_2), (1 << count) - 1, group, factors, work, places)
        for number in range(count):
            found = _best(number, places, factors[number], rounding, work, best[:k], entry_ids[row + number])
            for i in range(found):
                distances[row + number, i] = max(best[i] + squares[number], 0.0)
