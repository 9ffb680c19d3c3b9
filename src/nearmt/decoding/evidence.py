"""Evidence for each output token: its neighbours, and the model's own probabilities.

Decoding records nothing. The output is force-decoded, which gives the same states, and searched again, so evidence
costs nothing until it is requested.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from nearmt.corpus import SentencePair
from nearmt.decoding.decoder import Decoder
from nearmt.methods.mixture import mix
from nearmt.methods.retrieved import Retrieved
from nearmt.models import Seq2Seq
from nearmt.retrieval.neighbors import Neighbors

_FIRST_CHOICES = 5
_PROJECTED_ROWS = 512


@dataclass(frozen=True)
class NeighborEvidence:
    """A neighbour of an output token, and the segment it comes from."""

    token: str
    token_id: int
    squared_distance: float
    weight: float  # its contribution to the probability of its token
    segment: SentencePair
    position: int  # of the token in the segment's target, in tokens
    entry_id: int
    sentence_id: int
    store: str  # the folder of its store


@dataclass(frozen=True)
class TokenEvidence:
    """Why the decoder chose one output token."""

    token: str
    token_id: int
    start: int  # position in the output text, in characters
    end: int
    probability: float  # in the mixture
    nmt_probability: float  # by the model alone
    nmt_share: float  # the model's part of the mixture
    nmt_first_choices: tuple[tuple[str, float], ...]  # of the model alone, after the same prefix
    size_probabilities: dict[int, float]  # number of neighbours → its probability
    neighbors: tuple[NeighborEvidence, ...]  # nearest first
    is_models_first_choice: bool


@dataclass(frozen=True)
class _TokenMixture:
    """How the mixture produced one output token."""

    probability: float
    nmt_share: float = 1.0
    size_probabilities: dict[int, float] = field(default_factory=lambda: {0: 1.0})
    neighbors: tuple[NeighborEvidence, ...] = ()


def explain_tokens(
    decoder: Decoder, source: Sequence[int], token_ids: Sequence[int], offset: int = 0, text: str | None = None
) -> list[TokenEvidence]:
    """The evidence for each output token except forced language codes; `offset` is where the output's text begins.

    `text` is the source as text, which retrieval by sentences needs.
    """
    model = decoder.model
    target = list(token_ids[len(model.forced_prefix) :])
    if not target:
        return []
    forced = model.force_decode([source], [target], keep_unknown=True)
    log_probs = model.project(forced.states).log_softmax(dim=1).cpu()
    output = forced.token_ids.cpu().unsqueeze(1)  # (tokens, 1)
    nmt_probabilities = log_probs.gather(1, output).squeeze(1).exp().tolist()
    first = log_probs.topk(min(_FIRST_CHOICES, log_probs.shape[1]), dim=1)
    if decoder.method is None:
        mixtures = [_TokenMixture(probability) for probability in nmt_probabilities]
    else:
        mixtures = _mixtures(decoder, text, forced.states, log_probs, output)
    return [
        TokenEvidence(
            token=model.token_texts([token])[0],
            token_id=token,
            start=offset + start,
            end=offset + end,
            probability=mixture.probability,
            nmt_probability=nmt_probability,
            nmt_share=mixture.nmt_share,
            nmt_first_choices=tuple(zip(model.token_texts(choices), probabilities, strict=True)),
            size_probabilities=mixture.size_probabilities,
            neighbors=mixture.neighbors,
            is_models_first_choice=choices[0] == token,
        )
        for token, (start, end), nmt_probability, mixture, choices, probabilities in zip(
            target,
            token_spans(model, target),
            nmt_probabilities,
            mixtures,
            first.indices.tolist(),
            first.values.exp().tolist(),
            strict=True,
        )
    ]


def _mixtures(
    decoder: Decoder, text: str | None, states: torch.Tensor, log_probs: torch.Tensor, output: torch.Tensor
) -> list[_TokenMixture]:
    """Retrieve and weigh the neighbours of every output token, as decoding did."""
    assert decoder.method is not None
    assert decoder.retriever is not None
    search = decoder.retriever.start(None if text is None else [text])
    neighbors = search.search(states, torch.zeros(len(states), dtype=torch.int64), decoder.method.max_k)
    weights = decoder.method.weigh(Retrieved.at(states, log_probs, neighbors, decoder.retriever))
    neighbors = neighbors.nearest(weights.neighbor_weights.shape[1])
    mixed = mix(log_probs.clone(), weights, neighbors.token_ids)
    rows = zip(
        mixed.gather(1, output).squeeze(1).exp().tolist(),
        weights.nmt_share.tolist(),
        weights.size_probabilities.tolist(),
        weights.neighbor_weights.tolist(),
        strict=True,
    )
    return [
        _TokenMixture(
            probability,
            nmt_share,
            dict(zip(weights.sizes, size_probabilities, strict=True)),
            _neighbor_evidence(decoder, neighbors.rows(slice(row, row + 1)), neighbor_weights),
        )
        for row, (probability, nmt_share, size_probabilities, neighbor_weights) in enumerate(rows)
    ]


def _neighbor_evidence(
    decoder: Decoder, neighbors: Neighbors, weights: Sequence[float]
) -> tuple[NeighborEvidence, ...]:
    """The evidence from the neighbours of one token, which are a single row."""
    assert decoder.retriever is not None
    found = []
    columns = (neighbors.entry_ids[0], neighbors.squared_distances[0], neighbors.token_ids[0])
    for entry_id, distance, token_id, weight in zip(*(column.tolist() for column in columns), weights, strict=True):
        if entry_id < 0:
            continue
        snapshot, stored_id = decoder.retriever.stored_at(entry_id)
        sentence_id = int(snapshot.sentence_ids_of(stored_id))
        found.append(
            NeighborEvidence(
                token=decoder.model.token_texts([token_id])[0],
                token_id=token_id,
                squared_distance=distance,
                weight=weight,
                segment=snapshot.text(sentence_id),
                position=int(snapshot.positions[stored_id]),
                entry_id=stored_id,
                sentence_id=sentence_id,
                store=str(snapshot.folder),
            )
        )
    return tuple(found)


def token_spans(model: Seq2Seq, token_ids: Sequence[int]) -> list[tuple[int, int]]:
    """The character span of each token: what it adds to the detokenised text."""
    texts = model.detokenize([token_ids[: i + 1] for i in range(len(token_ids))])
    ends = [len(text) for text in texts]
    return [(min(start, end), end) for start, end in zip([0, *ends], ends, strict=False)]


def share_not_first_choice(
    decoder: Decoder, sources: Sequence[Sequence[int]], outputs: Sequence[Sequence[int]], batch_size: int = 32
) -> float:
    """The share of output tokens that are not the model's first choice after the same prefix."""
    model = decoder.model
    targets = [list(output[len(model.forced_prefix) :]) for output in outputs]
    order = sorted((i for i in range(len(targets)) if targets[i]), key=lambda i: len(targets[i]))
    differing = total = 0
    for start in range(0, len(order), batch_size):
        rows = order[start : start + batch_size]
        forced = model.force_decode([sources[i] for i in rows], [targets[i] for i in rows], keep_unknown=True)
        for at in range(0, len(forced.states), _PROJECTED_ROWS):
            part = slice(at, at + _PROJECTED_ROWS)
            differing += int((model.project(forced.states[part]).argmax(dim=1) != forced.token_ids[part]).sum())
        total += len(forced.token_ids)
    return differing / max(total, 1)
