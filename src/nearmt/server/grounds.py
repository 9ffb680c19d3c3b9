"""Evidence for machines: every output token with its neighbours, as plain JSON values."""

from collections.abc import Sequence
from typing import Any

from nearmt.evidence import NeighborEvidence, TokenEvidence, token_spans
from nearmt.seq2seq import Seq2Seq


def describe_tokens(tokens: Sequence[TokenEvidence], model: Seq2Seq) -> tuple[dict[str, Any], ...]:
    """The evidence of one sentence; where a neighbour's token stands in its segment is worked out here."""
    spans: dict[str, list[tuple[int, int]]] = {}
    return tuple(_token(token, model, spans) for token in tokens)


def _token(token: TokenEvidence, model: Seq2Seq, spans: dict[str, list[tuple[int, int]]]) -> dict[str, Any]:
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
        "neighbors": [_neighbor(neighbor, model, spans) for neighbor in token.neighbors],
    }


def _neighbor(
    neighbor: NeighborEvidence, model: Seq2Seq, spans: dict[str, list[tuple[int, int]]]
) -> dict[str, Any]:
    segment = neighbor.segment
    if segment.target not in spans:
        spans[segment.target] = token_spans(model, model.tokenize_targets([segment.target])[0])
    known = spans[segment.target]
    start, end = known[neighbor.position] if neighbor.position < len(known) else (0, 0)
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
    }
