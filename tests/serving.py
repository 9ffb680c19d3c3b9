"""Runs a server in a thread of the test process, on a free port with real sockets."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from nearmt.server.context import Context
from nearmt.server.run import make_server
from nearmt.server.settings import ServerSettings

KEYS = [
    {"name": "reader", "key": "key-to-translate", "role": "translate"},
    {"name": "editor", "key": "key-to-edit-with", "role": "edit"},
    {"name": "boss", "key": "key-of-the-boss", "role": "admin"},
]


@dataclass(frozen=True)
class Running:
    url: str
    context: Context
    http: httpx.Client

    def post(self, path: str, content: Any, **options: Any) -> httpx.Response:
        return self.http.post(path, json=content, **options)

    def translate(self, text: str | list[str], **fields: Any) -> Any:
        reply = self.post("/v1/translate", {"text": text, **fields})
        assert reply.status_code == 200, reply.text
        texts = [translation["text"] for translation in reply.json()["translations"]]
        return texts[0] if isinstance(text, str) else texts


def settings_for(store: Path, **fields: Any) -> ServerSettings:
    return ServerSettings.model_validate({"stores": {"client": store}, "port": 0, **fields})


@contextmanager
def running(settings: ServerSettings) -> Iterator[Running]:
    server = make_server(settings)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + 30
    while not (server.started and server.context.registry.is_ready()):
        assert server.context.registry.failure is None, server.context.registry.failure
        assert time.monotonic() < deadline
        assert thread.is_alive()
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    with httpx.Client(base_url=url, timeout=120, trust_env=False) as http:
        try:
            yield Running(url, server.context, http)
        finally:
            server.should_exit = True
    thread.join(30)
    assert not thread.is_alive()
