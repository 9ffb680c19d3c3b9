"""The measurement of `nearmt bench server`: a server under load beside translation without a server."""

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nearmt.cli.output import number_of, say
from nearmt.errors import NearMTError

if TYPE_CHECKING:
    from nearmt.experiments.bench.load import LoadResult, LoadSettings

_CHECKED_ALONE = 50  # texts that are also translated one by one


@dataclass(frozen=True)
class Speed:
    """Texts per second of wall-clock time and of CPU time; the latter is reliable on a busy machine too."""

    wall: float
    processor: float


def measure_load(
    store: Path, texts: list[str], settings: "LoadSettings", options: Mapping[str, object], quiet: bool
) -> dict[str, Any]:
    """Translate texts without a server, then with one under load. `options` are those of `nearmt serve`."""
    from nearmt.experiments.bench.load import run_load

    say(f"Translating {number_of(len(texts), 'text')} without a server …", quiet)
    model = options["model"]
    expected, alone = _translate_alone(store, texts, None if model is None else str(model))
    say(f"Sending requests to a server for {settings.seconds:g} seconds …", quiet)
    with _running_server(store, options) as (url, process_id):
        result = run_load(url, texts, expected, settings, process_id)
        batch = _mean_batch(url)
    return _report(result, alone, settings.clients, batch)


def _translate_alone(store: Path, texts: list[str], model: str | None) -> tuple[list[str], Speed]:
    """Translate in batches of 32, and some texts one by one, which must give the same."""
    from nearmt.translator import Translator

    translator = Translator(store, model=model)
    translator.translate(texts[:32])
    began, spent = time.monotonic(), time.process_time()
    found = [result.text for result in translator.translate(texts)]
    speed = Speed(len(texts) / (time.monotonic() - began), len(texts) / (time.process_time() - spent))
    for source, together in zip(texts[:_CHECKED_ALONE], found, strict=False):
        if translator.translate([source])[0].text != together:
            raise NearMTError("a text translated alone gives another translation than in a batch")
    return found, speed


@contextmanager
def _running_server(store: Path, options: Mapping[str, object]) -> Iterator[tuple[str, int]]:
    """Start `nearmt serve` and wait until it is ready; gives its address and process id."""
    given = [part for name, value in options.items() if value is not None for part in (f"--{name}", str(value))]
    command = [sys.executable, "-m", "nearmt", "serve", str(store), "--port", "0", *given]
    with (
        tempfile.NamedTemporaryFile("w+", prefix="nearmt-bench-server-", suffix=".log", encoding="utf-8") as errors,
        subprocess.Popen(command, stderr=errors) as process,
    ):
        try:
            url = _address(process, Path(errors.name))
            _wait_until_ready(url)
            yield url, process.pid
        finally:
            process.terminate()
            process.wait()


def _address(process: "subprocess.Popen[bytes]", log: Path) -> str:
    """Wait for the server to log its address."""
    while True:
        logged = log.read_text(encoding="utf-8")
        listening = re.search(r"^nearmt .*(http://\S+)$", logged, re.MULTILINE)
        if listening is not None:
            return listening[1]
        if process.poll() is not None:
            raise NearMTError(f"the server did not start: {logged.strip()}")
        time.sleep(0.1)


def _wait_until_ready(url: str) -> None:
    from urllib.error import HTTPError
    from urllib.request import urlopen

    while True:
        try:
            with urlopen(f"{url}/v1/ready"):
                return
        except HTTPError as error:
            error.close()
            time.sleep(0.1)


def _mean_batch(url: str) -> float | None:
    """Return the mean number of sentences in a batch; None if the server does not publish its metrics."""
    from urllib.error import HTTPError
    from urllib.request import urlopen

    try:
        with urlopen(f"{url}/metrics") as reply:
            numbers = reply.read().decode("utf-8")
    except HTTPError as error:
        error.close()
        return None
    found = dict(re.findall(r"^nearmt_batch_sentences_(sum|count) (\S+)$", numbers, re.MULTILINE))
    return float(found["sum"]) / max(1.0, float(found["count"]))


def _report(result: "LoadResult", alone: Speed, clients: int, batch: float | None) -> dict[str, Any]:
    work = len(result.latencies) / result.processor_seconds if result.processor_seconds else None
    return {
        "clients": clients,
        "seconds": round(result.seconds, 1),
        "requests": len(result.latencies),
        "errors": len(result.errors),
        "first_error": result.errors[0] if result.errors else None,
        "wrong_answers": result.num_wrong,
        "texts_a_second": round(result.throughput, 2),
        "texts_a_second_without_server": round(alone.wall, 2),
        "share_of_speed_without_server": round(result.throughput / alone.wall, 3),
        "texts_a_processor_second": None if work is None else round(work, 2),
        "texts_a_processor_second_without_server": round(alone.processor, 2),
        "sentences_a_batch": None if batch is None else round(batch, 1),
        "p50_seconds": round(result.percentile(0.5), 3),
        "p95_seconds": round(result.percentile(0.95), 3),
        "resident_megabytes_before": _megabytes(result.resident_before),
        "resident_megabytes_after": _megabytes(result.resident_after),
    }


def _megabytes(size: int | None) -> float | None:
    return None if size is None else round(size / 1e6, 1)
