"""The greatest of many: what topk does, in less than half the time."""

import torch

_BLOCK = 128  # neighbouring values whose maximum is looked at first


def topk(rows: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The `count` greatest values of each row and their places, best first.

    They lie in the `count` blocks with the greatest maxima, or behind the last whole block: finding those takes one
    fast walk over the values, where topk's own takes more than twice as long.
    """
    num_blocks = rows.shape[1] // _BLOCK
    if num_blocks <= count:
        found = rows.topk(count, dim=1)
        return found.values, found.indices
    end = num_blocks * _BLOCK
    blocks = rows[:, :end].view(-1, num_blocks, _BLOCK)
    chosen = blocks.amax(dim=2).topk(count, dim=1).indices.sort(dim=1).values  # (rows, count) blocks
    places = (chosen[:, :, None] * _BLOCK + torch.arange(_BLOCK, device=rows.device)).flatten(1)
    rest = torch.arange(end, rows.shape[1], device=rows.device).expand(len(rows), -1)
    places = torch.cat((places, rest), dim=1)
    found = rows.gather(1, places).topk(count, dim=1)
    return found.values, places.gather(1, found.indices)
