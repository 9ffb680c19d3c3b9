"""Evidence as JSON values: every output token with its neighbours."""

from collections.abc import Mapping, Sequence
from typing import Any

from nearmt.decoding.evidence import NeighborEvidence, TokenEvidence, token_spans
from nearmt.models import Seq2Seq


def describe_tokens(
    tokens: Sequence[TokenEvidence], model: Seq2Seq, store_names: Mapping[str, str]
) -> tuple[dict[str, Any], ...]:
    """The evidence of one sentence, including the position of each neighbour's token in its segment."""
    positions = _TokenPositions(model)
    return tuple(_token(token, positions, store_names) for token in tokens)


class _TokenPositions:
    """Positions of tokens in stored targets, computed once per target."""

    def __init__(self, model: Seq2Seq) -> None:
        self._model = model
        self._spans: dict[str, list[tuple[int, int]]] = {}

    def span(self, target: str, position: int) -> tuple[int, int]:
        if target not in self._spans:
            self._spans[target] = token_spans(self._model, self._model.tokenize_targets([target])[0])
        spans = self._spans[target]
        return spans[position] if position < len(spans) else (len(target), len(target))  # the end of the sentence


def _token(token: TokenEvidence, positions: _TokenPositions, store_names: Mapping[str, str]) -> dict[str, Any]:
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
        "neighbors": [_neighbor(neighbor, positions, store_names) for neighbor in token.neighbors],
    }


def _neighbor(neighbor: NeighborEvidence, positions: _TokenPositions, store_names: Mapping[str, str]) -> dict[str, Any]:
    segment = neighbor.segment
    start, end = positions.span(segment.target, neighbor.position)
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
        "store": store_names.get(neighbor.store),
    }
