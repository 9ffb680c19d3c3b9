"""A top-k over rows in less than half the time of `torch.topk`, and faster still if the maxima of blocks are known."""

from typing import Any

import numpy as np
import torch

from nearmt.compiled import compiled

BLOCK = 128  # adjacent values whose maximum is compared first


def topk(rows: torch.Tensor, count: int, maxima: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """The `count` greatest values of each row and their indices, greatest first.

    They are in the `count` blocks with the greatest maxima, or after the last whole block. Finding these blocks takes
    one fast pass over the values. A caller that knows `maxima` (rows, blocks) saves it: for each block of 128 values,
    and the shorter one at the end, the greatest value, or a greater number, which only takes longer. Rows must then be
    float32 and on the CPU.
    """
    if maxima is not None:
        values, indices = torch.empty(len(rows), count), torch.empty(len(rows), count, dtype=torch.int64)
        _topk_below(rows.numpy(), maxima.numpy(), values.numpy(), indices.numpy())
        return values, indices
    num_blocks = rows.shape[1] // BLOCK
    if num_blocks <= count:
        found = rows.topk(count, dim=1)
        return found.values, found.indices
    end = num_blocks * BLOCK
    blocks = rows[:, :end].view(-1, num_blocks, BLOCK)
    chosen = blocks.amax(dim=2).topk(count, dim=1).indices.sort(dim=1).values  # (rows, count) blocks
    indices = (chosen[:, :, None] * BLOCK + torch.arange(BLOCK, device=rows.device)).flatten(1)
    rest = torch.arange(end, rows.shape[1], device=rows.device).expand(len(rows), -1)
    indices = torch.cat((indices, rest), dim=1)
    found = rows.gather(1, indices).topk(count, dim=1)
    return found.values, indices.gather(1, found.indices)


def raise_maxima(maxima: torch.Tensor, rows: torch.Tensor, indices: torch.Tensor) -> None:
    """Correct `maxima` (rows, blocks) in place after the values at `indices` (rows, n) have been raised."""
    maxima.scatter_reduce_(1, indices // BLOCK, rows.gather(1, indices), "amax")


@compiled
def _topk_below(rows: Any, maxima: Any, values: Any, indices: Any) -> None:
    """Fill `values` and `indices` (rows, count). Blocks that cannot contain one of the greatest are not read."""
    count = values.shape[1]
    for row in range(len(rows)):
        best, places = values[row], indices[row]
        bound = _nth_largest(maxima[row], best)
        _read_blocks(rows[row], maxima[row], bound, best, places)
        if not best[count - 1] >= bound:  # some maxima are greater than the values of their blocks
            _read_blocks(rows[row], maxima[row], np.float32(-np.inf), best, places)


@compiled
def _nth_largest(numbers: Any, best: Any) -> Any:
    """The n-th largest number, where n is the length of `best`, which is overwritten."""
    best[:] = -np.inf
    last = len(best) - 1
    for number in numbers:
        if number > best[last]:
            place = last
            while place > 0 and best[place - 1] < number:
                best[place] = best[place - 1]
                place -= 1
            best[place] = number
    return best[last]


@compiled
def _read_blocks(row: Any, maxima: Any, bound: Any, best: Any, places: Any) -> None:
    """Fill `best` and `places` with the largest values of the blocks whose maximum is at least `bound`."""
    best[:] = -np.inf
    places[:] = 0
    count, found = len(best), 0
    for block in range(len(maxima)):
        if maxima[block] < bound or (found == count and not maxima[block] > best[count - 1]):
            continue
        for i in range(block * BLOCK, min(len(row), (block + 1) * BLOCK)):
            value = row[i]
            if found == count and not value > best[count - 1]:
                continue
            found = min(found + 1, count)
            place = found - 1
            while place > 0 and best[place - 1] < value:
                best[place], places[place] = best[place - 1], places[place - 1]
                place -= 1
            best[place], places[place] = value, i
