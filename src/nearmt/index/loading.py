"""Opening the index of a store, whatever searches it."""

from nearmt.index.base import Index
from nearmt.index.faiss_index import load_faiss_index
from nearmt.index.parts import load_parts
from nearmt.store import Snapshot


def load_index(snapshot: Snapshot) -> Index:
    """The index that the manifest names; exact search where it names none."""
    description = snapshot.manifest.index
    if description is not None and description.get("kind") == "milvus":
        from nearmt.index.milvus import MilvusIndex

        return MilvusIndex(snapshot)
    if description is not None and "mapped_bytes" in description:
        return load_parts(snapshot, description)
    return load_faiss_index(snapshot, description)
