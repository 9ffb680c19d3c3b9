"""A batch that the int8 engine is decoding, with its caches.

The cache of a sentence is a growing list of slots, one for every row of every step. Each row knows the slots of its own
past, so nothing is copied when hypotheses are reordered, and all rows of a sentence read the same cache.
"""

from collections.abc import Callable
from functools import partial
from itertools import compress, pairwise
from typing import TYPE_CHECKING

import torch
from torch.nn.functional import scaled_dot_product_attention

from nearmt.models.engine import RowOrder, StepOutput
from nearmt.models.int8.graph import GraphSession
from nearmt.models.int8.kernels import attend_past, attend_source

if TYPE_CHECKING:
    from nearmt.models.int8.engine import Int8Engine

HIDDEN = "hidden"
_MASKED = -1.0e9  # added to masked attention scores, so that their weight is exactly zero
_MIN_NEW_SLOTS = 32
_COMPACTION_SLOTS = 256
_SMALL_ROWS = 128  # up to here, copying the output of a segment takes less time than not copying it
_Attend = Callable[[int, torch.Tensor], torch.Tensor]  # layer and projected rows to (rows, width)


class Int8Session:
    """A batch that is being decoded, owned by one caller. Its sentences are divided between the lanes."""

    def __init__(self, engine: "Int8Engine", source_ids: torch.Tensor, source_mask: torch.Tensor) -> None:
        self._engine = engine
        self._order = RowOrder(len(source_ids), source_ids.device)

        def start(part: slice) -> LaneSession:
            time = max(1, int(source_mask[part].sum(dim=1).max()))  # a lane needs no more than its longest source
            return LaneSession(engine, source_ids[part, :time], source_mask[part, :time])

        parts = engine.lanes.share(len(source_ids))
        self._lanes = engine.lanes.run([partial(start, part) for part in parts])
        self._ends = torch.tensor([part.stop for part in parts])  # the sentence after the last one of each lane
        self._logits: torch.Tensor | None = None  # reused by all steps: the first with all beams has the most rows

    @property
    def num_source_rows(self) -> int:
        """Rows of the cross-attention cache: one per live sentence."""
        return sum(lane.num_source_rows for lane in self._lanes)

    def step(self, token_ids: torch.Tensor, parents: torch.Tensor) -> StepOutput:
        """Continue row `parents[i]` of the last step with `token_ids[i]`."""
        before = torch.searchsorted(self._order.rows, self._ends).tolist()
        self._order.follow(parents)
        after = torch.searchsorted(self._order.rows, self._ends).tolist()
        pieces = [slice(start, end) for start, end in pairwise([0, *after])]
        is_live = [piece.stop > piece.start for piece in pieces]
        tasks = [
            partial(lane.step, token_ids[piece], parents[piece] - first)
            for lane, piece, first in compress(zip(self._lanes, pieces, [0, *before], strict=False), is_live)
        ]
        self._lanes, self._ends = list(compress(self._lanes, is_live)), self._ends[is_live]
        found = self._engine.lanes.run(tasks)
        states = found[0] if len(found) == 1 else torch.cat(found)
        if self._engine.lanes.count > 1 and (self._logits is None or len(self._logits) < len(states)):
            self._logits = torch.empty(len(states), self._engine.projection.vocabulary)
        logits = self._engine.projection.project(states, self._logits)
        return StepOutput(states, logits.values, -logits.log_totals, logits.maxima)


class LaneSession:
    """The sentences of one lane."""

    def __init__(
        self, engine: "Int8Engine", source_ids: torch.Tensor, source_mask: torch.Tensor, *, keeps_memory: bool = True
    ) -> None:
        self._engine, self._keeps_memory = engine, keeps_memory
        num_sentences, time = source_ids.shape
        self._lengths = source_mask.sum(dim=1).clamp_min(1)  # (sentences,)
        hidden = engine.embed_sources(source_ids, torch.arange(time))
        # Keys and values of each layer in turn, each (sentences, heads, time, head width).
        self._sources = engine.encoder.run({HIDDEN: hidden, "mask": self._source_mask(time)}, keeps_memory=keeps_memory)
        self._order = RowOrder(num_sentences, source_ids.device)
        # As many as sources, each (sentences, heads, slots, head width). Not one large tensor: the allocator returns
        # large blocks to the system at once, and allocating them again costs more than copying.
        self._cache = [torch.empty(num_sentences, engine.heads, 0, engine.head_width) for _ in self._sources]
        self._num_slots = 0  # slots in use
        self._past = torch.zeros(num_sentences, 0, dtype=torch.int64)  # (rows, steps) slots of the past of each row

    @property
    def num_source_rows(self) -> int:
        """Rows of the cross-attention cache: one per live sentence."""
        return len(self._lengths)

    def _source_mask(self, time: int) -> torch.Tensor:
        """(sentences, 1, 1, time) what to add to attention scores."""
        return ((torch.arange(time) >= self._lengths[:, None]).float() * _MASKED)[:, None, None, :]

    def step(self, token_ids: torch.Tensor, parents: torch.Tensor) -> torch.Tensor:
        """Continue row `parents[i]` of the last step with `token_ids[i]`; return the states (rows, width)."""
        before = self._order.sentences
        is_identity = self._order.follow(parents)
        self._keep(torch.searchsorted(before, self._order.sentences).tolist())
        if not is_identity:
            self._past = self._past[parents]
        group = len(parents) // self.num_source_rows
        self._reserve_slots(group)
        hidden = self._engine.embed_targets(token_ids, torch.tensor([self._past.shape[1]]))
        past, first, lengths = self._past.numpy(), self._num_slots, self._lengths.numpy()
        context = torch.empty_like(hidden)

        def attend_to_past(layer: int, projected: torch.Tensor) -> torch.Tensor:
            keys, values = self._cache[2 * layer : 2 * layer + 2]
            attend_past(projected.numpy(), keys.numpy(), values.numpy(), past, first, context.numpy())
            return context

        def attend_to_source(layer: int, projected: torch.Tensor) -> torch.Tensor:
            keys, values = self._sources[2 * layer : 2 * layer + 2]
            attend_source(projected.numpy(), keys.numpy(), values.numpy(), lengths, context.numpy())
            return context

        states = self._decode(hidden, attend_to_past, attend_to_source)
        written = torch.arange(first, first + group).repeat(self.num_source_rows)
        self._past = torch.cat((self._past, written[:, None]), dim=1)
        self._num_slots += group
        return states

    def force(self, decoder_ids: torch.Tensor) -> torch.Tensor:
        """The states (rows, time, width) of whole targets, one per sentence; only before the first step."""
        rows, time = decoder_ids.shape
        heads, size = self._engine.heads, self._engine.head_width
        mask = self._source_mask(self._sources[0].shape[2])

        def attend_to_past(layer: int, projected: torch.Tensor) -> torch.Tensor:
            queries, keys, values = projected.view(rows, time, 3, heads, size).permute(2, 0, 3, 1, 4)
            found = scaled_dot_product_attention(queries, keys, values, is_causal=True, scale=1.0)
            return found.transpose(1, 2).reshape(rows * time, -1)

        def attend_to_source(layer: int, projected: torch.Tensor) -> torch.Tensor:
            queries = projected.view(rows, time, heads, size).transpose(1, 2)
            keys, values = self._sources[2 * layer : 2 * layer + 2]
            found = scaled_dot_product_attention(queries, keys, values, attn_mask=mask, scale=1.0)
            return found.transpose(1, 2).reshape(rows * time, -1)

        hidden = self._engine.embed_targets(decoder_ids, torch.arange(time)).flatten(0, 1)
        with torch.no_grad():
            return self._decode(hidden, attend_to_past, attend_to_source).view(rows, time, -1)

    def _decode(self, hidden: torch.Tensor, attend_to_past: _Attend, attend_to_source: _Attend) -> torch.Tensor:
        """The states (rows, width) of embedded inputs (rows, width). Queries are already scaled."""
        first, *segments = self._engine.decoder
        is_small = self._keeps_memory and len(hidden) <= _SMALL_ROWS

        def run(segment: GraphSession, inputs: dict[str, torch.Tensor]) -> list[torch.Tensor]:
            return segment.run_small(inputs) if is_small else segment.run(inputs, keeps_memory=self._keeps_memory)

        projected, residual = run(first, {HIDDEN: hidden[None]})
        for number, segment in enumerate(segments):
            context = (attend_to_source if number % 2 else attend_to_past)(number // 2, projected)
            projected, residual = run(segment, {HIDDEN: context[None], "residual": residual})
        return projected

    def _reserve_slots(self, group: int) -> None:
        """Ensure slots for this step. A long cache first drops the slots of hypotheses that have ended."""
        used, slots = self._num_slots, self._cache[0].shape[2]
        if used + group <= slots:
            return
        if used >= _COMPACTION_SLOTS:
            self._drop_dead_slots()
        more = max(group, _MIN_NEW_SLOTS, slots // 2)
        for number, cache in enumerate(self._cache):
            self._cache[number] = torch.nn.functional.pad(cache[:, :, : self._num_slots], (0, 0, 0, more))

    def _drop_dead_slots(self) -> None:
        """Drop the slots that no live hypothesis descends from, and keep the order of the others."""
        sentences, heads, slots, width = self._cache[0].shape
        past = self._past.view(sentences, -1)
        is_live = torch.zeros(sentences, slots, dtype=torch.bool).scatter_(1, past, True)
        self._past = (is_live.cumsum(dim=1) - 1).gather(1, past).view_as(self._past)
        self._num_slots = int(is_live.sum(dim=1).max())
        kept = is_live.int().argsort(dim=1, descending=True, stable=True)[:, : self._num_slots]  # (sentences, kept)
        firsts = torch.arange(sentences * heads).view(sentences, heads, 1) * slots
        indices = (firsts + kept[:, None]).flatten()
        for number, cache in enumerate(self._cache):
            rows = cache.view(-1, width).index_select(0, indices)
            self._cache[number] = rows.view(sentences, heads, -1, width)

    def _keep(self, kept: list[int]) -> None:
        """Drop finished sentences; the sentences after them move up in place."""
        if len(kept) == self.num_source_rows:
            return
        moves = [(place, old) for place, old in enumerate(kept) if place != old]
        for tensor in (*self._sources, *self._cache, self._lengths):
            for place, old in moves:
                tensor[place] = tensor[old]
        self._sources = [tensor[: len(kept)] for tensor in self._sources]
        self._cache = [tensor[: len(kept)] for tensor in self._cache]
        self._lengths = self._lengths[: len(kept)]
