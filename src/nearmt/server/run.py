"""Runs a server: uvicorn with a time limit for request headers, logs without user texts, graceful shutdown."""

import asyncio
import logging
import socket
import sys
from types import FrameType
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from nearmt.datastore import open_finished
from nearmt.errors import SettingError
from nearmt.server.app import create_app
from nearmt.server.context import Context
from nearmt.server.settings import ServerSettings

log = logging.getLogger("nearmt.server")
_MAX_HEADER_BYTES = 64 * 1024


def protocol_with_timeout(seconds: float) -> type[H11Protocol]:
    """HTTP/1.1 that closes the connection if the request headers do not arrive in time."""

    class Protocol(H11Protocol):
        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._timer = self.loop.call_later(seconds, self._close_if_idle)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.conn.their_state is not h11.IDLE:
                self._stop_timer()
            elif self._timer is None:  # first bytes of the next request on a kept-alive connection
                self._timer = self.loop.call_later(seconds, self._close_if_idle)

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_timer()
            super().connection_lost(exc)

        def _stop_timer(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

        def _close_if_idle(self) -> None:
            self._timer = None
            if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
                self.transport.close()

    return Protocol


class Server(uvicorn.Server):
    """A uvicorn server that prints its address and exits if a store cannot be loaded."""

    def __init__(self, config: uvicorn.Config, context: Context) -> None:
        super().__init__(config)
        self.context = context

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        for server in self.servers:
            for bound in server.sockets:
                host, port = bound.getsockname()[:2]
                url_host = f"[{host}]" if ":" in host else host
                print(f"nearmt is listening on http://{url_host}:{port}", file=sys.stderr, flush=True)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Shut down gracefully; on a second signal, at once.

        Unlike uvicorn's own handler it does not raise the signal again, so that the process exits with code 0.
        """
        self.force_exit = self.should_exit
        self.should_exit = True

    async def on_tick(self, counter: int) -> bool:
        if self.context.registry.failure is not None:
            self.should_exit = True
        return await super().on_tick(counter)


def make_server(settings: ServerSettings) -> Server:
    """Create a server that is ready to run."""
    app = create_app(settings)
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        http=protocol_with_timeout(settings.limits.header_seconds),
        ws="none",
        log_config=None,
        access_log=False,  # ours leaves out query strings, which may contain user texts
        server_header=False,
        proxy_headers=False,
        limit_concurrency=settings.limits.max_connections,
        timeout_graceful_shutdown=settings.shutdown_seconds,
        timeout_keep_alive=max(5, round(settings.limits.header_seconds)),
        h11_max_incomplete_event_size=_MAX_HEADER_BYTES,
    )
    return Server(config, app.state.context)


def _check_address(host: str, port: int) -> None:
    """Refuse an address that cannot be bound, before anything is loaded."""
    try:
        (family, kind, protocol, _, address), *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        with socket.socket(family, kind, protocol) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(address)
    except OSError:
        raise _bind_error(host, port) from None


def _bind_error(host: str, port: int) -> SettingError:
    return SettingError(f"cannot bind to {host}:{port}: is the port in use?")


def serve(settings: ServerSettings) -> None:
    """Run until SIGTERM or SIGINT, then finish the requests in progress."""
    for folder in settings.stores.values():
        open_finished(folder.absolute())  # report a faulty store before loading a model
    _check_address(settings.host, settings.port)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    server = make_server(settings)
    try:
        server.run()
    except SystemExit:
        raise _bind_error(settings.host, settings.port) from None
    if server.context.registry.failure is not None:
        raise server.context.registry.failure
