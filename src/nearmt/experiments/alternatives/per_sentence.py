"""Adapting the model to one sentence at a time, as ModernMT does (Farajian et al., WMT 2017).

The best matches of a sentence are its training set: a few steps of gradient descent on them, with a learning rate in
proportion to their mean similarity, before it is translated. Then the weights are reset. There is no optimiser state to
reset: the steps are plain gradient descent, with the gradient clipped at 1.0.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from nearmt.corpus import SentencePair
from nearmt.decoding.decoder import Decoder
from nearmt.experiments.alternatives.trainable import Batch, Trainable
from nearmt.models import Seq2Seq
from nearmt.retrieval.sentences.matches import Match
from nearmt.translator import Translator

MINIMUM = 30  # percent; there is hardly a sentence without a match that is so similar


@dataclass(frozen=True)
class SentenceSettings:
    """How to adapt to a sentence."""

    rate: float  # the learning rate for a match of 100 %
    steps: int = 3
    matches: int = 4
    minimum: int = MINIMUM


class SentenceAdapter:
    """Adapts a model in float32 to single sentences."""

    def __init__(self, translator: Translator, model: Seq2Seq) -> None:
        engine: Any = model._engine
        self.translator, self.model = translator, model
        self.trainable = Trainable(engine.model, model)
        self._parameters = list(engine.model.requires_grad_(True).parameters())
        self._originals = [parameter.detach().clone() for parameter in self._parameters]

    @contextmanager
    def adapted(self, text: str, settings: SentenceSettings) -> Iterator[bool]:
        """The model adapted to a text, until the block ends; False if the memory has no match."""
        found = self.translator.matches(text, settings.matches, settings.minimum)
        batch = self._batch(found)
        if batch is None:
            yield False
            return
        similarity = sum(match.percent for match in found) / len(found) / 100
        try:
            for _ in range(settings.steps):
                self.trainable.accumulate(batch)
                torch.nn.utils.clip_grad_norm_(self._parameters, 1.0)
                self._descend(settings.rate * similarity)
            yield True
        finally:
            with torch.no_grad():
                for parameter, original in zip(self._parameters, self._originals, strict=True):
                    parameter.copy_(original)

    def _batch(self, matches: Sequence[Match]) -> Batch | None:
        sources = self.model.tokenize_sources([match.source for match in matches])
        targets = self.model.tokenize_targets([match.target for match in matches])
        limits = self.model.max_source_tokens, self.model.max_target_tokens - len(self.model.forced_prefix)
        kept = [i for i in range(len(matches)) if len(sources[i]) <= limits[0] and len(targets[i]) <= limits[1]]
        if not kept:
            return None
        return self.trainable.batch([sources[i] for i in kept], [targets[i] for i in kept])

    def _descend(self, rate: float) -> None:
        with torch.no_grad():
            for parameter in self._parameters:
                if parameter.grad is not None:
                    parameter -= rate * parameter.grad
                    parameter.grad = None

    def translate(self, text: str, settings: SentenceSettings) -> str | None:
        """The translation by the adapted model; None if the memory has no match."""
        with self.adapted(text, settings) as is_adapted:
            if not is_adapted:
                return None
            decoder = Decoder(self.model, settings=self.translator.decoding)
            return decoder.texts(decoder.decode(self.model.tokenize_sources([text])))[0]

    def loss(self, pairs: Sequence[SentencePair], settings: SentenceSettings) -> float:
        """The mean loss of the references of a dev set, each by the model adapted to its source."""
        total, count = 0.0, 0
        for pair in pairs:
            with self.adapted(pair.source, settings):
                for batch in self.trainable.batches([pair], 1):
                    tokens = int((batch.labels >= 0).sum())
                    total += tokens * self.trainable.loss([batch])
                    count += tokens
        return total / max(count, 1)
