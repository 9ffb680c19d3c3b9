"""Nearest neighbours of a state among the stored keys.

An index proposes candidates, and the retriever computes their exact distances. Another search engine only has to
implement `Index`.
"""

from nearmt.retrieval.index.base import Allowed, GrowingIndex, Index
from nearmt.retrieval.index.faiss_index import FaissIndex, build_index, choose_factory
from nearmt.retrieval.index.loading import load_index
from nearmt.retrieval.index.reranking import reranking_index

__all__ = [
    "Allowed",
    "FaissIndex",
    "GrowingIndex",
    "Index",
    "build_index",
    "choose_factory",
    "load_index",
    "reranking_index",
]
