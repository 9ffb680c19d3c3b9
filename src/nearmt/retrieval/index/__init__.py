"""Nearest neighbours of a state among the stored keys.

An index proposes candidates; the retriever measures the distances that count. `Index` is all that another
search engine has to offer.
"""

from nearmt.retrieval.index.base import Allowed, GrowingIndex, Index
from nearmt.retrieval.index.faiss_index import FaissIndex, build_index, choose_factory
from nearmt.retrieval.index.loading import load_index
from nearmt.retrieval.index.measured import measured

__all__ = ["Allowed", "FaissIndex", "GrowingIndex", "Index", "build_index", "choose_factory", "load_index", "measured"]
