"""Creating, filling, extending and dropping the collection of a store.

A collection's name begins with a prefix that is unique to one folder (`owned_prefix`). A copy of a store names the same
collection, but never writes to it or drops it.
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
_STALLED_SECONDS = 1800.0  # without progress, before giving up
_LOADING_SECONDS = 60.0  # maximum wait until the server uses a finished index
_MIN_INDEXED = 1024  # rows; smaller segments get no index
_LONG_SECONDS = 120.0  # time limit for one attempt of a slow call
log = logging.getLogger(__name__)


def owned_prefix(home: Path, manifest: Manifest) -> str:
    """The prefix of the collections of the store in a folder. A moved folder keeps it; a copy gets another."""
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
    """Write all entries to a collection, or the remaining ones if an earlier attempt was interrupted.

    The name depends on the content, so that only an interrupted attempt with the same content is resumed.
    """
    manifest, total = snapshot.manifest, len(snapshot)
    parameters = choice.build_parameters(total)
    content = f"{manifest.generation} {manifest.version} {total} {choice.index_type} {sorted(parameters.items())}"
    name = owned_prefix(home, manifest) + hashlib.sha256(content.encode()).hexdigest()[:16]
    with closing(Connection(uri)) as connection:
        if not connection.call("has_collection", name):
            _create(connection, name, manifest.key_dims)
        # Indexed and loaded before it is filled, so that its entries can always be counted.
        _make_index(connection, name, choice.index_type, parameters)
        _write(connection, name, snapshot, _count(connection, name), on_progress)
        if total:
            _call_slow(connection, "flush", name)
            _wait_until(lambda: _num_indexed(connection, name), total, "indexed entries")
        _wait_until(lambda: _count(connection, name), total, "entries")
        _wait_for_loaded_index(connection, name)
    record = IndexRecord("milvus", str(choice), num_probes, total, uri=uri, collection=name)
    return replace(record, num_units=len(snapshot.units), num_at_making=total)


def extend_collection(home: Path, snapshot: Snapshot) -> IndexRecord | None:
    """Add the entries since the last write to the store's collection, if it belongs to this folder."""
    record = snapshot.manifest.index
    assert record is not None
    assert record.uri is not None
    assert record.collection is not None
    name, start = record.collection, record.num_entries
    if not name.startswith(owned_prefix(home, snapshot.manifest)):
        return None
    later = snapshot.units[record.num_units :]
    changed_sentences = np.unique(later["sentence"][later["is_first"] == 0])  # these have new origins
    ranges = [np.arange(*snapshot.entry_range(int(sentence))) for sentence in changed_sentences]
    changed = np.concatenate([np.zeros(0, np.int64), *ranges])
    tags = origin_tags(snapshot, len(snapshot.units))
    with closing(Connection(record.uri, name)) as connection:
        for batch in _batches(np.concatenate([changed[changed < start], np.arange(start, len(snapshot))]), snapshot):
            connection.call("upsert", name, _rows(snapshot, tags, batch))
        _wait_until(lambda: _count(connection, name), len(snapshot), "entries")
    return replace(record, num_entries=len(snapshot), num_units=len(snapshot.units))


def drop_collection(uri: str, name: str) -> None:
    """Drop one collection."""
    with closing(Connection(uri)) as connection:
        connection.call("drop_collection", name)


def drop_collections(uri: str, prefix: str, kept: str | None = None) -> None:
    """Drop the collections of a store except one. Those that cannot be dropped now are dropped the next time."""
    try:
        with closing(Connection(uri)) as connection:
            for name in connection.call("list_collections"):
                if name.startswith(prefix) and name != kept:
                    connection.call("drop_collection", name)
    except NearMTError as error:
        log.warning("an unused collection could not be dropped: %s", error)


def _create(connection: Connection, name: str, width: int) -> None:
    from pymilvus import DataType, MilvusClient

    schema = MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False)
    schema.add_field("id", DataType.INT64, is_primary=True)
    schema.add_field("key", DataType.FLOAT_VECTOR, dim=width)
    schema.add_field("value", DataType.INT32)
    schema.add_field("origin", DataType.INT64)
    # A manifest only counts entries that are already visible, so no search has to wait for writers.
    connection.call("create_collection", name, schema=schema, consistency_level="Bounded")


def _batches(entry_ids: np.ndarray, snapshot: Snapshot) -> list[np.ndarray]:
    rows = max(1, min(_WRITTEN_ROWS, _WRITTEN_BYTES // (4 * snapshot.manifest.key_dims)))
    return [entry_ids[start : start + rows] for start in range(0, len(entry_ids), rows)]


def _write(
    connection: Connection, name: str, snapshot: Snapshot, start: int, on_progress: Callable[[int], None]
) -> None:
    """Write the entries in order. Those before `start` are already there; at most one batch of them is rewritten."""
    tags = origin_tags(snapshot, len(snapshot.units))
    for batch in _batches(np.arange(len(snapshot)), snapshot):
        if batch[-1] >= start:
            connection.call("upsert" if start else "insert", name, _rows(snapshot, tags, batch))
        on_progress(int(batch[-1]) + 1)


def _rows(snapshot: Snapshot, tags: np.ndarray, entry_ids: np.ndarray) -> list[dict[str, Any]]:
    keys, values = snapshot.float_keys(entry_ids), snapshot.values[entry_ids].tolist()
    origins = tags[snapshot.sentence_ids_of(entry_ids)].tolist()
    return [
        {"id": entry_id, "key": key, "value": value, "origin": origin}
        for entry_id, key, value, origin in zip(entry_ids.tolist(), keys, values, origins, strict=True)
    ]


def _make_index(connection: Connection, name: str, index_type: str, parameters: dict[str, int]) -> None:
    from pymilvus import MilvusClient

    if "key" not in connection.call("list_indexes", name):
        wanted = MilvusClient.prepare_index_params()
        wanted.add_index("key", index_type=index_type, index_name="key", metric_type="L2", params=parameters)
        _call_slow(connection, "create_index", name, wanted)
    _call_slow(connection, "load_collection", name)


def _call_slow(connection: Connection, what: str, *args: Any) -> None:
    """Make a call that may take long; repeat it after a timeout as long as Milvus responds."""
    until = time.monotonic() + _STALLED_SECONDS
    while True:
        try:
            connection.call(what, *args, timeout=max(_LONG_SECONDS, connection.seconds))
            return
        except IndexUnavailableError:
            if time.monotonic() > until:
                raise
            connection.call("list_collections")  # raises if Milvus does not respond


def _num_indexed(connection: Connection, name: str) -> int:
    found = connection.call("describe_index", name, "key")
    return int(found["indexed_rows"]) if found.get("state") == "Finished" else -1


def _wait_for_loaded_index(connection: Connection, name: str) -> None:
    """Wait until a server searches with the finished index instead of a temporary one.

    Otherwise recall would be measured too early. This is best effort: small segments get no index, and not every
    Milvus reports it.
    """
    until = time.monotonic() + _LOADING_SECONDS
    while not is_lite(connection.uri) and time.monotonic() < until:
        try:
            segments = connection.call("list_loaded_segments", name)
        except IndexUnavailableError:
            return
        if all(segment.index_name or segment.num_rows < _MIN_INDEXED for segment in segments):
            return
        time.sleep(_POLL_SECONDS)


def _count(connection: Connection, name: str) -> int:
    """The number of entries that a search sees, after everything written is visible."""
    found: Sequence[dict[str, Any]] = connection.call(
        "query", name, filter="", output_fields=["count(*)"], consistency_level="Strong"
    )
    return int(found[0]["count(*)"])


def _wait_until(count: Callable[[], int], wanted: int, what: str) -> None:
    """Poll until the count is reached; give up if it stops growing."""
    seen, since = count(), time.monotonic()
    while seen < wanted:
        time.sleep(_POLL_SECONDS)
        now = count()
        if now != seen:
            seen, since = now, time.monotonic()
        elif time.monotonic() - since > _STALLED_SECONDS:
            raise IndexUnavailableError(f"Milvus stopped at {seen} of {wanted} {what}: see its log")
    if what == "entries" and seen > wanted:
        raise StoreError(f"Milvus holds {seen} entries, but the store has {wanted}: run nearmt index on the store")
