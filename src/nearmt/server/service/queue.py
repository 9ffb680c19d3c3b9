"""What waits to be decoded: the sentences of one request, and a queue that serves requests in turn.

Nothing here knows threads or models; the batcher holds the lock.
"""

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(eq=False)
class Order:
    """The sentences of one request; those of equal `options` may be decoded together."""

    options: Hashable
    sentences: Sequence[str]
    on_done: Callable[["Order"], None]  # called once, when all results are there or one has failed
    wants_evidence: bool = False
    results: list[Any] = field(init=False)
    error: BaseException | None = None
    is_over: bool = False
    _waiting: list[int] = field(init=False)  # numbers of sentences, the longest last
    _missing: int = field(init=False)

    def __post_init__(self) -> None:
        self.results = [None] * len(self.sentences)
        self._waiting = sorted(range(len(self.sentences)), key=lambda i: len(self.sentences[i]))
        self._missing = len(self.sentences)

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    def take(self, length: int | None, most: int) -> int | None:
        """The number of a waiting sentence of about `length` characters, at most `most`; None if there is none."""
        if length is None:
            return self._waiting.pop()
        low, high = 0, len(self._waiting)
        while low < high:  # the first sentence longer than wanted
            middle = (low + high) // 2
            if len(self.sentences[self._waiting[middle]]) > length:
                high = middle
            else:
                low = middle + 1
        near = [i for i in (low - 1, low) if 0 <= i < len(self._waiting)]
        near = [i for i in near if len(self.sentences[self._waiting[i]]) <= most]
        if not near:
            return None
        best = min(near, key=lambda i: abs(len(self.sentences[self._waiting[i]]) - length))
        return self._waiting.pop(best)

    def put(self, number: int, result: Any) -> None:
        """A sentence is translated."""
        self.results[number] = result
        self._missing -= 1
        if not self._missing:
            self.finish()

    def fail(self, error: BaseException) -> None:
        """A sentence cannot be translated, so the rest is not needed."""
        if not self.is_over:
            self.error = error
            self.finish()

    def finish(self) -> None:
        """No more work is to be done for it."""
        if not self.is_over:
            self.is_over = True
            self._waiting.clear()
            self.on_done(self)


@dataclass(frozen=True)
class Piece:
    """One sentence of an order, taken for a batch."""

    order: Order
    number: int

    @property
    def text(self) -> str:
        return self.order.sentences[self.number]


class FairQueue:
    """Orders take turns: whoever was served goes to the back, so a long one never keeps a short one waiting."""

    def __init__(self, max_sentences: int, max_padded_characters: int) -> None:
        self._orders: deque[Order] = deque()
        self._max_sentences = max_sentences
        self._max_padded = max_padded_characters

    def __len__(self) -> int:
        """Sentences that wait."""
        return sum(order.num_waiting for order in self._orders)

    @property
    def is_empty(self) -> bool:
        return not any(order.num_waiting for order in self._orders)

    def add(self, order: Order) -> None:
        self._orders.append(order)

    def drop(self, order: Order) -> None:
        """Forget an order that nobody waits for."""
        if order in self._orders:
            self._orders.remove(order)

    def next_batch(self) -> list[Piece]:
        """Sentences of like length and one options, one of each order in turn; the first order is never left out."""
        self._orders = deque(order for order in self._orders if order.num_waiting)
        if not self._orders:
            return []
        first = self._orders[0]
        number = first.take(None, 0)
        assert number is not None
        batch = [Piece(first, number)]
        alike = [order for order in self._orders if order.options == first.options]
        alike = alike[1:] + alike[:1]  # the first has had its turn
        longest = length = len(batch[0].text)
        is_growing = True
        while is_growing and len(batch) < self._max_sentences:
            is_growing = False
            for order in alike:
                if len(batch) == self._max_sentences or max(longest, 1) * (len(batch) + 1) > self._max_padded:
                    break
                most = max(longest, self._max_padded // (len(batch) + 1))
                if order.num_waiting and (number := order.take(length, most)) is not None:
                    batch.append(Piece(order, number))
                    longest = max(longest, len(batch[-1].text))
                    is_growing = True
        served = {id(piece.order) for piece in batch}
        self._orders = deque(
            [order for order in self._orders if id(order) not in served]
            + [order for order in self._orders if id(order) in served]
        )
        return batch
