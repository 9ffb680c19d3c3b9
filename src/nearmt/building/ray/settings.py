"""Settings of a build on Ray."""

import importlib.util
from dataclasses import dataclass

from nearmt.errors import MissingExtraError, SettingError


@dataclass(frozen=True)
class RaySettings:
    """How many workers decode, where, and with which resources."""

    workers: int = 2
    address: str | None = None  # of a running cluster; None starts one on this machine for the build
    threads: int = 1  # CPUs per worker
    gpus: float = 0.0  # GPUs per worker; a fraction if several workers share one
    offline: bool = False  # workers load the model from local files only

    def __post_init__(self) -> None:
        if self.workers < 1 or self.threads < 1:
            raise SettingError("`workers` and `threads` must be at least 1")
        if self.gpus < 0:
            raise SettingError("`gpus` must not be negative")


def check_installed() -> None:
    """Raise an error if ray is not installed."""
    if importlib.util.find_spec("ray") is None:
        raise MissingExtraError("building on Ray", "nearmt[ray]")
