"""Opening the index of a store, whatever searches it."""

from nearmt.datastore import Snapshot
from nearmt.retrieval.index.base import Index
from nearmt.retrieval.index.faiss_index import load_faiss_index
from nearmt.retrieval.index.parts import load_parts


def load_index(snapshot: Snapshot) -> Index:
    """The index that the manifest names; exact search where it names none."""
    description = snapshot.manifest.index
    if description is not None and description.get("kind") == "milvus":
        from nearmt.retrieval.index.milvus import MilvusIndex

        return MilvusIndex(snapshot)
    if description is not None and "mapped_bytes" in description:
        return load_parts(snapshot, description)
    return load_faiss_index(snapshot, description)
