"""The retriever of a store: by tokens, by sentences, or both."""

from collections.abc import Sequence

import torch

from nearmt.datastore import BOTH, SENTENCES, Filter, Snapshot
from nearmt.retrieval.columns import StoredColumns
from nearmt.retrieval.lists.retriever import ListRetriever, ListSearch
from nearmt.retrieval.neighbors import Neighbors
from nearmt.retrieval.search import Excluded, Retriever, TokenSearch
from nearmt.retrieval.sentences.index import SentenceIndex
from nearmt.retrieval.sentences.retriever import SentenceRetriever, SubsetSearch

TokenRetriever = Retriever | ListRetriever


class CombinedRetriever(StoredColumns):
    """Searches the whole store and, once more, the sentences that were chosen for the source.

    The index of the whole store is approximate; what it misses in the sentences that matter most is found there.
    """

    retrieval = BOTH

    def __init__(
        self, snapshot: Snapshot, by_tokens: TokenRetriever | None = None, by_sentences: SentenceRetriever | None = None
    ) -> None:
        super().__init__(snapshot)
        self.by_tokens = by_tokens or open_tokens(snapshot)
        self.by_sentences = by_sentences or SentenceRetriever(snapshot)
        self.max_entries = self.by_sentences.max_entries

    def filtered(self, wanted: Filter) -> "CombinedRetriever":
        """The same search, in a part of the store."""
        if wanted.is_empty:
            return self
        return CombinedRetriever(self.snapshot, self.by_tokens.filtered(wanted), self.by_sentences.filtered(wanted))

    def following(self, snapshot: Snapshot) -> "CombinedRetriever":
        """A retriever of a later snapshot; keeps what is in memory where it is still the same."""
        return CombinedRetriever(
            snapshot, _following_tokens(self.by_tokens, snapshot), self.by_sentences.following(snapshot)
        )

    def start(self, texts: Sequence[str] | None, excluded: Excluded | None = None) -> "CombinedSearch":
        """The search of a batch of sources; `excluded` lists, for each source, sentences that must not be found."""
        return CombinedSearch(self.by_tokens.start(texts, excluded), self.by_sentences.start(texts, excluded))


class CombinedSearch:
    """The search of one batch of sources in both ways."""

    def __init__(self, tokens: TokenSearch | ListSearch, subsets: SubsetSearch) -> None:
        self._tokens, self._subsets = tokens, subsets

    def search(self, states: torch.Tensor, sources: torch.Tensor, k: int) -> Neighbors:
        """The nearest of what both ways have found."""
        found = [self._tokens.search(states, sources, k), self._subsets.search(states, sources, k)]
        is_known = (found[1].entry_ids.unsqueeze(2) == found[0].entry_ids.unsqueeze(1)).any(dim=2)
        return Neighbors.sorted_from(
            torch.hstack([near.squared_distances for near in found]),
            torch.hstack([near.token_ids for near in found]),
            torch.hstack([found[0].entry_ids, found[1].entry_ids.masked_fill(is_known, -1)]),
            k,
        )


StoreRetriever = TokenRetriever | SentenceRetriever | CombinedRetriever


def sentence_index_of(retriever: StoreRetriever) -> SentenceIndex | None:
    """The sentence index of a retriever that has one."""
    if isinstance(retriever, SentenceRetriever):
        return retriever.index
    return retriever.by_sentences.index if isinstance(retriever, CombinedRetriever) else None


def open_tokens(snapshot: Snapshot) -> TokenRetriever:
    """A search of all entries with the index of a snapshot."""
    record = snapshot.manifest.index
    return ListRetriever(snapshot) if record is not None and record.is_lists else Retriever(snapshot)


def _following_tokens(retriever: TokenRetriever, snapshot: Snapshot) -> TokenRetriever:
    """A search of all entries of a later snapshot, whose index may be of another kind."""
    if retriever.snapshot.manifest.index == snapshot.manifest.index:
        return retriever.following(snapshot)
    return open_tokens(snapshot)


def open_retriever(snapshot: Snapshot, retrieval: str | None = None) -> StoreRetriever:
    """The retriever of a snapshot; of the kind that the store uses, unless another is given."""
    retrieval = retrieval or snapshot.manifest.retrieval
    if retrieval == SENTENCES:
        return SentenceRetriever(snapshot)
    return CombinedRetriever(snapshot) if retrieval == BOTH else open_tokens(snapshot)


def following_retriever(retriever: StoreRetriever, snapshot: Snapshot) -> StoreRetriever:
    """A retriever of a later snapshot of the same store; keeps what is in memory where it is still the same."""
    if retriever.snapshot.manifest.retrieval != snapshot.manifest.retrieval:
        return open_retriever(snapshot)
    if isinstance(retriever, Retriever | ListRetriever):
        return _following_tokens(retriever, snapshot)
    return retriever.following(snapshot)
