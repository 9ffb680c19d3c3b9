"""What a translation depends on besides the text, and what the decoding thread returns for a sentence."""

from dataclasses import dataclass, field
from typing import Any

from nearmt.datastore import Filter
from nearmt.methods.registry import MethodRequest


@dataclass(frozen=True)
class TranslationOptions:
    """Everything besides the text that a translation depends on. Only sentences with equal options share a batch."""

    stores: tuple[str, ...]
    method: MethodRequest = field(default_factory=MethodRequest)
    filter: Filter = field(default_factory=Filter)
    n_best: int = 1


@dataclass(frozen=True)
class DecodedSentence:
    """The translation of one sentence."""

    text: str
    score: float
    num_tokens: int
    alternatives: tuple[tuple[str, float], ...] = ()
    tokens: tuple[dict[str, Any], ...] | None = None  # the evidence, if requested
