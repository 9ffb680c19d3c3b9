"""Where settings come from: flags before environment variables before one TOML file. Unknown keys are refused."""

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
from nearmt.server.settings import Section, ServerSettings

PREFIX = "NEARMT_SERVER_"
_LEVELS = "__"


class _Given(PydanticBaseSettingsSource):
    """Values that were read elsewhere."""

    def __init__(self, settings: type[BaseSettings], values: Mapping[str, Any]) -> None:
        super().__init__(settings)
        self._values = dict(values)

    def get_field_value(self, field: Any, field_name: str) -> tuple[Any, str, bool]:
        return self._values.get(field_name), field_name, False

    def __call__(self) -> dict[str, Any]:
        return self._values


def load_settings(config: Path | None = None, flags: Mapping[str, Any] | None = None) -> ServerSettings:
    """The settings of a server; a flag that is None was not given."""
    from_file = _read(config) if config is not None else {}
    given = {name: value for name, value in (flags or {}).items() if value is not None}
    _refuse_unknown_variables()

    class Sources(ServerSettings, BaseSettings):
        model_config = SettingsConfigDict(env_prefix=PREFIX, env_nested_delimiter=_LEVELS, extra="forbid", frozen=True)

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
                # Sources are merged table by table, but stores that are named replace all others.
                if any("stores" in before for before in layers[:number]):
                    layers[number] = {name: value for name, value in layer.items() if name != "stores"}
            return tuple(_Given(settings_cls, layer) for layer in layers)

    try:
        return Sources()  # type: ignore[call-arg]  # the values come from the sources
    except SettingsError as error:
        raise SettingError(f"an environment variable beginning with {PREFIX} is not valid JSON: {error}") from None
    except ValidationError as error:
        raise SettingError(_sentence(error.errors()[0], config)) from None


def _read(path: Path) -> dict[str, Any]:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingError(f"{path} cannot be read: {(error.strerror or str(error)).lower()}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingError(f"{path} is not valid TOML: {error}") from None
    stores = content.get("stores")
    if isinstance(stores, dict):  # a folder is meant as seen from the file that names it
        content["stores"] = {
            name: path.parent / folder if isinstance(folder, str) else folder for name, folder in stores.items()
        }
    return content


def _refuse_unknown_variables() -> None:
    for variable in sorted(os.environ):
        if variable.startswith(PREFIX):
            name = variable.removeprefix(PREFIX).lower().split(_LEVELS)[0]
            if name not in ServerSettings.model_fields:
                raise SettingError(
                    f"{variable} is no setting; the settings are {', '.join(ServerSettings.model_fields)}"
                )


def _sentence(error: ErrorDetails, config: Path | None) -> str:
    """What is wrong with one setting, for the operator."""
    where = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        *tables, name = [str(part) for part in error["loc"]]
        section = _section(tables)
        known = f"; the settings there are {', '.join(section.model_fields)}" if section is not None else ""
        file = f"{config}: " if config is not None else ""
        return f"{file}{where or name} is no setting{known}"
    if error["type"] == "missing" and error["loc"] == ("stores",):
        return "at least one store is needed: nearmt serve client.store"
    reason = error["msg"].removeprefix("Value error, ")
    return f"{where}: {reason[0].lower()}{reason[1:]}" if where else reason


def _section(names: list[str]) -> type[Section] | None:
    section: type[Section] = ServerSettings
    for name in names:
        if name.isdigit():
            continue
        field = section.model_fields.get(name)
        inner = field.annotation if field is not None else None
        if name == "keys":
            from nearmt.server.settings import ApiKey

            inner = ApiKey
        if not (isinstance(inner, type) and issubclass(inner, Section)):
            return None
        section = inner
    return section
