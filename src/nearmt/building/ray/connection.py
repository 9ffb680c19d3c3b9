"""Joining a Ray cluster, or starting one on this machine for the duration of a build."""

import contextlib
import logging
import os
import socket
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from nearmt.building.ray.settings import RaySettings, check_installed
from nearmt.errors import ClusterError, SettingError

_OBJECT_STORE = 256 << 20  # bytes; it holds the token ids of a few tasks
_TIMEOUT = 10.0  # seconds for a cluster to accept a connection
_MAX_LENGTH = 24  # characters; Ray puts a socket deep below its folder, and socket paths are limited to 107
# No usage statistics, and no authentication, which would leave a key in the home folder: the cluster accepts no
# connections from other machines and ends with the build.
_ENVIRONMENT = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}


@contextlib.contextmanager
def connected(settings: RaySettings) -> Iterator[None]:
    """Connect to Ray: the cluster that this process has already joined, the one at the address, or a new local one."""
    check_installed()
    import ray

    if ray.is_initialized():
        if settings.address is not None:
            raise SettingError("this process has already joined a Ray cluster: leave out `address`")
        yield
    elif settings.address is not None:
        try:
            _check_reachable(settings.address)
            ray.init(settings.address, log_to_driver=False, logging_level=logging.CRITICAL)
        except Exception as error:  # Ray raises errors of many kinds
            raise ClusterError(f"cannot join a Ray cluster at {settings.address}: {first_line(error)}") from error
        try:
            yield
        finally:
            ray.shutdown()
    else:
        with _local_cluster(settings):
            yield


def _check_reachable(address: str) -> None:
    """Fail at once if nothing accepts connections: Ray would retry for minutes."""
    host, colon, port = address.rpartition(":")
    if colon and port.isdecimal() and "/" not in host:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_TIMEOUT).close()


@contextlib.contextmanager
def _local_cluster(settings: RaySettings) -> Iterator[None]:
    import ray

    files = tempfile.TemporaryDirectory(prefix="nearmt-ray-", dir=_short_folder(), ignore_cleanup_errors=True)
    with _environment(_ENVIRONMENT), files as folder:
        try:
            ray.init(
                "local",
                num_cpus=settings.workers * settings.threads,
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.CRITICAL,
                object_store_memory=_OBJECT_STORE,
                _temp_dir=folder,
            )
        except Exception as error:
            raise ClusterError(f"cannot start Ray: {first_line(error)}") from error
        try:
            available = ray.cluster_resources().get("GPU", 0.0)
            if available < settings.workers * settings.gpus:
                needed = f"{settings.workers} workers with {settings.gpus:g} GPUs each"
                raise SettingError(f"cannot start {needed}: this machine has {available:g} GPUs")
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
    return usual if len(usual) <= _MAX_LENGTH or not Path("/tmp").is_dir() else "/tmp"


def first_line(error: BaseException) -> str:
    """The first line of an error message, shortened."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__).rstrip(".")[:300]
