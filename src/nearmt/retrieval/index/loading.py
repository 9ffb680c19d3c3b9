"""Opening the index of a store, whatever searches it."""

from nearmt.datastore import Snapshot
from nearmt.retrieval.index.base import Index
from nearmt.retrieval.index.faiss_index import load_faiss_index
from nearmt.retrieval.index.parts import load_parts


def load_index(snapshot: Snapshot) -> Index:
    """The index that the manifest names; exact search where it names none."""
    record = snapshot.manifest.index
    if record is not None and record.is_milvus:
        from nearmt.retrieval.index.milvus import MilvusIndex

        return MilvusIndex(snapshot)
    if record is not None and record.mapped_bytes is not None:
        return load_parts(snapshot, record, record.mapped_bytes)
    return load_faiss_index(snapshot, record)
