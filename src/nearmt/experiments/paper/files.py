"""Finds the files that a configuration names: beside it, in a folder of data, or in the package nearmt-demo."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from nearmt.errors import MissingExtraError, SettingError

_DEMO_PREFIX = "nearmt_demo:"
_DEMO_MODEL = _DEMO_PREFIX + "model"
_NAMED = 3  # missing files that an error names


class FileFinder:
    """Resolves paths and remembers those that are missing, so that one error can name them all.

    In a folder of data, capitals do not matter, a file may be compressed (`train.de.gz`), and everything may be one
    folder deeper, as an archive unpacks it.
    """

    def __init__(self, config: Path, data: Path | None) -> None:
        self.config, self.data = config, data
        self.missing: list[str] = []

    def files(self, item: Any, where: str, *, is_optional: bool = False) -> list[Path]:
        """Return the files of a path, a pattern, or a list of them."""
        items = item if isinstance(item, list) else [item]
        found = []
        for name in items:
            if not isinstance(name, str):
                raise SettingError(f"{where}: {name!r} must be the path of a file")
            matching = self._matching(name)
            if not matching and not is_optional:
                self.missing.append(name)
            found += matching
        return found

    def model(self, name: str) -> str:
        """Return a hub id unchanged, and a path that begins with a dot relative to the configuration."""
        if name == _DEMO_MODEL:
            return str(_demo_package().model_folder())
        return str(self.config.parent.absolute() / name) if name.startswith(".") else name

    def check(self) -> None:
        """Raise one error if files are missing."""
        if not self.missing:
            return
        named, rest = ", ".join(self.missing[:_NAMED]), len(self.missing) - _NAMED
        named += f" and {rest} more" if rest > 0 else ""
        if self.data is not None:
            raise SettingError(f"{self.data} lacks files that {self.config.stem} needs: {named}")
        raise SettingError(f"{self.config}: there is no file {named}; set `data` to the folder that has them")

    def _matching(self, name: str) -> list[Path]:
        if name.startswith(_DEMO_PREFIX):
            path = Path(str(_demo_package().__file__)).parent / name.removeprefix(_DEMO_PREFIX)
            return [path] if path.is_file() else []
        path = (self.data or self.config.parent).absolute() / Path(name).expanduser()
        if any(char in path.name for char in "*?["):
            return sorted(path.parent.glob(path.name))
        if path.is_file():
            return [path]
        return self._in_data(Path(name).parts) if self.data is not None and not Path(name).is_absolute() else []

    def _in_data(self, parts: Sequence[str]) -> list[Path]:
        assert self.data is not None
        for folder in (self.data, *sorted(path for path in self.data.iterdir() if path.is_dir())):
            found = _ignoring_case(folder.absolute(), parts)
            if found is not None:
                return [found]
        return []


def _ignoring_case(folder: Path, parts: Sequence[str]) -> Path | None:
    """Return the file at a path below a folder whatever its capitals, also with .gz."""
    wanted, *rest = (part.casefold() for part in parts)
    if not folder.is_dir():
        return None
    for path in sorted(folder.iterdir()):
        name = path.name.casefold()
        if rest and name == wanted:
            found = _ignoring_case(path, rest)
            if found is not None:
                return found
        elif not rest and name in (wanted, f"{wanted}.gz") and path.is_file():
            return path
    return None


def _demo_package() -> Any:
    try:
        return import_module("nearmt_demo")
    except ImportError:
        raise MissingExtraError("this configuration", "nearmt-demo") from None
