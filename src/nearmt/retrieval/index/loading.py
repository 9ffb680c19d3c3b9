"""Loading the index of a store, whatever kind it is."""

from nearmt.datastore import Snapshot
from nearmt.retrieval.index.base import Index
from nearmt.retrieval.index.faiss_index import load_faiss_index
from nearmt.retrieval.index.mapped import load_parts


def load_index(snapshot: Snapshot) -> Index:
    """The index in the manifest; exact search if there is none."""
    record = snapshot.manifest.index
    if record is not None and record.is_milvus:
        from nearmt.retrieval.index.milvus import MilvusIndex

        return MilvusIndex(snapshot)
    if record is not None and record.mapped_bytes is not None:
        return load_parts(snapshot, record, record.mapped_bytes)
    return load_faiss_index(snapshot, record)
