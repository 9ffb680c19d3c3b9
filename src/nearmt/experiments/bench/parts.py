"""Where the time of adaptive decoding goes."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from nearmt.decoding.beam import Shifted
from nearmt.decoding.decoder import Decoder
from nearmt.experiments.bench.systems import decoding
from nearmt.experiments.bench.timing import Stopwatch
from nearmt.methods.mixture import Method
from nearmt.models import Seq2Seq
from nearmt.retrieval.neighbors import Neighbors
from nearmt.retrieval.search import Retriever


def parts_of(
    model: Seq2Seq,
    retriever: Retriever,
    method: Method,
    sources: list[list[int]],
    beam: int,
    length: int,
    rounds: int,
) -> dict[str, float]:
    """Seconds of encoder, decoder, projection, search, mixture and all the rest, the mean of the rounds."""
    watch = Stopwatch()
    timed = _TimedDecoder(model, retriever, method, beam, length, len(sources), watch)
    timed.decode(sources)
    watch.seconds.clear()
    began = time.perf_counter()
    with _watched(model, watch):
        for _ in range(rounds):
            timed.decode(sources)
    total = time.perf_counter() - began
    named = {name: seconds / rounds for name, seconds in watch.seconds.items()}
    # The step of the decoder ends with the projection, which is counted by itself.
    named["decoder"] = named.get("decoder", 0.0) - named.get("projection", 0.0)
    return {**named, "beam search and the rest": total / rounds - sum(named.values())}


@contextmanager
def _watched(model: Seq2Seq, watch: Stopwatch) -> Iterator[None]:
    """Encoder, decoder steps and projection of one model object under the watch."""
    engine: Any = model._engine
    begin, project = engine.start, engine.project

    def start(*args: Any) -> Any:
        session = begin(*args)
        session.step = watch.timed("decoder", session.step)
        return session

    engine.start, engine.project = watch.timed("encoder", start), watch.timed("projection", project)
    try:
        yield
    finally:
        del engine.start, engine.project


class _TimedDecoder(Decoder):
    def __init__(
        self,
        model: Seq2Seq,
        retriever: Retriever,
        method: Method,
        beam: int,
        length: int,
        batch: int,
        watch: Stopwatch,
    ) -> None:
        super().__init__(model, retriever, method, decoding(beam, length, batch))
        self._watch = watch

    def search(self, states: torch.Tensor, excluded: Sequence[np.ndarray | None] | None) -> Neighbors:
        return self._watch.timed("search", super().search)(states, excluded)

    def mixed(self, *args: Any) -> Shifted:
        return self._watch.timed("mixture", super().mixed)(*args)
