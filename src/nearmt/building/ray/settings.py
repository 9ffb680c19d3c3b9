"""What a build on Ray can be told."""

import importlib.util
from dataclasses import dataclass

from nearmt.errors import MissingExtraError, SettingError


@dataclass(frozen=True)
class RaySettings:
    """How many workers decode, where, and what each of them gets."""

    workers: int = 2
    address: str | None = None  # of a running cluster; None starts one here and ends it after the build
    threads: int = 1  # processors for each worker
    gpus: float = 0.0  # GPUs for each worker; a part of one if several workers share it
    offline: bool = False  # workers load the model only from their own machine

    def __post_init__(self) -> None:
        if self.workers < 1 or self.threads < 1:
            raise SettingError("a build on Ray needs at least one worker with one thread")
        if self.gpus < 0:
            raise SettingError("a worker cannot have less than no GPU")


def check_installed() -> None:
    """Refuse in one sentence what needs ray where there is none."""
    if importlib.util.find_spec("ray") is None:
        raise MissingExtraError("building on Ray", "nearmt[ray]")
