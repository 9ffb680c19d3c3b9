"""One thread that decodes for one model: sentences of many requests together, results to whom they belong."""

import threading
import time
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol

from nearmt.errors import IndexUnavailableError
from nearmt.server.service.queue import FairQueue, Order, Piece
from nearmt.server.settings import BatchingSettings

_REMEMBERED_SECONDS = 30.0


class QueueFullError(Exception):
    """More is waiting than may wait; `retry_after` is an estimate in seconds."""

    def __init__(self, retry_after: int) -> None:
        super().__init__("the queue is full")
        self.retry_after = retry_after


class BatchListener(Protocol):
    """Hears of every batch that was decoded."""

    def __call__(self, num_sentences: int, seconds: float, results: Sequence[Any]) -> None: ...


class Batcher:
    """Gathers sentences for a moment, decodes them together and hands the results out.

    `decode` gets a options, texts and which of them want evidence. If a batch fails, its sentences are decoded one by
    one, so that only the request at fault hears of it; not so if it is no request's fault.
    """

    def __init__(
        self,
        decode: Callable[[Hashable, Sequence[str], Sequence[bool]], Sequence[Any]],
        settings: BatchingSettings,
        max_queued: int,
        on_batch: BatchListener = lambda num_sentences, seconds, results: None,
        name: str = "decoding",
    ) -> None:
        self._decode, self._settings, self._max_queued, self._on_batch = decode, settings, max_queued, on_batch
        self._queue = FairQueue(settings.max_sentences, settings.max_padded_characters)
        self._changed = threading.Condition()
        self._is_closing = False
        self._rate = 10.0  # sentences a second, as lately seen
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def num_queued(self) -> int:
        with self._changed:
            return len(self._queue)

    def submit(self, order: Order) -> None:
        """Queue an order; raises `QueueFullError` if there is no room for it."""
        with self._changed:
            waiting = len(self._queue)
            if waiting and waiting + len(order.sentences) > self._max_queued:
                raise QueueFullError(retry_after=max(1, min(60, round(waiting / self._rate))))
            self._queue.add(order)
            self._changed.notify()

    def cancel(self, order: Order) -> None:
        """Nobody waits for this order any more: its place is free at once."""
        with self._changed:
            order.finish()
            self._queue.drop(order)

    def close(self, seconds: float = 30.0) -> None:
        """Decode what is queued, then end."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        self._thread.join(seconds)

    def _run(self) -> None:
        while (batch := self._gather()) is not None:
            if batch:
                self._serve(batch)

    def _gather(self) -> list[Piece] | None:
        """The next batch; None when there will be none."""
        with self._changed:
            while self._queue.is_empty:
                if self._is_closing:
                    return None
                self._changed.wait()
            until = time.monotonic() + self._settings.gather_ms / 1000
            while len(self._queue) < self._settings.max_sentences and not self._is_closing:
                left = until - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(left)
            return self._queue.next_batch()

    def _serve(self, batch: list[Piece]) -> None:
        began = time.monotonic()
        try:
            results = self._decode_pieces(batch)
        except BaseException as error:
            if len(batch) == 1 or isinstance(error, IndexUnavailableError):
                self._hand_out([(piece, None, error) for piece in batch])
                return
            for piece in batch:
                if not piece.order.is_over:
                    self._serve([piece])
            return
        seconds = time.monotonic() - began
        self._rate += (len(batch) / max(seconds, 1e-6) - self._rate) * min(1.0, seconds / _REMEMBERED_SECONDS + 0.05)
        self._hand_out([(piece, result, None) for piece, result in zip(batch, results, strict=True)])
        self._on_batch(len(batch), seconds, results)

    def _decode_pieces(self, batch: Sequence[Piece]) -> Sequence[Any]:
        results = self._decode(
            batch[0].order.options, [piece.text for piece in batch], [piece.order.wants_evidence for piece in batch]
        )
        if len(results) != len(batch):
            raise RuntimeError(f"{len(batch)} sentences gave {len(results)} results")
        return results

    def _hand_out(self, results: list[tuple[Piece, Any, BaseException | None]]) -> None:
        with self._changed:
            for piece, result, error in results:
                if piece.order.is_over:
                    continue
                if error is not None:
                    piece.order.fail(error)
                else:
                    piece.order.put(piece.number, result)
