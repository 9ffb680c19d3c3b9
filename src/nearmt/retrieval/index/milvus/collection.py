"""Making, filling, extending and dropping the collection of a store.

A collection's name begins with what is proper to one folder (`owned_prefix`), so that a copy of a store, which names
the same collection, never writes to it nor drops it.
"""

import hashlib
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from nearmt.datastore import IndexRecord, Manifest, Snapshot
from nearmt.errors import IndexUnavailableError, NearMTError, StoreError
from nearmt.retrieval.index.milvus.choice import MilvusChoice, is_lite
from nearmt.retrieval.index.milvus.connection import Connection
from nearmt.retrieval.index.milvus.tags import origin_tags

_WRITTEN_BYTES = 8 << 20  # of keys in one request
_WRITTEN_ROWS = 4096
_POLL_SECONDS = 0.2
_UNCHANGED_SECONDS = 1800.0  # an index that grows no more for so long is given up
_LOADING_SECONDS = 60.0  # to wait at most until an index that is made is used
_FEWEST_INDEXED = 1024  # smaller segments get no index
_LONG_SECONDS = 120.0  # for one try of what takes long with many entries
log = logging.getLogger(__name__)


def owned_prefix(home: Path, manifest: Manifest) -> str:
    """What the collections of the store in a folder begin with: a moved folder keeps it, and a copy gets another."""
    named = f"{manifest.created_at} {home.stat().st_ino}"
    return f"nearmt_{hashlib.sha256(named.encode()).hexdigest()[:16]}_"


def make_collection(
    home: Path,
    snapshot: Snapshot,
    uri: str,
    choice: MilvusChoice,
    num_probes: int,
    on_progress: Callable[[int], None] = lambda entries: None,
) -> IndexRecord:
    """Put all entries into a collection, or the rest of them into one that was begun.

    The name follows from what is put in, so that a filling that was cut off is gone on with and no other one is.
    """
    manifest, total = snapshot.manifest, len(snapshot)
    making = choice.making(total)
    content = f"{manifest.generation} {manifest.version} {total} {choice.index_type} {sorted(making.items())}"
    name = owned_prefix(home, manifest) + hashlib.sha256(content.encode()).hexdigest()[:16]
    with closing(Connection(uri)) as connection:
        if not connection.call("has_collection", name):
            _create(connection, name, manifest.width)
        # Indexed and loaded before it is filled, it can always be asked how much is in it.
        _make_index(connection, name, choice.index_type, making)
        _write(connection, name, snapshot, _count(connection, name), on_progress)
        if total:
            _patiently(connection, "flush", name)
            _wait_until(lambda: _num_indexed(connection, name), total, "indexed entries")
        _wait_until(lambda: _count(connection, name), total, "entries")
        _wait_for_loaded_index(connection, name)
    record = IndexRecord("milvus", str(choice), num_probes, total, uri=uri, collection=name)
    return replace(record, num_units=len(snapshot.units), num_at_making=total)


def take_in(home: Path, snapshot: Snapshot) -> IndexRecord | None:
    """Carry later entries into the collection of a store, if it is this folder's own."""
    record = snapshot.manifest.index
    assert record is not None
    assert record.uri is not None
    assert record.collection is not None
    name, start = record.collection, record.num_entries
    if not name.startswith(owned_prefix(home, snapshot.manifest)):
        return None
    later = snapshot.units[record.num_units :]
    named_again = np.unique(later["sentence"][later["is_first"] == 0])  # they have more origins than they had
    again = [np.arange(*snapshot.entry_range(int(sentence))) for sentence in named_again]
    changed = np.concatenate([np.zeros(0, np.int64), *again])
    tags = origin_tags(snapshot, len(snapshot.units))
    with closing(Connection(record.uri, name)) as connection:
        for piece in _pieces(np.concatenate([changed[changed < start], np.arange(start, len(snapshot))]), snapshot):
            connection.call("upsert", name, _rows(snapshot, tags, piece))
        _wait_until(lambda: _count(connection, name), len(snapshot), "entries")
    return replace(record, num_entries=len(snapshot), num_units=len(snapshot.units))


def drop_collection(uri: str, name: str) -> None:
    """Drop one collection."""
    with closing(Connection(uri)) as connection:
        connection.call("drop_collection", name)


def drop_collections(uri: str, prefix: str, kept: str | None = None) -> None:
    """Drop the collections of a store but one. What cannot be dropped now is dropped the next time."""
    try:
        with closing(Connection(uri)) as connection:
            for name in connection.call("list_collections"):
                if name.startswith(prefix) and name != kept:
                    connection.call("drop_collection", name)
    except NearMTError as error:
        log.warning("a collection that is needed no more could not be dropped: %s", error)


def _create(connection: Connection, name: str, width: int) -> None:
    from pymilvus import DataType, MilvusClient

    schema = MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False)
    schema.add_field("id", DataType.INT64, is_primary=True)
    schema.add_field("key", DataType.FLOAT_VECTOR, dim=width)
    schema.add_field("value", DataType.INT32)
    schema.add_field("origin", DataType.INT64)
    # Before a manifest names entries, it is made sure that they are seen; so no search has to wait for writers.
    connection.call("create_collection", name, schema=schema, consistency_level="Bounded")


def _pieces(entry_ids: np.ndarray, snapshot: Snapshot) -> list[np.ndarray]:
    rows = max(1, min(_WRITTEN_ROWS, _WRITTEN_BYTES // (4 * snapshot.manifest.width)))
    return [entry_ids[start : start + rows] for start in range(0, len(entry_ids), rows)]


def _write(
    connection: Connection, name: str, snapshot: Snapshot, start: int, on_progress: Callable[[int], None]
) -> None:
    """Write the entries in order; of those before `start`, which are there, at most a part of a piece again."""
    tags = origin_tags(snapshot, len(snapshot.units))
    for piece in _pieces(np.arange(len(snapshot)), snapshot):
        if piece[-1] >= start:
            connection.call("upsert" if start else "insert", name, _rows(snapshot, tags, piece))
        on_progress(int(piece[-1]) + 1)


def _rows(snapshot: Snapshot, tags: np.ndarray, entry_ids: np.ndarray) -> list[dict[str, Any]]:
    keys, values = snapshot.float_keys(entry_ids), snapshot.values[entry_ids].tolist()
    origins = tags[snapshot.sentence_ids_of(entry_ids)].tolist()
    return [
        {"id": entry_id, "key": key, "value": value, "origin": origin}
        for entry_id, key, value, origin in zip(entry_ids.tolist(), keys, values, origins, strict=True)
    ]


def _make_index(connection: Connection, name: str, index_type: str, making: dict[str, int]) -> None:
    from pymilvus import MilvusClient

    if "key" not in connection.call("list_indexes", name):
        wanted = MilvusClient.prepare_index_params()
        wanted.add_index("key", index_type=index_type, index_name="key", metric_type="L2", params=making)
        _patiently(connection, "create_index", name, wanted)
    _patiently(connection, "load_collection", name)


def _patiently(connection: Connection, what: str, *args: Any) -> None:
    """Do what may take long, as often as it takes, as long as Milvus is there."""
    until = time.monotonic() + _UNCHANGED_SECONDS
    while True:
        try:
            connection.call(what, *args, timeout=max(_LONG_SECONDS, connection.seconds))
            return
        except IndexUnavailableError:
            if time.monotonic() > until:
                raise
            connection.call("list_collections")  # raises if it has gone


def _num_indexed(connection: Connection, name: str) -> int:
    found = connection.call("describe_index", name, "key")
    return int(found["indexed_rows"]) if found.get("state") == "Finished" else -1


def _wait_for_loaded_index(connection: Connection, name: str) -> None:
    """Until a server searches by the index that it has made, and no longer by a makeshift one of its own.

    Without it, what the index finds would be measured too early. It is a courtesy: a small segment gets no index, and
    not every Milvus tells.
    """
    until = time.monotonic() + _LOADING_SECONDS
    while not is_lite(connection.uri) and time.monotonic() < until:
        try:
            segments = connection.call("list_loaded_segments", name)
        except IndexUnavailableError:
            return
        if all(segment.index_name or segment.num_rows < _FEWEST_INDEXED for segment in segments):
            return
        time.sleep(_POLL_SECONDS)


def _count(connection: Connection, name: str) -> int:
    """What a search sees, waiting for all that was written."""
    found: Sequence[dict[str, Any]] = connection.call(
        "query", name, filter="", output_fields=["count(*)"], consistency_level="Strong"
    )
    return int(found[0]["count(*)"])


def _wait_until(look: Callable[[], int], wanted: int, what: str) -> None:
    """Look from time to time until there is enough, as long as it still grows."""
    seen, since = look(), time.monotonic()
    while seen < wanted:
        time.sleep(_POLL_SECONDS)
        now = look()
        if now != seen:
            seen, since = now, time.monotonic()
        elif time.monotonic() - since > _UNCHANGED_SECONDS:
            raise IndexUnavailableError(f"Milvus stays at {seen} of {wanted} {what}: its log may say why")
    if what == "entries" and seen > wanted:
        raise StoreError(f"Milvus holds {seen} entries of a store that has {wanted}: run nearmt index on the store")
