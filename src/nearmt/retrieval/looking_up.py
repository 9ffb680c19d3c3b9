"""Compiled loops that fetch what is stored with the entries that a compiled search has found."""

from nearmt.compiled import compiled


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


@compiled
def look_up_entries(first_row, last_row, entry_ids, values, halves, floats, tokens, counts, probabilities):  # type: ignore[no-untyped-def]
    """Fill the rows with what is stored with the entries that were found, and count these.

    `halves` are the stored probabilities as 16-bit numbers, and `floats` (65536,) what these stand for.
    """
    for row in range(first_row, last_row):
        count = 0
        while count < entry_ids.shape[1] and entry_ids[row, count] >= 0:
            entry = entry_ids[row, count]
            tokens[row, count], probabilities[row, count] = values[entry], floats[halves[entry]]
            count += 1
        counts[row] = count
