"""Profiles adaptive decoding: how long each part takes."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from nearmt.decoding.beam import Shifted
from nearmt.decoding.decoder import Decoder, DecodingSettings
from nearmt.experiments.bench.timing import Stopwatch
from nearmt.methods.mixture import Method
from nearmt.models import Seq2Seq
from nearmt.retrieval.neighbors import Neighbors, UnfilledArrays
from nearmt.retrieval.search import Retriever


class TimedDecoder(Decoder):
    """A decoder that times its searches and mixtures."""

    def __init__(self, model: Seq2Seq, retriever: Retriever, method: Method, decoding: DecodingSettings) -> None:
        super().__init__(model, retriever, method, decoding)
        self.watch = Stopwatch()

    def search(self, *args: Any) -> Neighbors:
        return self.watch.timed("search", super().search)(*args)

    def search_arrays(self, *args: Any) -> Neighbors | UnfilledArrays:
        found = self.watch.timed("search", super().search_arrays)(*args)
        return self.watch.timed("search", found.filled)() if isinstance(found, UnfilledArrays) else found

    def mix(self, *args: Any) -> torch.Tensor:
        return self.watch.timed("mixture", super().mix)(*args)

    def mixed(self, *args: Any) -> Shifted:
        return self.watch.timed("mixture", super().mixed)(*args)


def profile(decoder: TimedDecoder, sources: list[list[int]], rounds: int) -> dict[str, float]:
    """Return the mean seconds per round of encoder, decoder, projection, search, mixture and the remainder."""
    watch = decoder.watch
    decoder.decode(sources)
    watch.seconds.clear()
    began = time.perf_counter()
    with _timed_engine(decoder.model, watch):
        for _ in range(rounds):
            decoder.decode(sources)
    total = time.perf_counter() - began
    parts = {name: seconds / rounds for name, seconds in watch.seconds.items()}
    # A decoder step includes the projection, which has a row of its own.
    parts["decoder"] = parts.get("decoder", 0.0) - parts.get("projection", 0.0)
    return {**parts, "beam search and the rest": total / rounds - sum(parts.values())}


@contextmanager
def _timed_engine(model: Seq2Seq, watch: Stopwatch) -> Iterator[None]:
    """Time the encoder, the decoder steps and the projection of a model inside the block."""
    engine: Any = model._engine
    # The int8 engine projects with an object of its own.
    projecting = engine.projection if hasattr(engine.projection, "project") else engine
    begin, project = engine.start, projecting.project

    def start(*args: Any) -> Any:
        session = begin(*args)
        session.step = watch.timed("decoder", session.step)
        return session

    engine.start, projecting.project = watch.timed("encoder", start), watch.timed("projection", project)
    try:
        yield
    finally:
        del engine.start, projecting.project
