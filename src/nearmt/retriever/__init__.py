"""From decoder states to neighbours: one store or several, as they stand or while they change."""

from nearmt.retriever.merged import MergedRetriever
from nearmt.retriever.reader import Reader
from nearmt.retriever.search import PROBES, RERANKED, Retriever

AnyRetriever = Retriever | MergedRetriever

__all__ = ["PROBES", "RERANKED", "AnyRetriever", "MergedRetriever", "Reader", "Retriever"]
