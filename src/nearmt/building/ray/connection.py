"""Joining a Ray cluster, or starting one here for the length of a build and leaving nothing of it behind."""

import contextlib
import logging
import os
import socket
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from nearmt.building.ray.settings import RaySettings, check_installed
from nearmt.errors import ClusterError, SettingError

_OBJECT_STORE = 256 << 20  # bytes; what passes through it are the token ids of a few pieces
_PATIENCE = 10.0  # seconds for a cluster to answer at all
_SHORT_ENOUGH = 24  # letters; Ray puts a socket far below its folder, and the system limits such names to 107
# Nothing is told to anybody outside, and no key for the cluster is left in the home folder: it takes no calls from
# other machines and is gone after the build.
_ENVIRONMENT = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}


@contextlib.contextmanager
def connected(settings: RaySettings) -> Iterator[None]:
    """Ray, ready for work: what this process is already joined to, the cluster asked for, or one of its own."""
    check_installed()
    import ray

    if ray.is_initialized():
        if settings.address is not None:
            raise SettingError("this process has joined a Ray cluster already: give no address")
        yield
    elif settings.address is not None:
        try:
            _knock(settings.address)
            ray.init(settings.address, log_to_driver=False, logging_level=logging.CRITICAL)
        except Exception as error:  # Ray raises whatever it meets
            raise ClusterError(f"cannot join a Ray cluster at {settings.address}: {first_line(error)}") from error
        try:
            yield
        finally:
            ray.shutdown()
    else:
        with _local_cluster(settings):
            yield


def _knock(address: str) -> None:
    """Refuse an address where nobody answers: Ray would go on trying for minutes."""
    host, colon, port = address.rpartition(":")
    if colon and port.isdecimal() and "/" not in host:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE).close()


@contextlib.contextmanager
def _local_cluster(settings: RaySettings) -> Iterator[None]:
    import ray

    files = tempfile.TemporaryDirectory(prefix="nearmt-ray-", dir=_short_folder(), ignore_cleanup_errors=True)
    with _environment(_ENVIRONMENT), files as folder:
        try:
            ray.init(
                "local", num_cpus=settings.workers * settings.threads, include_dashboard=False, log_to_driver=False,
                logging_level=logging.CRITICAL, object_store_memory=_OBJECT_STORE, _temp_dir=folder,
            )  # fmt: skip
        except Exception as error:
            raise ClusterError(f"Ray does not start here: {first_line(error)}") from error
        try:
            there = ray.cluster_resources().get("GPU", 0.0)
            if there < settings.workers * settings.gpus:
                wanted = f"{settings.workers} workers with {settings.gpus:g} GPUs each"
                raise SettingError(f"{wanted} were asked for, and this machine has {there:g} GPUs")
            yield
        finally:
            ray.shutdown()


@contextlib.contextmanager
def _environment(wanted: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _short_folder() -> str:
    usual = tempfile.gettempdir()
    return usual if len(usual) <= _SHORT_ENOUGH or not Path("/tmp").is_dir() else "/tmp"


def first_line(error: BaseException) -> str:
    """What a foreign error says, in one line of bearable length."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__).rstrip(".")[:300]
