"""Searching in Milvus: the keys of a store in a collection, on a server or in a file of Milvus Lite.

The store's folder is authoritative. A collection holds a copy of what is searched (entry id, key, value, origin) and
can be rebuilt from the folder at any time. pymilvus is imported on first use.
"""

from nearmt.retrieval.index.milvus.choice import MilvusChoice, checked_uri, is_milvus
from nearmt.retrieval.index.milvus.collection import (
    drop_collection,
    drop_collections,
    extend_collection,
    make_collection,
    owned_prefix,
)
from nearmt.retrieval.index.milvus.connection import Connection
from nearmt.retrieval.index.milvus.search import MilvusIndex

__all__ = [
    "Connection",
    "MilvusChoice",
    "MilvusIndex",
    "checked_uri",
    "drop_collection",
    "drop_collections",
    "extend_collection",
    "is_milvus",
    "make_collection",
    "owned_prefix",
]
