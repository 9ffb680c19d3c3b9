"""The recall of an index, measured on real states against exact search."""

import numpy as np
import torch

from nearmt.datastore import Recall, Snapshot, TextLookup
from nearmt.retrieval.index.exact import StreamedIndex
from nearmt.retrieval.lists.retriever import ListRetriever
from nearmt.retrieval.neighbors import distance_weights
from nearmt.retrieval.search import Excluded, Retriever

LOW_MASS, LOW_RECALL = 0.75, 0.65  # 0.78 of the weight is the least that was measured, without a loss of BLEU
_ROWS = 128  # per search


def held_out_states(snapshot: Snapshot, num_queries: int, seed: int = 1) -> tuple[torch.Tensor, list[np.ndarray]]:
    """States of stored sentences, and for each the sentences to exclude: its own and those with equal text."""
    rng = np.random.default_rng(seed)
    alive = np.flatnonzero(snapshot.entry_mask(snapshot.live_sentences))
    entry_ids = np.sort(rng.choice(alive, min(num_queries, len(alive)), replace=False))
    lookup = TextLookup(snapshot)
    sentences = snapshot.sentence_ids_of(entry_ids)
    duplicates = {int(s): lookup.same_source_or_target(snapshot.text(int(s))) for s in np.unique(sentences)}
    return torch.from_numpy(snapshot.float_keys(entry_ids)), [duplicates[int(s)] for s in sentences]


def measure_recall(
    retriever: Retriever | ListRetriever, states: torch.Tensor, excluded: Excluded | None, k: int
) -> Recall:
    """Compare the search of the whole store with exact search."""
    is_exact = isinstance(retriever, Retriever) and retriever.index.is_exact
    found = None if is_exact else _found(retriever, states, excluded, k)
    return compare_with_exact(retriever.snapshot, states, excluded, k, found)


def compare_with_exact(
    snapshot: Snapshot,
    states: torch.Tensor,
    excluded: Excluded | None,
    k: int,
    found: torch.Tensor | None,
    temperature: float | None = None,
) -> Recall:
    """Compare the entry ids (rows, k) that were found with those of exact search; None stands for exact search itself.

    T defaults to the median distance of the nearest neighbour.
    """
    exact = Retriever(snapshot, StreamedIndex(snapshot)).search(states, k, excluded)
    if temperature is None:
        temperature = max(float(exact.squared_distances[:, 0].median()), 1e-6)
    weights = distance_weights(exact, temperature).double()  # (rows, K)
    hit = exact.found
    if found is not None:
        hit = (exact.entry_ids.unsqueeze(2) == found.unsqueeze(1)).any(dim=2) & exact.found
    mass = (weights * hit).sum(1) / weights.sum(1).clamp_min(1e-30)
    real = exact.found[:, 0]
    return Recall(
        k=k,
        recall=float(hit[real].sum() / exact.found[real].sum().clamp_min(1)),
        mass=float(mass[real].mean()) if bool(real.any()) else 1.0,
        temperature=temperature,
        num_queries=int(real.sum()),
    )


def _found(
    retriever: Retriever | ListRetriever, states: torch.Tensor, excluded: Excluded | None, k: int
) -> torch.Tensor:
    """(rows, k) entry ids, searched a few rows at a time as in decoding: remote indexes have a time limit."""
    parts = []
    for start in range(0, len(states), _ROWS):
        without = excluded[start : start + _ROWS] if excluded is not None else None
        parts.append(retriever.search(states[start : start + _ROWS], k, without).entry_ids)
    return torch.cat(parts) if parts else torch.zeros(0, k, dtype=torch.int64)
