"""Servers of Milvus that tests start, stop and start again: Milvus Lite as a process of its own, or the real one.

The real one is taken from an environment of its own that has the package `milvus` (2.3.5): the one that
`make milvus-server` makes, or the one that NEARMT_MILVUS_VENV names.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

_MADE = Path(__file__).parent.parent / ".venv-milvus"
VENV = os.environ.get("NEARMT_MILVUS_VENV") or (str(_MADE) if (_MADE / ".ready").exists() else None)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class LiteServer:
    """Milvus Lite behind a port."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        data = ("--data-dir", str(self.folder / "served.db"), "--port", str(self.port))
        return [sys.executable, "-m", "milvus_lite", "server", *data]

    def environment(self) -> dict[str, str]:
        return {}

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        log = (self.folder / "server.log").open("ab")
        with log:
            self._process = subprocess.Popen(
                self.command(),
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=self.folder,
                env={**os.environ, "OMP_NUM_THREADS": "1", **self.environment()},
            )
        until = time.monotonic() + 600
        while not self._answers():
            assert self._process.poll() is None, (self.folder / "server.log").read_text(errors="replace")
            assert time.monotonic() < until
            time.sleep(0.1)

    def _answers(self) -> bool:
        with socket.socket() as tried:
            return tried.connect_ex(("127.0.0.1", self.port)) == 0

    def stop(self) -> None:
        """At once, with all children."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None
            while self._answers():  # a child of it, which takes a moment longer
                time.sleep(0.05)


class RealServer(LiteServer):
    """A Milvus server.

    The package's launcher unpacks the server and writes its settings. It also avoids every port that had a connection
    within the last minute, so it could not start a server again where it was; that is done without it.
    """

    def environment(self) -> dict[str, str]:
        return {
            "COMMON_SESSION_TTL": "3",  # seconds until a server that was killed is forgotten; 30 unless told
            "DEPLOY_MODE": "STANDALONE",
            "METRICS_PORT": str(free_port()),
            "MILVUS_RUN_DIR": str(self.folder / "run"),
            "LD_LIBRARY_PATH": str(self.folder / "bin"),
        }

    def command(self) -> list[str]:
        if (self.folder / "configs" / "milvus.yaml").exists():
            return [str(self.folder / "bin" / "milvus"), "run", "standalone"]
        assert VENV is not None
        launcher = shutil.which("milvus-server", path=str(Path(VENV) / "bin"))
        assert launcher is not None, f"{VENV} has no milvus-server"
        return [launcher, "--data", str(self.folder), "--proxy-port", str(self.port)]
