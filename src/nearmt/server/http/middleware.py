"""Middleware around all routes: host and origin checks, limits on bodies, security headers, log and metrics.

CORS is left to Starlette's CORSMiddleware (see `app`).
"""

import asyncio
import contextlib
import logging
import re
import time
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nearmt.server.http.errors import ApiError, error_response, unexpected
from nearmt.server.http.metrics import Metrics
from nearmt.server.settings import ServerSettings

log = logging.getLogger("nearmt.server")
CORS_METHODS = ("GET", "POST", "PUT", "DELETE")
CORS_HEADERS = ("Authorization", "Content-Type", "X-API-Key")
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"})
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_LOCAL_HOSTS = ("127.0.0.1", "localhost", "[::1]")
# Of a body that is too large, this much is read and discarded: a client that is still sending misses the response.
_DRAINED_BYTES = 128 * 1024 * 1024
_DRAINING_SECONDS = 10.0
_UPLOAD_PATHS = re.compile(r"/v1/stores/[^/]+/import|/v3/translation_memories/uploads/[^/]+|/translate_file")
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
    """Checks each request, limits its body, adds security headers, and records it in the log and the metrics."""

    def __init__(self, app: ASGIApp, settings: ServerSettings, metrics: Metrics) -> None:
        self._app, self._settings, self._metrics = app, settings, metrics
        # Without this check, a web site could point its own host name at this machine (DNS rebinding) and call the
        # server as if it were the site's own.
        local = _LOCAL_HOSTS if settings.is_local else ()
        hosts = [*settings.allowed_hosts, *local] or ["*"]
        self._check_host = TrustedHostMiddleware(_accept_host, hosts, www_redirect=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.monotonic()
        status = 500
        has_started = False

        async def send_with_headers(message: Message) -> None:
            nonlocal status, has_started
            if message["type"] == "http.response.start":
                status, has_started = message["status"], True
                _add_headers(message)
            await send(message)

        async def respond(error: ApiError) -> None:
            if not has_started:
                await error_response(error, scope["path"])(scope, receive, send_with_headers)

        body = _Body(receive, self._settings, scope)
        try:
            await self._check_host(scope, receive, _refuse_host)
            self._check_origin(scope)
            await self._app(scope, body.receive, send_with_headers)
        except ApiError as error:
            await respond(error)
        except Exception:
            log.exception("%s %s failed", scope["method"], scope["path"])
            await respond(unexpected())
        finally:
            self._record(scope, status, time.monotonic() - began)

    def _check_origin(self, scope: Scope) -> None:
        """Refuse writes from pages of other sites.

        CORS does not prevent them: browsers send simple requests without a preflight and only hide the response.
        """
        headers = Headers(scope=scope)
        origin, allowed = headers.get("origin"), self._settings.cors_origins
        if origin is None or scope["method"] in _SAFE_METHODS or origin in allowed or "*" in allowed:
            return
        if urlsplit(origin).netloc != headers.get("host", ""):
            raise ApiError(403, "wrong_origin", "pages of other web sites may not use this server")

    def _record(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "other")
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self._metrics.on_request(route, method, status, seconds)
        caller = scope.get("state", {}).get("caller", "-")
        log.info("%s %s %d %.0f ms %s", method, route, status, 1000 * seconds, caller)


async def _accept_host(scope: Scope, receive: Receive, send: Send) -> None:
    """The application that TrustedHostMiddleware calls for an allowed host: there is nothing more to check."""


async def _refuse_host(message: Message) -> None:
    """Replaces the plain-text response of TrustedHostMiddleware with an error in the format of the API."""
    raise ApiError(400, "wrong_host", "this host name is not allowed: add it to allowed_hosts in the server's settings")


def _add_headers(message: Message) -> None:
    headers = MutableHeaders(scope=message)
    for name, value in SECURITY_HEADERS.items():
        headers.setdefault(name, value)
    if message["status"] in (408, 413):
        headers["Connection"] = "close"


class _Body:
    """The body of a request, with limits on its size and time of arrival."""

    def __init__(self, receive: Receive, settings: ServerSettings, scope: Scope) -> None:
        limits = settings.limits
        is_upload = _UPLOAD_PATHS.fullmatch(scope["path"]) is not None
        self._limit = limits.max_upload_bytes if is_upload else limits.max_body_bytes
        self._receive = receive
        self._deadline = time.monotonic() + limits.body_seconds
        self._num_bytes = 0
        self._is_complete = False
        headers = Headers(scope=scope)
        self._expects_continue = headers.get("expect", "").lower() == "100-continue"
        length = headers.get("content-length", "")
        self._content_length = int(length) if length.isdigit() else 0

    async def receive(self) -> Message:
        if self._is_complete:
            return await self._receive()  # returns when the client disconnects
        if self._content_length > self._limit:
            await self._refuse()
        message = await self._next()
        if self._num_bytes > self._limit:
            await self._refuse()
        return message

    async def _next(self) -> Message:
        try:
            message = await asyncio.wait_for(self._receive(), max(0.0, self._deadline - time.monotonic()))
        except TimeoutError:
            raise ApiError(408, "too_slow", "the body did not arrive in time") from None
        self._num_bytes += len(message.get("body", b""))
        self._is_complete = message["type"] == "http.disconnect" or not message.get("more_body", False)
        return message

    async def _refuse(self) -> None:
        """Discard the rest of the body, so that the client gets to read the response."""
        self._deadline = time.monotonic() + _DRAINING_SECONDS
        with contextlib.suppress(ApiError):  # the client is too slow
            while not self._is_complete and not self._expects_continue and self._num_bytes <= _DRAINED_BYTES:
                await self._next()
        raise ApiError(413, "too_large", f"the body is larger than {self._limit:,} bytes".replace(",", " "))
