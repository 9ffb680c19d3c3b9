"""Held-out sentences, translated with one decoder and scored: the basis of tuning, evaluation and experiments."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from nearmt.corpus import SentencePair
from nearmt.decoding.beam import Hypothesis
from nearmt.decoding.decoder import Decoder
from nearmt.errors import SettingError
from nearmt.evaluation.scores import bleu
from nearmt.models import Seq2Seq


@dataclass(frozen=True)
class HeldOutSet:
    """Sentences to translate, with their references."""

    pairs: list[SentencePair]
    sources: list[list[int]]  # token ids
    excluded: list[np.ndarray | None] | None = None  # for each, the stored sentences that must not be retrieved

    @classmethod
    def from_pairs(cls, model: Seq2Seq, pairs: Sequence[SentencePair]) -> "HeldOutSet":
        """The pairs whose source the model can translate, without those that are too long."""
        sources = model.tokenize_sources([pair.source for pair in pairs])
        kept = [i for i in range(len(pairs)) if len(sources[i]) <= model.max_source_tokens]
        if not kept:
            raise SettingError("the test set has no pair that the model can translate")
        return cls([pairs[i] for i in kept], [sources[i] for i in kept])

    def __len__(self) -> int:
        return len(self.pairs)

    @property
    def texts(self) -> list[str]:
        return [pair.source for pair in self.pairs]

    @property
    def references(self) -> list[str]:
        return [pair.target for pair in self.pairs]


@dataclass(frozen=True)
class ScoredOutputs:
    """The translations of a held-out set by one decoder."""

    hypotheses: list[Hypothesis]  # the best of each sentence
    texts: list[str]
    references: list[str]

    @cached_property
    def bleu(self) -> float:
        return bleu(self.texts, self.references)


def translate_held_out(
    decoder: Decoder, held_out: HeldOutSet, on_done: Callable[[int], None] = lambda sentences: None
) -> ScoredOutputs:
    """Translate the sentences; `on_done` is called with the number of sentences done so far."""
    hypotheses = decoder.decode(held_out.sources, held_out.excluded, on_done, held_out.texts)
    return ScoredOutputs([best[0] for best in hypotheses], decoder.texts(hypotheses), held_out.references)
