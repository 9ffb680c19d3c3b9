"""Evidence for machines: every output token with its neighbours, as plain JSON values."""

from collections.abc import Mapping, Sequence
from typing import Any

from nearmt.decoding.evidence import NeighborEvidence, TokenEvidence, token_spans
from nearmt.models import Seq2Seq


def describe_tokens(
    tokens: Sequence[TokenEvidence], model: Seq2Seq, store_names: Mapping[str, str]
) -> tuple[dict[str, Any], ...]:
    """The evidence of one sentence; where a neighbour's token stands in its segment is worked out here."""
    segments = _Segments(model, store_names)
    return tuple(_token(token, segments) for token in tokens)


class _Segments:
    """Where tokens stand in stored targets, each target looked at once, and what its store is called."""

    def __init__(self, model: Seq2Seq, store_names: Mapping[str, str]) -> None:
        self._model, self.store_names = model, store_names
        self._spans: dict[str, list[tuple[int, int]]] = {}

    def span(self, target: str, position: int) -> tuple[int, int]:
        if target not in self._spans:
            self._spans[target] = token_spans(self._model, self._model.tokenize_targets([target])[0])
        known = self._spans[target]
        return known[position] if position < len(known) else (len(target), len(target))


def _token(token: TokenEvidence, segments: _Segments) -> dict[str, Any]:
    return {
        "token": token.token,
        "start": token.start,
        "end": token.end,
        "probability": token.probability,
        "nmt_probability": token.nmt_probability,
        "nmt_share": token.nmt_share,
        "is_models_first_choice": token.is_models_first_choice,
        "nmt_first_choices": [{"token": text, "probability": value} for text, value in token.nmt_first_choices],
        "size_probabilities": [{"k": k, "probability": value} for k, value in token.size_probabilities.items()],
        "neighbors": [_neighbor(neighbor, segments) for neighbor in token.neighbors],
    }


def _neighbor(neighbor: NeighborEvidence, segments: _Segments) -> dict[str, Any]:
    segment = neighbor.segment
    start, end = segments.span(segment.target, neighbor.position)
    return {
        "token": neighbor.token,
        "weight": neighbor.weight,
        "squared_distance": neighbor.squared_distance,
        "source": segment.source,
        "target": segment.target,
        "target_start": start,
        "target_end": end,
        "unit_id": segment.unit_id,
        "origin": segment.origin,
        "changed_at": segment.changed_at,
        "store": segments.store_names.get(neighbor.store),
    }
