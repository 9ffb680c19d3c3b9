"""How a text is to be translated, in values that can be compared: what has equal options is decoded together."""

from dataclasses import dataclass
from typing import Any

from nearmt.methods.registry import AUTO


@dataclass(frozen=True)
class TranslationOptions:
    """Everything besides the text that a translation depends on."""

    stores: tuple[str, ...]
    method: str = AUTO
    k: int | None = None
    temperature: float | None = None
    knn_share: float | None = None
    n_best: int = 1
    only: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    since: str | None = None
    until: str | None = None

    @property
    def has_filter(self) -> bool:
        return bool(self.only or self.exclude or self.since or self.until)


@dataclass(frozen=True)
class Decoded:
    """One translated sentence as the server hands it on."""

    text: str
    score: float
    num_tokens: int
    alternatives: tuple[tuple[str, float], ...] = ()
    tokens: tuple[dict[str, Any], ...] | None = None  # the evidence, where it was asked for
