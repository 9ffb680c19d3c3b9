"""Projection of states to fewer dimensions, whose result for a row never depends on the other rows."""

from nearmt.compiled import compiled

_PROJECTED = 16  # rows together


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
