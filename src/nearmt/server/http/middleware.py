"""What stands before every route: hosts, origins, sizes and times of bodies, headers, the log and the metrics."""

import asyncio
import contextlib
import json
import logging
import re
import time
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nearmt.server.http.errors import ApiError, in_dialect, unexpected
from nearmt.server.http.metrics import Metrics
from nearmt.server.settings import ServerSettings

log = logging.getLogger("nearmt.server")
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"})
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_LOCAL_HOSTS = frozenset({"127.0.0.1", "localhost", "::1", "[::1]"})
_DRAINED_BYTES = 128 * 1024 * 1024  # of a body that is too large: a client that still sends would not read the answer
_DRAINING_SECONDS = 10.0
_TAKES_FILES = re.compile(r"/v1/stores/[^/]+/import|/v3/translation_memories/uploads/[^/]+|/translate_file")
_ASKED_BEFORE = {  # what a browser wants to hear before it lets a page of another site ask
    "Access-Control-Allow-Methods": "GET, POST, PUT, DELETE",
    "Access-Control-Allow-Headers": "Authorization, Content-Type, X-API-Key",
    "Access-Control-Max-Age": "600",
}
SECURITY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "Cache-Control": "no-store",
}


class RequestLimits:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp, settings: ServerSettings, metrics: Metrics) -> None:
        self._app, self._settings, self._metrics = app, settings, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.monotonic()
        status = 500
        is_started = False

        async def send_guarded(message: Message) -> None:
            nonlocal status, is_started
            if message["type"] == "http.response.start":
                status, is_started = message["status"], True
                self._add_headers(scope, message)
            await send(message)

        body = _Body(receive, self._settings, scope)
        try:
            self._check(scope)
            if scope["method"] == "OPTIONS":
                await _allow(send_guarded)
            else:
                await self._app(scope, body.receive, send_guarded)
        except ApiError as error:
            if not is_started:
                await _answer(error, scope, send_guarded)
        except Exception:
            log.exception("%s %s failed", scope["method"], scope["path"])
            if not is_started:
                await _answer(unexpected(), scope, send_guarded)
        finally:
            seconds = time.monotonic() - began
            route = getattr(scope.get("route"), "path", "other")
            method = scope["method"] if scope["method"] in _METHODS else "other"
            self._metrics.on_request(route, method, status, seconds)
            caller = scope.get("state", {}).get("caller", "-")
            log.info("%s %s %d %.0f ms %s", method, route, status, 1000 * seconds, caller)

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        name = _host_name(host)
        allowed = set(self._settings.allowed_hosts)
        if self._settings.is_local:
            allowed |= _LOCAL_HOSTS
        # Without this a web site could point its own name at this machine and talk to the server as its own page.
        if allowed and "*" not in allowed and name not in allowed:
            raise ApiError(400, "wrong_host", "this server is not called that: allowed_hosts in its settings names it")
        origin = headers.get("origin")
        if origin is None or scope["method"] in _SAFE_METHODS:
            return
        if origin in self._settings.cors_origins or "*" in self._settings.cors_origins:
            return
        if urlsplit(origin).netloc != host:
            raise ApiError(403, "wrong_origin", "pages of other web sites may not use this server")

    def _add_headers(self, scope: Scope, message: Message) -> None:
        headers = MutableHeaders(scope=message)
        for name, value in SECURITY_HEADERS.items():
            headers.setdefault(name, value)
        origin = Headers(scope=scope).get("origin")
        origins = self._settings.cors_origins
        if origin is not None and ("*" in origins or origin in origins):
            headers["Access-Control-Allow-Origin"] = origin
            headers.add_vary_header("Origin")
        if message["status"] in (408, 413):
            headers["Connection"] = "close"


class _Body:
    """The body of a request, counted and timed while it comes in."""

    def __init__(self, receive: Receive, settings: ServerSettings, scope: Scope) -> None:
        limits = settings.limits
        takes_files = _TAKES_FILES.fullmatch(scope["path"]) is not None
        self._limit = limits.max_upload_bytes if takes_files else limits.max_body_bytes
        self._receive = receive
        self._deadline = time.monotonic() + limits.body_seconds
        self._seen = 0
        self._is_complete = False
        headers = Headers(scope=scope)
        self._expects_word = headers.get("expect", "").lower() == "100-continue"
        stated = headers.get("content-length", "")
        self._stated = int(stated) if stated.isdigit() else 0

    async def receive(self) -> Message:
        if self._is_complete:
            return await self._receive()  # waits for the client to go away
        if self._stated > self._limit:
            await self._refuse()
        message = await self._next()
        self._seen += len(message.get("body", b""))
        self._is_complete = message["type"] == "http.disconnect" or not message.get("more_body", False)
        if self._seen > self._limit:
            await self._refuse()
        return message

    async def _next(self) -> Message:
        try:
            return await asyncio.wait_for(self._receive(), max(0.0, self._deadline - time.monotonic()))
        except TimeoutError:
            raise ApiError(408, "too_slow", "the body did not arrive in time") from None

    async def _refuse(self) -> None:
        """Let the client finish sending, so that it reads the answer, but keep nothing."""
        self._deadline = time.monotonic() + _DRAINING_SECONDS
        with contextlib.suppress(ApiError):  # it takes too long
            while not self._is_complete and not self._expects_word and self._seen <= _DRAINED_BYTES:
                message = await self._next()
                self._seen += len(message.get("body", b""))
                self._is_complete = message["type"] == "http.disconnect" or not message.get("more_body", False)
        raise ApiError(413, "too_large", f"the body is larger than {self._limit:,} bytes".replace(",", " "))


def _host_name(host: str) -> str:
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.rpartition(":")[0] if ":" in host else host


async def _allow(send: Send) -> None:
    headers = [(name.lower().encode(), value.encode()) for name, value in _ASKED_BEFORE.items()]
    await send({"type": "http.response.start", "status": 204, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


async def _answer(error: ApiError, scope: Scope, send: Send) -> None:
    status, content = in_dialect(error, scope["path"])
    body = json.dumps(content, ensure_ascii=False).encode("utf-8", "replace")
    headers: list[Any] = [(b"content-type", b"application/json")]
    headers += [(name.lower().encode(), value.encode()) for name, value in (error.headers or {}).items()]
    headers.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
