"""`nearmt serve`: the HTTP server."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from nearmt.cli.options import (
    Offline,
    ServerConfig,
    StoreEngine,
    StoreModel,
    Threads,
    model_option,
    server_option,
    set_threads,
)
from nearmt.errors import MissingExtraError, SettingError


@dataclass(frozen=True)
class _ServerOptions:
    """Settings that can be given on the command line; named as in the server's configuration."""

    host: Annotated[
        str | None, server_option("--host", help="Address to bind to. Default: 127.0.0.1.", show_default=False)
    ] = None
    port: Annotated[
        int | None,
        server_option("--port", help="Port to bind to; 0 for any free one. Default: 8080.", show_default=False),
    ] = None
    allow_edits_without_key: Annotated[
        bool, server_option("--allow-edits-without-key", help="Let anyone on this machine change the stores.")
    ] = False
    log_texts: Annotated[bool, server_option("--log-texts", help="Write the texts of users to the log.")] = False
    model: StoreModel = None
    engine: StoreEngine = None
    device: Annotated[
        str | None,
        model_option("--device", help="Device to run the model on: cpu, cuda, cuda:1, mps. Default: cpu."),
    ] = None
    dtype: Annotated[
        str | None,
        model_option(
            "--dtype", help="Type of the model's weights: float32, float16, bfloat16, or auto. Default: float32."
        ),
    ] = None
    offline: Offline = False
    threads: Threads = None


def serve(
    stores: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="STORE", help="Folders of stores; each store has the name of its folder, without .store."
        ),
    ] = None,
    *,
    config: ServerConfig = None,
    server: _ServerOptions,
) -> None:
    """Serve stores over HTTP, for native, LibreTranslate, DeepL and Apertium clients."""
    given = {name: value for name, value in vars(server).items() if value is not None and value is not False}
    if stores:
        given["stores"] = _named(stores)
    try:
        from nearmt.server.configuration import load_settings

        settings = load_settings(config, given)
        from nearmt.server.run import serve as run  # not earlier: it imports torch, and wrong settings fail at once
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "nearmt":
            raise
        raise MissingExtraError("the server", "nearmt[server]") from None
    set_threads(settings.threads)
    run(settings)


def _named(folders: list[Path]) -> dict[str, Path]:
    """Name stores by their folders, without the extension."""
    found: dict[str, Path] = {}
    for folder in folders:
        name = folder.absolute().name.removesuffix(".store")
        if name in found:
            raise SettingError(f"{found[name]} and {folder} would have the same name: name them in the --config file")
        found[name] = folder
    return found
