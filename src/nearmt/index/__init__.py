"""Nearest neighbours of a state among the stored keys.

An index proposes candidates; the retriever measures the distances that count. `Index` is all that another
search engine has to offer.
"""

from nearmt.index.base import Allowed, Index
from nearmt.index.faiss_index import FaissIndex, build_index, choose_factory
from nearmt.index.loading import load_index
from nearmt.index.measured import measured

__all__ = ["Allowed", "FaissIndex", "Index", "build_index", "choose_factory", "load_index", "measured"]
