"""Restricting a faiss search to some of the entries."""

from typing import Any

import faiss as _faiss

from nearmt.retrieval.index.base import Allowed

faiss: Any = _faiss  # its type stubs lack the arguments of these classes


def search_parameters(index: Any, allowed: Allowed | None, only_first: int | None = None) -> Any:
    """The parameters of a search among the allowed entries, or among the first ones; None to search all.

    The returned object keeps everything that it points to alive.
    """
    if allowed is not None:
        selector = faiss.IDSelectorBitmap(len(allowed.bits), faiss.swig_ptr(allowed.bits))
    elif only_first is not None:
        selector = faiss.IDSelectorRange(0, only_first)
    else:
        return None
    parameters = _parameters(faiss.downcast_index(index), selector)
    parameters.nearmt_keeps = (selector, allowed)
    return parameters


def _parameters(index: Any, selector: Any) -> Any:
    if isinstance(index, faiss.IndexPreTransform):
        return faiss.SearchParametersPreTransform(index_params=_parameters(faiss.downcast_index(index.index), selector))
    if isinstance(index, faiss.IndexRefine):
        inner = _parameters(faiss.downcast_index(index.base_index), selector)
        return faiss.IndexRefineSearchParameters(k_factor=index.k_factor, base_index_params=inner)
    if isinstance(index, faiss.IndexIVF):
        return faiss.SearchParametersIVF(sel=selector, nprobe=index.nprobe)
    if isinstance(index, faiss.IndexHNSW):
        return faiss.SearchParametersHNSW(sel=selector, efSearch=index.hnsw.efSearch)
    return faiss.SearchParameters(sel=selector)
