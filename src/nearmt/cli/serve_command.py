"""The server from the command line."""

from pathlib import Path
from typing import Annotated

import typer

from nearmt.cli.options import EngineOption, ModelOption, Offline, Threads, set_threads


def register(app: typer.Typer) -> None:
    """Add the command of this file."""
    app.command("serve", epilog="Example: nearmt serve client.store --port 8080")(serve)


def serve(
    stores: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[STORE…]", help="Folders of stores; each is called by its folder's name."),
    ] = None,
    config: Annotated[Path | None, typer.Option("--config", help="TOML file with the settings.")] = None,
    host: Annotated[str | None, typer.Option("--host", help="Address to listen at; else 127.0.0.1.")] = None,
    port: Annotated[int | None, typer.Option("--port", help="Port to listen at; 0 is any free one; else 8080.")] = None,
    model: ModelOption = None,
    engine: EngineOption = None,
    offline: Offline = False,
    allow_edits_without_key: Annotated[
        bool, typer.Option("--allow-edits-without-key", help="Anyone on this machine may change the memories.")
    ] = False,
    log_texts: Annotated[bool, typer.Option("--log-texts", help="Write the users' texts to the log.")] = False,
    threads: Threads = None,
) -> None:
    """Serve stores over HTTP: native, LibreTranslate, DeepL and Apertium clients can use them."""
    from nearmt.errors import MissingExtraError

    flags = {
        "stores": _named(stores) if stores else None,
        "host": host,
        "port": port,
        "model": model,
        "engine": engine,
        "offline": offline or None,
        "allow_edits_without_key": allow_edits_without_key or None,
        "log_texts": log_texts or None,
        "threads": threads,
    }
    try:
        from nearmt.server.configuration import load_settings

        settings = load_settings(config, flags)
        from nearmt.server.run import serve as run  # not before: it loads torch, and a wrong setting is told at once
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "nearmt":
            raise
        raise MissingExtraError("the server", "nearmt[server]") from None
    set_threads(settings.threads)
    run(settings)


def _named(folders: list[Path]) -> dict[str, Path]:
    """Stores by the names of their folders, without the ending."""
    from nearmt.errors import SettingError

    found: dict[str, Path] = {}
    for folder in folders:
        name = folder.absolute().name.removesuffix(".store")
        if name in found:
            raise SettingError(f"{found[name]} and {folder} would have the same name: name them in --config")
        found[name] = folder
    return found
