"""The server process: it starts or says why not, shuts down gracefully, and loses nothing when killed."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from nearmt.store import Store
from serving import running, settings_for

SOURCE = "heute öffnet die tabelle die große zelle ."


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "nearmt", "serve", *map(str, arguments)]


@contextmanager
def process(*arguments: object) -> Iterator[tuple[subprocess.Popen[str], httpx.Client]]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command(*arguments, "--port", 0), stderr=subprocess.PIPE, text=True, env=environment
    ) as found:
        assert found.stderr is not None
        lines: list[str] = []
        while not (address := re.search(r"listening on (http://\S+)", lines[-1] if lines else "")):
            lines.append(found.stderr.readline())
            assert lines[-1], "".join(lines)
        drain = threading.Thread(target=found.stderr.read, daemon=True)
        drain.start()
        try:
            with httpx.Client(base_url=address[1], timeout=30, trust_env=False) as http:
                until = time.monotonic() + 60
                while http.get("/v1/ready").status_code == 503:
                    assert time.monotonic() < until
                    time.sleep(0.05)
                yield found, http
        finally:
            found.kill()
            found.wait()
            drain.join(5)


def test_sigterm_finishes_running_requests(client):
    with process(client.store) as (server, http):
        replies = []

        def translate() -> None:
            replies.append(http.post("/v1/translate", json={"text": [f"{SOURCE} {n}" for n in range(150)]}))

        thread = threading.Thread(target=translate)
        thread.start()
        time.sleep(0.3)
        server.send_signal(signal.SIGTERM)
        thread.join()
        assert replies[0].status_code == 200
        assert len(replies[0].json()["translations"]) == 150
        assert server.wait(20) == 0


def test_confirmed_additions_survive_a_kill(store_copy):
    confirmed: list[str] = []
    with process(store_copy, "--allow-edits-without-key") as (server, http):

        def add() -> None:
            for number in range(10_000):
                unit = {"source": f"die zelle {number} .", "target": f"the cell {number} .", "unit_id": str(number)}
                try:
                    reply = http.post("/v1/stores/copy/units", json={"units": [unit], "origin": "kill"})
                except httpx.TransportError:
                    return
                if reply.status_code == 200:
                    confirmed.append(str(number))

        thread = threading.Thread(target=add)
        thread.start()
        until = time.monotonic() + 30
        while len(confirmed) < 5 and time.monotonic() < until:
            time.sleep(0.01)
        server.kill()
        thread.join()
    assert len(confirmed) >= 5
    store = Store(store_copy)
    assert store.verify().is_sound
    kept = {pair.unit_id for pair in store.snapshot().all_units() if pair.origin == "kill"}
    assert set(confirmed) <= kept


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "at least one store is needed: nearmt serve client.store"),
        (["nowhere.store"], "nowhere.store does not exist"),
        (["{store}", "--host", "0.0.0.0"], "0.0.0.0 can be reached from other machines"),
        (["{store}", "--config", "none.toml"], "none.toml cannot be read"),
        (["{store}", "--model", "/nowhere"], "/nowhere"),
    ],
)
def test_a_faulty_configuration_gives_one_sentence_and_exit_code_2(client, arguments, sentence):
    given = [argument.format(store=client.store) for argument in arguments]
    found = subprocess.run(command(*given, "--port", 0), capture_output=True, text=True, timeout=120)
    assert found.returncode == 2, found.stderr
    (line,) = [line for line in found.stderr.splitlines() if line.startswith("nearmt:")]
    assert sentence in line
    assert "Traceback" not in found.stderr


def test_a_port_in_use_is_reported(client):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        found = subprocess.run(command(client.store, "--port", port), capture_output=True, text=True, timeout=120)
    assert found.returncode == 2
    assert f"nearmt: cannot bind to 127.0.0.1:{port}: is the port in use?" in found.stderr
    assert Path(client.store).exists()


def test_the_model_is_loaded_with_the_device_and_dtype_of_the_settings(client, toy_model, monkeypatch):
    requests = []

    def load(manifest, request):
        requests.append(request)
        return toy_model

    monkeypatch.setattr("nearmt.server.service.stores.load_model", load)
    with running(settings_for(client.store, device="cpu", dtype="bfloat16")):
        pass
    (request,) = requests
    assert (request.device, request.dtype, request.engine) == ("cpu", "bfloat16", "torch")
