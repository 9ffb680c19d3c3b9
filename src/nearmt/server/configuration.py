"""Reads the settings: command-line flags override environment variables, which override one TOML file.

Unknown settings are refused.
"""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict
from pydantic_settings.exceptions import SettingsError

from nearmt.errors import SettingError
from nearmt.server.settings import ApiKey, Section, ServerSettings

PREFIX = "NEARMT_SERVER_"
_DELIMITER = "__"


class _FixedSource(PydanticBaseSettingsSource):
    """Values that have already been read."""

    def __init__(self, settings: type[BaseSettings], values: Mapping[str, Any]) -> None:
        super().__init__(settings)
        self._values = dict(values)

    def get_field_value(self, field: Any, field_name: str) -> tuple[Any, str, bool]:
        return self._values.get(field_name), field_name, False

    def __call__(self) -> dict[str, Any]:
        return self._values


def load_settings(config: Path | None = None, flags: Mapping[str, Any] | None = None) -> ServerSettings:
    """Read and check the settings. Flags that are None were not given."""
    from_file = _read_toml(config) if config is not None else {}
    given = {name: value for name, value in (flags or {}).items() if value is not None}
    _refuse_unknown_variables()

    class Sources(ServerSettings, BaseSettings):
        model_config = SettingsConfigDict(
            env_prefix=PREFIX, env_nested_delimiter=_DELIMITER, extra="forbid", frozen=True
        )

        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            layers = [given, env_settings(), from_file]
            for number, layer in enumerate(layers):
                # Tables are merged across sources, except the stores: the first source that has any replaces the rest.
                if any("stores" in before for before in layers[:number]):
                    layers[number] = {name: value for name, value in layer.items() if name != "stores"}
            return tuple(_FixedSource(settings_cls, layer) for layer in layers)

    try:
        return Sources()  # type: ignore[call-arg]  # the values come from the sources
    except SettingsError as error:
        raise SettingError(f"an environment variable beginning with {PREFIX} is not valid JSON: {error}") from None
    except ValidationError as error:
        raise SettingError(_message(error.errors()[0], config)) from None


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingError(f"{path} cannot be read: {(error.strerror or str(error)).lower()}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingError(f"{path} is not valid TOML: {error}") from None
    stores = content.get("stores")
    if isinstance(stores, dict):  # paths are relative to the file
        content["stores"] = {
            name: path.parent / folder if isinstance(folder, str) else folder for name, folder in stores.items()
        }
    return content


def _refuse_unknown_variables() -> None:
    for variable in sorted(os.environ):
        if variable.startswith(PREFIX):
            name = variable.removeprefix(PREFIX).lower().split(_DELIMITER)[0]
            if name not in ServerSettings.model_fields:
                raise SettingError(
                    f"{variable} is not a setting; the settings are {', '.join(ServerSettings.model_fields)}"
                )


def _message(error: ErrorDetails, config: Path | None) -> str:
    """One sentence for the operator about a faulty setting."""
    location = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        section = _section([str(part) for part in error["loc"][:-1]])
        known = f"; the settings there are {', '.join(section.model_fields)}" if section is not None else ""
        file = f"{config}: " if config is not None else ""
        return f"{file}{location} is not a setting{known}"
    if error["type"] == "missing" and error["loc"] == ("stores",):
        return "at least one store is needed: nearmt serve client.store"
    reason = error["msg"].removeprefix("Value error, ")
    return f"{location}: {reason[0].lower()}{reason[1:]}" if location else reason


def _section(names: list[str]) -> type[Section] | None:
    """The section at this path of the configuration; None if it is not a section."""
    section: type[Section] = ServerSettings
    for name in names:
        if name.isdigit():
            continue
        field = section.model_fields.get(name)
        inner = ApiKey if name == "keys" else field.annotation if field is not None else None
        if not (isinstance(inner, type) and issubclass(inner, Section)):
            return None
        section = inner
    return section
