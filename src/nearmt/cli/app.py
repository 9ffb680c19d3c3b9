"""The command-line program: its commands in the order and the panels of `nearmt --help`."""

import inspect
import os
import traceback
from collections.abc import Callable

import typer

from nearmt import __version__
from nearmt.cli.bench_commands import indexes, server, speed
from nearmt.cli.build_command import build
from nearmt.cli.demo_command import demo
from nearmt.cli.errors import Command, fail
from nearmt.cli.evaluate_command import evaluate
from nearmt.cli.explain_command import explain
from nearmt.cli.groups import expand_groups
from nearmt.cli.matches_command import matches
from nearmt.cli.memory_commands import add, compact, export, index, remove
from nearmt.cli.paper_command import paper
from nearmt.cli.serve_command import serve
from nearmt.cli.store_commands import info, verify
from nearmt.cli.train_command import train
from nearmt.cli.translate_command import translate

_SETTINGS = {
    "no_args_is_help": True,
    "pretty_exceptions_enable": False,
    "rich_markup_mode": "rich",
    "context_settings": {"help_option_names": ["-h", "--help"]},
}
_EVERYDAY, _MEMORY, _RESEARCH, _SERVICE = "Everyday", "Memory", "Research", "Service"
_MILVUS = "--index milvus:HNSW --uri http://localhost:19530"

app = typer.Typer(
    name="nearmt",
    help="Adaptive kNN machine translation: a frozen Hugging Face model learns a domain from a translation memory.",
    **_SETTINGS,  # type: ignore[arg-type]
)
bench = typer.Typer(help="Measure the speed of decoding and search, of indexes, or of the server.", **_SETTINGS)  # type: ignore[arg-type]


def _add(group: typer.Typer, function: Callable[..., None], panel: str | None, example: str) -> None:
    """Add a command; its name is the function's, its help the function's docstring."""
    name = function.__name__
    prefix = "nearmt bench" if group is bench else "nearmt"
    epilog = f"Example: {prefix} {name} {example}".rstrip()
    paragraphs = inspect.cleandoc(function.__doc__ or "").split("\n\n")
    help_text = "\n\n".join(paragraph.replace("\n", " ") for paragraph in paragraphs)  # the terminal wraps the lines
    group.command(name, cls=Command, help=help_text, rich_help_panel=panel, epilog=epilog)(expand_groups(function))


_add(app, demo, _EVERYDAY, "")
_add(app, build, _EVERYDAY, "client.tmx --model Helsinki-NLP/opus-mt-fr-en --out client.store")
_add(app, train, _EVERYDAY, "client.store dev.tmx")
_add(app, translate, _EVERYDAY, "client.store < in.fr > out.en")
_add(app, explain, _EVERYDAY, 'client.store "La procuration est valable."')
_add(app, evaluate, _EVERYDAY, "client.store test.tsv")
_add(app, info, _MEMORY, "client.store")
_add(app, matches, _MEMORY, 'client.store "La procuration est valable."')
_add(app, add, _MEMORY, "client.store confirmed-today.tmx --origin client-a")
_add(app, remove, _MEMORY, "client.store --origin client-a")
_add(app, export, _MEMORY, "client.store --tmx client.tmx")
_add(app, index, _MEMORY, f"client.store {_MILVUS}")
_add(app, compact, _MEMORY, "client.store")
_add(app, verify, _MEMORY, "client.store")
_add(app, paper, _RESEARCH, "demo-fr-en --out paper-output")
_add(bench, speed, None, "client.store --entries 400000 --batches 1,16")
_add(bench, indexes, None, f"client.store --index Flat {_MILVUS}")
_add(bench, server, None, "client.store in.fr --clients 64 --seconds 120")
app.add_typer(bench, name="bench", rich_help_panel=_RESEARCH)
_add(app, serve, _SERVICE, "client.store --port 8080")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"nearmt {__version__}")
        raise typer.Exit()


@app.callback()
def _options(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Show the version and exit."
    ),
) -> None:
    """Nothing to do before a command."""


def main() -> None:
    """Run the command line. Exit code 2: the input or the call is at fault; 1: nearmt is; 130: interrupted."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        app()
    except Exception as error:
        if os.environ.get("NEARMT_DEBUG"):
            traceback.print_exc()
        fail(f"internal error: {type(error).__name__}: {error} (NEARMT_DEBUG=1 shows the traceback)", 1)
