"""Why a word came out: the model's own view of each output token, and the neighbours that voted for it.

Nothing is recorded while decoding. The output is force-decoded once more, which gives the same states, and
searched again; so evidence costs nothing until somebody asks for it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from nearmt.corpus import SentencePair
from nearmt.decoding.decoder import Decoder
from nearmt.methods.mixture import mix
from nearmt.methods.retrieved import Retrieved
from nearmt.models import Seq2Seq
from nearmt.retrieval.merged import AnyRetriever

_FIRST_CHOICES = 5
_PROJECTED_ROWS = 512


@dataclass(frozen=True)
class NeighborEvidence:
    """One stored token that was near, and the segment it comes from."""

    token: str
    token_id: int
    squared_distance: float
    weight: float  # what it added to the probability of its token
    segment: SentencePair
    position: int  # of the token in the segment's target, counted in tokens
    entry_id: int
    sentence_id: int
    store: str  # the folder that it is in


@dataclass(frozen=True)
class TokenEvidence:
    """Why one output token came out."""

    token: str
    token_id: int
    start: int  # where the token stands in the output text, in characters
    end: int
    probability: float  # in the mixture
    nmt_probability: float  # by the model alone
    nmt_share: float  # the model's part of the mixture
    nmt_first_choices: tuple[tuple[str, float], ...]  # what the model alone would say after the same prefix
    size_probabilities: dict[int, float]  # how likely it is to believe so many neighbours
    neighbors: tuple[NeighborEvidence, ...]  # nearest first
    is_models_first_choice: bool


def explain_tokens(
    decoder: Decoder, source: Sequence[int], token_ids: Sequence[int], offset: int = 0
) -> list[TokenEvidence]:
    """The evidence for each token of an output, forced language codes aside; `offset` is where its text begins."""
    model = decoder.model
    target = list(token_ids[len(model.forced_prefix) :])
    if not target:
        return []
    spans = token_spans(model, target)
    forced = model.force_decode([source], [target], keep_unknown=True)
    own = model.project(forced.states).log_softmax(dim=1).cpu()
    gold = forced.token_ids.cpu().unsqueeze(1)
    own_probability = own.gather(1, gold).squeeze(1).exp()
    first = own.topk(min(_FIRST_CHOICES, own.shape[1]), dim=1)
    probability, shares = own_probability, [1.0] * len(target)
    neighbors: list[tuple[NeighborEvidence, ...]] = [()] * len(target)
    sizes: list[dict[int, float]] = [{0: 1.0}] * len(target)
    if decoder.method is not None and decoder.retriever is not None:
        near = decoder.retriever.search(forced.states, decoder.method.max_k)
        weights = decoder.method.weigh(Retrieved.at(forced.states, own, near, decoder.retriever))
        near = near.nearest(weights.neighbor_weights.shape[1])
        probability = mix(own.clone(), weights, near.token_ids).gather(1, gold).squeeze(1).exp()
        shares = weights.nmt_share.tolist()
        sizes = [dict(zip(weights.sizes, row, strict=True)) for row in weights.size_probabilities.tolist()]
        neighbors = [
            tuple(
                _neighbor(decoder.retriever, model.token_texts([token])[0], token, entry_id, distance, weight)
                for entry_id, distance, weight, token in zip(*columns, strict=True)
                if entry_id >= 0
            )
            for columns in zip(
                near.entry_ids.tolist(),
                near.squared_distances.tolist(),
                weights.neighbor_weights.tolist(),
                near.token_ids.tolist(),
                strict=True,
            )
        ]
    return [
        TokenEvidence(
            token=model.token_texts([token])[0],
            token_id=token,
            start=offset + spans[i][0],
            end=offset + spans[i][1],
            probability=float(probability[i]),
            nmt_probability=float(own_probability[i]),
            nmt_share=shares[i],
            nmt_first_choices=tuple(
                zip(model.token_texts(first.indices[i].tolist()), first.values[i].exp().tolist(), strict=True)
            ),
            size_probabilities=sizes[i],
            neighbors=neighbors[i],
            is_models_first_choice=int(first.indices[i, 0]) == token,
        )
        for i, token in enumerate(target)
    ]


def token_spans(model: Seq2Seq, token_ids: Sequence[int]) -> list[tuple[int, int]]:
    """Where each token stands in the detokenised text: what the text grows by when the token is added."""
    texts = model.detokenize([token_ids[: i + 1] for i in range(len(token_ids))])
    ends = [len(text) for text in texts]
    return [(min(start, end), end) for start, end in zip([0, *ends], ends, strict=False)]


def _neighbor(
    retriever: AnyRetriever, text: str, token_id: int, entry_id: int, distance: float, weight: float
) -> NeighborEvidence:
    snapshot, stored_id = retriever.stored_at(entry_id)
    sentence_id = int(snapshot.sentence_ids_of(stored_id))
    return NeighborEvidence(
        token=text,
        token_id=token_id,
        squared_distance=distance,
        weight=weight,
        segment=snapshot.text(sentence_id),
        position=int(snapshot.positions[stored_id]),
        entry_id=stored_id,
        sentence_id=sentence_id,
        store=str(snapshot.folder),
    )


def share_not_first_choice(
    decoder: Decoder, sources: Sequence[Sequence[int]], outputs: Sequence[Sequence[int]], batch_size: int = 32
) -> float:
    """The share of output tokens that the model alone would not have chosen after the same prefix."""
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
