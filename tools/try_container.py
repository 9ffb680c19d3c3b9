"""Run the steps of the Dockerfile without Docker, and ask the server that they start:  python tools/try_container.py

The scripts in docker/ are run as the Dockerfile runs them, on a copy of just the files that it copies, with paths below
a temporary folder in place of the image's. Not tried are the base image, the user and the volumes.
"""

import gzip
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from itertools import islice
from pathlib import Path

ROOT = Path(__file__).parents[1]
DEMO = ROOT / "packages" / "nearmt-demo" / "src" / "nearmt_demo"
KEY = "only-for-this-trial"
NUM_PAIRS = 200
STARTUP_SECONDS = 180
# Training takes minutes and is not the container's: the store stays untrained, and the request brings its own numbers.
REQUEST = {"text": "La procuration est valable.", "method": "vanilla", "k": 8, "temperature": 10, "knn_share": 0.5}


def copied_files() -> list[str]:
    """What the Dockerfile takes from the repository: the sources of its COPY lines."""
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    copies = [line.split()[1:-1] for line in lines if re.match(r"COPY (?!--from)", line)]
    return [source for sources in copies for source in sources]


def make_context(folder: Path) -> None:
    """The build context, with nothing in it that the Dockerfile does not ask for."""
    for name in copied_files():
        source, target = ROOT / name, folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copy(source, target)


def make_store(binaries: Path, folder: Path) -> None:
    """A small store of the demo's model, as a user would mount it."""
    install: list[str | Path] = [binaries / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run([*install, "-c", ROOT / "constraints.txt", ROOT / "packages" / "nearmt-demo"])
    unpack = "import nearmt_demo; print(nearmt_demo.model_folder())"
    model = subprocess.run([binaries / "python", "-c", unpack], capture_output=True, text=True, check=True).stdout
    memory = folder / "memory.tsv"
    with gzip.open(DEMO / "data" / "law" / "memory.tsv.gz", "rt", encoding="utf-8") as lines:
        memory.write_text("".join(islice(lines, NUM_PAIRS)), encoding="utf-8")
    out = folder / "stores" / "client.store"
    out.parent.mkdir()
    run([binaries / "nearmt", "build", memory, "--model", model.strip(), "--out", out, "--no-train", "--quiet"])


def run(command: list[str | Path], *, cwd: Path | None = None, env: dict[str, str] | None = None) -> None:
    print("+", *command, flush=True)
    subprocess.run([str(part) for part in command], check=True, cwd=cwd, env=env)


def refusal_of(start: list[str], environment: dict[str, str]) -> str:
    """What the container says when it does not start, which must be the caller's fault and not ours."""
    done = subprocess.run(start, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2, f"exit code {done.returncode}: {done.stderr}"
    return done.stderr.strip()


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def ask(port: int, key: str | None) -> tuple[int, dict[str, object]]:
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    body = json.dumps(REQUEST).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/translate", body, headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as error:
        return error.code, {}


def wait_until_healthy(check: list[str], environment: dict[str, str], server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + STARTUP_SECONDS
    while subprocess.run(check, env=environment, capture_output=True, check=False).returncode != 0:
        assert server.poll() is None, f"the server ended with exit code {server.returncode}"
        assert time.monotonic() < deadline, f"the server was not healthy within {STARTUP_SECONDS} s"
        time.sleep(0.5)


def translate_when_ready(port: int) -> str:
    """The translation; 503 means that the stores are still being loaded."""
    deadline = time.monotonic() + STARTUP_SECONDS
    while (answer := ask(port, KEY))[0] == 503 and time.monotonic() < deadline:
        time.sleep(0.5)
    status, content = answer
    assert status == 200, f"/v1/translate answered {status}"
    return str(content["translations"][0]["text"])  # type: ignore[index]


def try_server(context: Path, stores: Path, binaries: Path) -> None:
    start = ["bash", str(context / "docker" / "entrypoint.sh")]
    check = ["python", str(context / "docker" / "healthcheck.py")]
    port = free_port()
    usual = {"PATH": f"{binaries}:/usr/bin:/bin", "NEARMT_STORES": str(stores), "HF_HUB_OFFLINE": "1"}
    image = {**usual, "NEARMT_SERVER_HOST": "0.0.0.0", "NEARMT_SERVER_PORT": str(port)}
    assert "mount a volume" in refusal_of(start, {**image, "NEARMT_STORES": str(binaries)})
    assert "key" in refusal_of(start, image), "the server must not be open to the network without a key"
    run([*start, "info", stores / "client.store"], env=image)

    keys = json.dumps([{"name": "trial", "key": KEY, "role": "translate"}])
    # Bound to this machine alone, for this is a trial and not a container.
    running = {**image, "NEARMT_SERVER_HOST": "127.0.0.1", "NEARMT_SERVER_KEYS": keys,
               "NEARMT_SERVER_DECODING__METHOD": "base"}  # fmt: skip
    unhealthy = subprocess.run(check, env=running, capture_output=True, check=False)
    assert unhealthy.returncode == 1, "nothing runs yet, so the health check must fail"
    with subprocess.Popen([*start, "--threads", "1"], env=running) as server:
        try:
            wait_until_healthy(check, running, server)
            assert ask(port, None)[0] == 401
            print("translated:", translate_when_ready(port))
            server.send_signal(signal.SIGTERM)
            assert server.wait(60) == 0, f"stopping ended with exit code {server.returncode}"
        finally:
            server.kill()


def main() -> None:
    os.environ.pop("PYTHONPATH", None)
    os.environ["PYTHON"] = sys.executable
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        context, wheels, environment = folder / "context", folder / "wheels", folder / "environment"
        make_context(context)
        run(["bash", "docker/wheel.sh", ".", wheels], cwd=context)
        run(["bash", "docker/install.sh", environment, wheels, "nearmt[server]"], cwd=context)
        make_store(environment / "bin", folder)
        try_server(context, folder / "stores", environment / "bin")
    print("the container's steps work: refused without stores and keys, healthy, translated, stopped in order")


if __name__ == "__main__":
    main()
