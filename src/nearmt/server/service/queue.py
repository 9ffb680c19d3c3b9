"""The queue of sentences to decode: requests take turns, so that long requests do not block short ones.

Nothing here knows about threads or models; the batcher holds the lock.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(eq=False)
class QueuedRequest:
    """The sentences of one request. Sentences with equal `options` may be decoded together."""

    options: Hashable
    sentences: Sequence[str]
    on_done: Callable[["QueuedRequest"], None]  # called once, when all results are there or one sentence failed
    wants_evidence: bool = False
    results: list[Any] = field(init=False)
    error: BaseException | None = None
    is_done: bool = False
    _waiting: list[int] = field(init=False)  # sentence numbers, the longest sentence last
    _num_missing: int = field(init=False)

    def __post_init__(self) -> None:
        self.results = [None] * len(self.sentences)
        self._waiting = sorted(range(len(self.sentences)), key=self._length)
        self._num_missing = len(self.sentences)

    def _length(self, number: int) -> int:
        return len(self.sentences[number])

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    def take_longest(self) -> int:
        """Take the longest waiting sentence; returns its number."""
        return self._waiting.pop()

    def take_similar(self, length: int, max_length: int) -> int | None:
        """Take the waiting sentence whose length is closest to `length`, up to `max_length`; None if there is none."""
        longer = bisect_right(self._waiting, length, key=self._length)
        candidates = [
            i
            for i in (longer - 1, longer)
            if 0 <= i < len(self._waiting) and self._length(self._waiting[i]) <= max_length
        ]
        if not candidates:
            return None
        return self._waiting.pop(min(candidates, key=lambda i: abs(self._length(self._waiting[i]) - length)))

    def put(self, number: int, result: Any) -> None:
        """Store the result of a sentence."""
        self.results[number] = result
        self._num_missing -= 1
        if not self._num_missing:
            self.finish()

    def fail(self, error: BaseException) -> None:
        """A sentence failed, so the others are not needed."""
        if not self.is_done:
            self.error = error
            self.finish()

    def finish(self) -> None:
        """Stop all work for this request and report that it is done."""
        if not self.is_done:
            self.is_done = True
            self._waiting.clear()
            self.on_done(self)


@dataclass(frozen=True)
class QueuedSentence:
    """One sentence of a request, taken for a batch."""

    request: QueuedRequest
    number: int

    @property
    def text(self) -> str:
        return self.request.sentences[self.number]


class FairQueue:
    """Requests take turns: after each batch, those that were served move to the back."""

    def __init__(self, max_sentences: int, max_padded_characters: int) -> None:
        self._requests: deque[QueuedRequest] = deque()
        self._max_sentences = max_sentences
        self._max_padded = max_padded_characters

    def __len__(self) -> int:
        """Number of waiting sentences."""
        return sum(request.num_waiting for request in self._requests)

    def add(self, request: QueuedRequest) -> None:
        self._requests.append(request)

    def drop(self, request: QueuedRequest) -> None:
        """Remove a request that nobody waits for any more."""
        if request in self._requests:
            self._requests.remove(request)

    def next_batch(self) -> list[QueuedSentence]:
        """Take a batch: sentences of similar length and equal options, in turn from each request.

        The first request always gets a sentence in.
        """
        self._requests = deque(request for request in self._requests if request.num_waiting)
        if not self._requests:
            return []
        first = self._requests[0]
        batch = [QueuedSentence(first, first.take_longest())]
        self._fill(batch)
        served = {id(sentence.request) for sentence in batch}
        self._requests = deque(sorted(self._requests, key=lambda request: id(request) in served))  # a stable sort
        return batch

    def _fill(self, batch: list[QueuedSentence]) -> None:
        """Add sentences to a batch of one until it is full or nothing fits."""
        first = batch[0].request
        matching = [request for request in self._requests if request.options == first.options]
        matching = matching[1:] + matching[:1]  # the first has had its turn
        longest = length = len(batch[0].text)
        is_growing = True
        while is_growing and len(batch) < self._max_sentences:
            is_growing = False
            for request in matching:
                if len(batch) == self._max_sentences or max(longest, 1) * (len(batch) + 1) > self._max_padded:
                    return
                max_length = max(longest, self._max_padded // (len(batch) + 1))
                if (number := request.take_similar(length, max_length)) is not None:
                    batch.append(QueuedSentence(request, number))
                    longest = max(longest, len(batch[-1].text))
                    is_growing = True
