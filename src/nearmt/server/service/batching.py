"""One decoding thread per model, which decodes sentences of many requests together."""

import threading
import time
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol

from nearmt.errors import IndexUnavailableError
from nearmt.server.service.queue import FairQueue, QueuedRequest, QueuedSentence
from nearmt.server.settings import BatchingSettings

_RATE_WINDOW_SECONDS = 30.0


class QueueFullError(Exception):
    """The queue is full; `retry_after` is an estimate in seconds."""

    def __init__(self, retry_after: int) -> None:
        super().__init__("the queue is full")
        self.retry_after = retry_after


class BatchListener(Protocol):
    """Called after every decoded batch."""

    def __call__(self, num_sentences: int, seconds: float, results: Sequence[Any]) -> None: ...


class Batcher:
    """Collects sentences for a moment, decodes them together and distributes the results.

    `decode` gets the options, the texts and, for each text, whether evidence is wanted. If a batch fails, its sentences
    are decoded one by one, so that only the faulty request fails. An unavailable index fails the whole batch at once.
    """

    def __init__(
        self,
        decode: Callable[[Hashable, Sequence[str], Sequence[bool]], Sequence[Any]],
        settings: BatchingSettings,
        max_queued: int,
        on_batch: BatchListener = lambda num_sentences, seconds, results: None,
    ) -> None:
        self._decode, self._settings, self._max_queued, self._on_batch = decode, settings, max_queued, on_batch
        self._queue = FairQueue(settings.max_sentences, settings.max_padded_characters)
        self._changed = threading.Condition()
        self._is_closing = False
        self._rate = 10.0  # sentences per second, a moving average
        self._thread = threading.Thread(target=self._run, name="decoding", daemon=True)
        self._thread.start()

    @property
    def num_queued(self) -> int:
        with self._changed:
            return len(self._queue)

    def submit(self, request: QueuedRequest) -> None:
        """Queue a request; raises `QueueFullError` if the queue has no room for it."""
        with self._changed:
            waiting = len(self._queue)
            if waiting and waiting + len(request.sentences) > self._max_queued:
                raise QueueFullError(retry_after=max(1, min(60, round(waiting / self._rate))))
            self._queue.add(request)
            self._changed.notify()

    def cancel(self, request: QueuedRequest) -> None:
        """Drop a request that nobody waits for any more."""
        with self._changed:
            request.finish()
            self._queue.drop(request)

    def close(self, seconds: float = 30.0) -> None:
        """Decode what is queued, then stop the thread."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        self._thread.join(seconds)

    def _run(self) -> None:
        while (batch := self._gather()) is not None:
            if batch:
                self._process(batch)

    def _gather(self) -> list[QueuedSentence] | None:
        """Wait for the next batch; None when the batcher is closed and the queue is empty."""
        with self._changed:
            while not len(self._queue):
                if self._is_closing:
                    return None
                self._changed.wait()
            deadline = time.monotonic() + self._settings.gather_ms / 1000
            while len(self._queue) < self._settings.max_sentences and not self._is_closing:
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(left)
            return self._queue.next_batch()

    def _process(self, batch: list[QueuedSentence]) -> None:
        began = time.monotonic()
        try:
            results = self._decode_batch(batch)
        except BaseException as error:
            if len(batch) == 1 or isinstance(error, IndexUnavailableError):
                self._distribute([(sentence, None, error) for sentence in batch])
                return
            for sentence in batch:
                if not sentence.request.is_done:
                    self._process([sentence])
            return
        seconds = time.monotonic() - began
        smoothing = min(1.0, seconds / _RATE_WINDOW_SECONDS + 0.05)
        self._rate += (len(batch) / max(seconds, 1e-6) - self._rate) * smoothing
        self._distribute([(sentence, result, None) for sentence, result in zip(batch, results, strict=True)])
        self._on_batch(len(batch), seconds, results)

    def _decode_batch(self, batch: Sequence[QueuedSentence]) -> Sequence[Any]:
        results = self._decode(
            batch[0].request.options,
            [sentence.text for sentence in batch],
            [sentence.request.wants_evidence for sentence in batch],
        )
        if len(results) != len(batch):
            raise RuntimeError(f"{len(batch)} sentences gave {len(results)} results")
        return results

    def _distribute(self, results: list[tuple[QueuedSentence, Any, BaseException | None]]) -> None:
        with self._changed:
            for sentence, result, error in results:
                if sentence.request.is_done:
                    continue
                if error is not None:
                    sentence.request.fail(error)
                else:
                    sentence.request.put(sentence.number, result)
