"""Load generator: many concurrent clients of a server, with every response compared with an expected translation."""

import asyncio
import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit


@dataclass(frozen=True)
class LoadSettings:
    """Number of clients, and when to stop: after `seconds` or after `requests`, whichever comes first."""

    clients: int = 64
    seconds: float = 120.0
    requests: int | None = None
    key: str | None = None


@dataclass
class LoadResult:
    """Measurements of one run."""

    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    num_wrong: int = 0
    errors: list[str] = field(default_factory=list)
    resident_before: int | None = None  # bytes of the server process, after as many responses as clients
    resident_after: int | None = None
    processor_seconds: float | None = None  # of the server process

    @property
    def throughput(self) -> float:
        """Responses per second."""
        return len(self.latencies) / self.seconds if self.seconds else 0.0

    def percentile(self, share: float) -> float:
        """The latency in seconds that this share of the responses did not exceed."""
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


class _Client:
    """A minimal HTTP client with one kept-alive connection.

    A full HTTP library would take CPU time from the server, which runs on the same machine.
    """

    def __init__(self, url: str, key: str | None) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80
        self._head = f"POST /v1/translate HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\n"
        if key is not None:
            self._head += f"Authorization: Bearer {key}\r\n"
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def translate(self, text: str) -> str:
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, self._port)
        reader, writer = self._streams
        body = json.dumps({"text": text, "split_sentences": False}).encode()
        writer.write(f"{self._head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        await writer.drain()
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        length = int(head.partition("content-length:")[2].partition("\r\n")[0])
        content = json.loads(await reader.readexactly(length))
        if " 200 " not in head.partition("\r\n")[0]:
            raise RuntimeError(content["error"]["message"])
        translation: str = content["translations"][0]["text"]
        return translation

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()


def run_load(
    url: str, texts: Sequence[str], expected: Sequence[str], settings: LoadSettings, process_id: int | None = None
) -> LoadResult:
    """Run the clients; each translates one text after the other, starting at a different text."""
    return asyncio.run(_run_clients(url, texts, expected, settings, process_id))


async def _run_clients(
    url: str, texts: Sequence[str], expected: Sequence[str], settings: LoadSettings, process_id: int | None
) -> LoadResult:
    result = LoadResult()
    began, cpu_before = time.monotonic(), processor_seconds(process_id)
    num_requests = 0

    def may_continue() -> bool:
        nonlocal num_requests
        num_requests += 1
        has_time = time.monotonic() - began < settings.seconds
        return has_time and (settings.requests is None or num_requests <= settings.requests)

    async def run(number: int) -> None:
        client = _Client(url, settings.key)
        at = number * len(texts) // settings.clients
        while may_continue():
            start = time.monotonic()
            try:
                translation = await client.translate(texts[at % len(texts)])
            except (OSError, RuntimeError, ValueError, asyncio.IncompleteReadError) as error:
                result.errors.append(f"{type(error).__name__}: {error}")
                client.close()
                client = _Client(url, settings.key)
                continue
            result.latencies.append(time.monotonic() - start)
            result.num_wrong += translation != expected[at % len(texts)]
            if result.resident_before is None and len(result.latencies) >= settings.clients:
                result.resident_before = resident_bytes(process_id)
            at += 1
        client.close()

    await asyncio.gather(*(run(number) for number in range(settings.clients)))
    result.seconds = time.monotonic() - began
    result.resident_after = resident_bytes(process_id)
    cpu_after = processor_seconds(process_id)
    result.processor_seconds = None if cpu_after is None or cpu_before is None else cpu_after - cpu_before
    return result


def resident_bytes(process_id: int | None) -> int | None:
    """Resident memory of a process; None without /proc."""
    path = Path(f"/proc/{process_id}/statm")
    if process_id is None or not path.exists():
        return None
    return int(path.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def processor_seconds(process_id: int | None) -> float | None:
    """CPU time of a process; None without /proc."""
    path = Path(f"/proc/{process_id}/stat")
    if process_id is None or not path.exists():
        return None
    fields = path.read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
