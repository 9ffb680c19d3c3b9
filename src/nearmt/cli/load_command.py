"""Load on a server, from the command line."""

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nearmt.cli.options import AsJson, ModelOption, Quiet, StorePath, Threads, set_threads
from nearmt.cli.output import print_json, print_table, say

if TYPE_CHECKING:
    from nearmt.experiments.bench.load import LoadResult

_CHECKED_ALONE = 50  # texts that are also translated one by one


@dataclass(frozen=True)
class Speed:
    """Texts a second, by the clock and by what the processor spent; the latter holds on a busy machine too."""

    wall: float
    processor: float


def register(app: typer.Typer) -> None:
    """Add the command of this file."""
    app.command("bench-server", epilog="Example: nearmt bench-server client.store in.de --clients 64 --seconds 120")(
        bench_server
    )


def bench_server(
    store: StorePath,
    text: Annotated[Path, typer.Argument(metavar="TEXT", help="File with a sentence a line.")],
    clients: Annotated[int, typer.Option("--clients", min=1, help="Clients at once.")] = 64,
    seconds: Annotated[float, typer.Option("--seconds", min=1, help="How long.")] = 120.0,
    requests: Annotated[int | None, typer.Option("--requests", min=1, help="At most so many requests.")] = None,
    config: Annotated[Path | None, typer.Option("--config", help="The server's TOML file.")] = None,
    model: ModelOption = None,
    threads: Threads = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Start a server on STORE, put load on it, and compare its answers and speed with those of the engine alone."""
    from nearmt.corpus import read_lines
    from nearmt.errors import SettingError
    from nearmt.experiments.bench.load import LoadSettings, run_load

    set_threads(threads)
    texts = [line for line in dict.fromkeys(read_lines(text)) if line.strip()]
    if not texts:
        raise SettingError(f"{text} has no text")
    say(f"Translating {len(texts)} texts without a server …", quiet)
    expected, alone = _translate_alone(store, texts, model)
    say(f"Asking a server for {seconds:g} seconds …", quiet)
    with _server(store, _options(config, model, threads)) as (url, process_id):
        result = run_load(url, texts, expected, LoadSettings(clients, seconds, requests), process_id)
        batch = _mean_batch(url)
    _report(result, alone, clients, batch, as_json)
    if result.num_wrong or result.errors:
        raise typer.Exit(1)


def _translate_alone(store: Path, texts: list[str], model: str | None) -> tuple[list[str], "Speed"]:
    """What the engine gives at batch 32, and how fast; some texts are translated by themselves too."""
    from nearmt.errors import NearMTError
    from nearmt.translator import Translator

    translator = Translator(store, model=model)
    translator.translate(texts[:32])
    began, spent = time.monotonic(), time.process_time()
    found = [result.text for result in translator.translate(texts)]
    speed = Speed(len(texts) / (time.monotonic() - began), len(texts) / (time.process_time() - spent))
    for source, together in zip(texts[:_CHECKED_ALONE], found, strict=False):
        if translator.translate([source])[0].text != together:
            raise NearMTError("the engine gives another translation for a text alone than in a batch")
    return found, speed


def _options(config: Path | None, model: str | None, threads: int | None) -> list[str]:
    given = {"--config": config, "--model": model, "--threads": threads}
    return [part for name, value in given.items() if value is not None for part in (name, str(value))]


@contextmanager
def _server(store: Path, options: list[str]) -> Iterator[tuple[str, int]]:
    from urllib.error import HTTPError
    from urllib.request import urlopen

    from nearmt.errors import NearMTError

    command = [sys.executable, "-m", "nearmt", "serve", str(store), "--port", "0", *options]
    with (
        tempfile.NamedTemporaryFile("w+", prefix="nearmt-bench-server-", suffix=".log", encoding="utf-8") as errors,
        subprocess.Popen(command, stderr=errors) as process,
    ):
        log = Path(errors.name)
        try:
            listening = None
            while listening is None:
                if process.poll() is not None:
                    raise NearMTError(f"the server did not start: {log.read_text(encoding='utf-8').strip()}")
                time.sleep(0.1)
                listening = re.search(r"listening on (http://\S+)", log.read_text(encoding="utf-8"))
            while True:
                try:
                    with urlopen(f"{listening[1]}/v1/ready"):
                        break
                except HTTPError as error:
                    error.close()
                    time.sleep(0.1)
            yield listening[1], process.pid
        finally:
            process.terminate()
            process.wait()


def _mean_batch(url: str) -> float | None:
    """Sentences that were decoded together on average; None if the server keeps its numbers to itself."""
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


def _report(result: "LoadResult", alone: Speed, clients: int, batch: float | None, as_json: bool) -> None:
    work = len(result.latencies) / result.processor_seconds if result.processor_seconds else None
    content = {
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
    if as_json:
        print_json(content)
        return
    rows = [[name.replace("_", " "), str(value)] for name, value in content.items() if value is not None]
    print_table("Load on a server", ["what", "value"], rows)


def _megabytes(size: int | None) -> float | None:
    return None if size is None else round(size / 1e6, 1)
