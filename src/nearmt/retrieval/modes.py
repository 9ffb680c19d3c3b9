"""The retriever of a store: by tokens, by sentences, or both."""

from collections.abc import Sequence

import torch

from nearmt.datastore import BOTH, SENTENCES, Filter, Snapshot
from nearmt.retrieval.index import Index
from nearmt.retrieval.neighbors import Neighbors
from nearmt.retrieval.search import Excluded, Retriever, TokenSearch
from nearmt.retrieval.sentences.index import SentenceIndex
from nearmt.retrieval.sentences.retriever import SentenceRetriever, SubsetSearch


class CombinedRetriever(Retriever):
    """Searches the whole store and, once more, the sentences that were chosen for the source.

    The index of the whole store is approximate; what it misses in the sentences that matter most is found there.
    """

    retrieval = BOTH

    def __init__(
        self, snapshot: Snapshot, index: Index | None = None, by_sentences: SentenceRetriever | None = None
    ) -> None:
        super().__init__(snapshot, index)
        self.by_sentences = by_sentences or SentenceRetriever(snapshot)
        self.max_entries = self.by_sentences.max_entries

    def filtered(self, wanted: Filter) -> "CombinedRetriever":
        narrower = super().filtered(wanted)
        assert isinstance(narrower, CombinedRetriever)
        if narrower is not self:
            narrower.by_sentences = self.by_sentences.filtered(wanted)
        return narrower

    def following(self, snapshot: Snapshot) -> "CombinedRetriever":
        kept = self.index if self.has_same_index(snapshot) else None
        return CombinedRetriever(snapshot, kept, self.by_sentences.following(snapshot))

    def start(self, texts: Sequence[str] | None, excluded: Excluded | None = None) -> "CombinedSearch":
        return CombinedSearch(TokenSearch(self, excluded), self.by_sentences.start(texts, excluded))


class CombinedSearch(TokenSearch):
    """The search of one batch of sources in both ways."""

    def __init__(self, tokens: TokenSearch, subsets: SubsetSearch) -> None:
        self._tokens, self._subsets = tokens, subsets

    def search(self, states: torch.Tensor, sources: torch.Tensor, k: int) -> Neighbors:
        """The nearest of what both ways have found."""
        found = [search.search(states, sources, k) for search in (self._tokens, self._subsets)]
        is_known = (found[1].entry_ids.unsqueeze(2) == found[0].entry_ids.unsqueeze(1)).any(dim=2)
        return Neighbors.sorted_from(
            torch.hstack([near.squared_distances for near in found]),
            torch.hstack([near.token_ids for near in found]),
            torch.hstack([found[0].entry_ids, found[1].entry_ids.masked_fill(is_known, -1)]),
            k,
        )


StoreRetriever = Retriever | SentenceRetriever


def sentence_index_of(retriever: StoreRetriever) -> SentenceIndex | None:
    """The sentence index of a retriever that has one."""
    if isinstance(retriever, SentenceRetriever):
        return retriever.index
    return retriever.by_sentences.index if isinstance(retriever, CombinedRetriever) else None


def open_retriever(snapshot: Snapshot, retrieval: str | None = None) -> StoreRetriever:
    """The retriever of a snapshot; of the kind that the store uses, unless another is given."""
    retrieval = retrieval or snapshot.manifest.retrieval
    if retrieval == SENTENCES:
        return SentenceRetriever(snapshot)
    return CombinedRetriever(snapshot) if retrieval == BOTH else Retriever(snapshot)


def following_retriever(retriever: StoreRetriever, snapshot: Snapshot) -> StoreRetriever:
    """A retriever of a later snapshot of the same store; keeps what is in memory where it is still the same."""
    if retriever.snapshot.manifest.retrieval != snapshot.manifest.retrieval:
        return open_retriever(snapshot)
    return retriever.following(snapshot)
