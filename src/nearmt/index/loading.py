"""The index of a store, whatever searches it."""

from nearmt.index.base import Index
from nearmt.index.faiss_index import load_faiss
from nearmt.store import Snapshot


def load_index(snapshot: Snapshot) -> Index:
    """The index that the manifest names; exact search where it names none."""
    if (snapshot.manifest.index or {}).get("kind") == "milvus":
        from nearmt.index.milvus import MilvusIndex

        return MilvusIndex(snapshot)
    return load_faiss(snapshot)
