"""A connection to Milvus that is opened on first use and reopened after a failure; maps pymilvus's errors to ours."""

import logging
import os
import threading
from typing import Any

from nearmt.errors import IndexUnavailableError, MissingExtraError, NearMTError, SettingError, StoreDamagedError
from nearmt.retrieval.index.milvus.choice import is_lite

_SECONDS = 20.0
_RECONNECT_SECONDS = 2.0  # time limit for connecting again after a failure
_NOT_FOUND = (4, 100)  # Milvus's error codes for a missing collection, old and new
# Every call has a time limit, so frequent keep-alive pings are unnecessary; Milvus Lite closes connections over them.
_CHANNEL_OPTIONS = {"grpc.keepalive_time_ms": 600_000, "grpc.keepalive_permit_without_calls": 0}


class CollectionGoneError(StoreDamagedError):
    """Milvus responds, but the store's collection is missing."""


class Connection:
    """Calls one Milvus, with a time limit for every call. Threads can share it.

    If a collection is given, it is loaded after every connect: a restarted Milvus may have it on disk only.
    """

    def __init__(self, uri: str, collection: str | None = None) -> None:
        self.uri, self.seconds = uri, _seconds()
        self._collection = collection
        self._lock = threading.Lock()
        self._client: Any = None
        self._was_lost = False

    def call(self, name: str, *args: Any, **options: Any) -> Any:
        """Call a method of pymilvus's client, which retries by itself within the time limit."""
        client = self._connected()
        options.setdefault("timeout", self.seconds)
        try:
            return getattr(client, name)(*args, **options)
        except Exception as error:
            with self._lock:
                if self._client is client and not _is_not_found(error):
                    self._client, self._was_lost = None, True  # the next call reconnects
                    _close(client)
            raise self._mapped(error) from error

    def _connected(self) -> Any:
        with self._lock:
            if self._client is None:
                client = None
                try:
                    client = self._connect()
                    if self._collection is not None:
                        client.load_collection(self._collection, timeout=self.seconds)
                except MissingExtraError:
                    raise
                except Exception as error:
                    if client is not None:
                        _close(client)
                    self._was_lost = True
                    raise self._mapped(error) from error
                self._client, self._was_lost = client, False
            return self._client

    def _connect(self) -> Any:
        return _pymilvus().MilvusClient(
            self.uri,
            token=os.environ.get("NEARMT_MILVUS_TOKEN", ""),
            timeout=min(self.seconds, _RECONNECT_SECONDS) if self._was_lost else self.seconds,
            dedicated=True,
            grpc_options=_CHANNEL_OPTIONS,
        )

    def _mapped(self, error: Exception) -> NearMTError:
        """One of our errors for one of pymilvus's."""
        if _is_not_found(error):
            return CollectionGoneError(f"Milvus at {self.uri} does not have the store's collection: {_reason(error)}")
        if is_lite(self.uri) and "Open local milvus failed" in str(error):
            return IndexUnavailableError(f"{self.uri} cannot be opened by Milvus Lite: is another process using it?")
        return IndexUnavailableError(f"Milvus at {self.uri} does not respond correctly: {_reason(error)}")

    def close(self) -> None:
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            _close(client)


def _is_not_found(error: Exception) -> bool:
    return getattr(error, "code", None) in _NOT_FOUND or "collection not found" in str(error)


def _close(client: Any) -> None:
    try:
        client.close()
    except Exception:  # it is not used any more
        logging.getLogger(__name__).debug("closing a connection to Milvus failed", exc_info=True)


def _pymilvus() -> Any:
    try:
        import pymilvus
    except ImportError:
        raise MissingExtraError("searching in Milvus", "nearmt[milvus]") from None
    for name in ("pymilvus", "milvus_lite"):  # they log every error that they also raise
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return pymilvus


def _seconds() -> float:
    given = os.environ.get("NEARMT_MILVUS_TIMEOUT", "")
    try:
        seconds = float(given) if given else _SECONDS
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < float("inf"):
        raise SettingError(f"NEARMT_MILVUS_TIMEOUT must be a number of seconds, not {given}")
    return seconds


def _reason(error: Exception) -> str:
    """The first line of the error's message."""
    details = getattr(error, "details", None)
    message = getattr(error, "message", None) or (details() if callable(details) else None) or str(error)
    lines = str(message).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:200]
