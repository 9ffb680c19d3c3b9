"""Load on a running server: many clients at once, every answer compared with what the engine alone gives."""

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
    """How much load; it ends with the time or with the number of requests, whichever comes first."""

    clients: int = 64
    seconds: float = 120.0
    requests: int | None = None
    key: str | None = None


@dataclass
class LoadResult:
    """What came of it."""

    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    num_wrong: int = 0
    errors: list[str] = field(default_factory=list)
    resident_before: int | None = None  # bytes of the server's process, after every client has had one answer
    resident_after: int | None = None
    processor_seconds: float | None = None  # of the server's process

    @property
    def throughput(self) -> float:
        """Answers a second."""
        return len(self.latencies) / self.seconds if self.seconds else 0.0

    def percentile(self, share: float) -> float:
        """The time within which this share of the answers came, in seconds."""
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


class _Client:
    """One connection that is kept open. Written by hand, since clients share the processor with what they measure."""

    def __init__(self, url: str, key: str | None) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80
        self._head = f"POST /v1/translate HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\n"
        if key is not None:
            self._head += f"Authorization: Bearer {key}\r\n"
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, text: str) -> str:
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
        found: str = content["translations"][0]["text"]
        return found

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()


def run_load(
    url: str, texts: Sequence[str], expected: Sequence[str], settings: LoadSettings, process_id: int | None = None
) -> LoadResult:
    """Run the clients; each asks for one text after the other, and all begin at different ones."""
    return asyncio.run(_put_load(url, texts, expected, settings, process_id))


async def _put_load(
    url: str, texts: Sequence[str], expected: Sequence[str], settings: LoadSettings, process_id: int | None
) -> LoadResult:
    result = LoadResult()
    began, spent_before = time.monotonic(), processor_seconds(process_id)
    asked = 0

    def wants_more() -> bool:
        nonlocal asked
        asked += 1
        is_early = time.monotonic() - began < settings.seconds
        return is_early and (settings.requests is None or asked <= settings.requests)

    async def run(number: int) -> None:
        client = _Client(url, settings.key)
        at = number * len(texts) // settings.clients
        while wants_more():
            start = time.monotonic()
            try:
                found = await client.ask(texts[at % len(texts)])
            except (OSError, RuntimeError, ValueError, asyncio.IncompleteReadError) as error:
                result.errors.append(f"{type(error).__name__}: {error}")
                client.close()
                client = _Client(url, settings.key)
                continue
            result.latencies.append(time.monotonic() - start)
            result.num_wrong += found != expected[at % len(texts)]
            if result.resident_before is None and len(result.latencies) >= settings.clients:
                result.resident_before = resident_bytes(process_id)
            at += 1
        client.close()

    await asyncio.gather(*(run(number) for number in range(settings.clients)))
    result.seconds = time.monotonic() - began
    result.resident_after = resident_bytes(process_id)
    spent = processor_seconds(process_id)
    result.processor_seconds = None if spent is None or spent_before is None else spent - spent_before
    return result


def resident_bytes(process_id: int | None) -> int | None:
    """How much memory a process holds; None where the system does not say."""
    path = Path(f"/proc/{process_id}/statm")
    if process_id is None or not path.exists():
        return None
    return int(path.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def processor_seconds(process_id: int | None) -> float | None:
    """How long a process has been computing; None where the system does not say."""
    path = Path(f"/proc/{process_id}/stat")
    if process_id is None or not path.exists():
        return None
    fields = path.read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
