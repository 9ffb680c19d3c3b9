"""The command group, and how errors leave it: one sentence on standard error and an exit code that means something."""

import os
import sys
import traceback

import typer

from nearmt import __version__
from nearmt.cli import (
    bench_command,
    demo_command,
    explain_command,
    load_command,
    memory_commands,
    paper_command,
    serve_command,
    store_commands,
    text_commands,
)
from nearmt.errors import NearMTError, OutputExistsError

app = typer.Typer(
    name="nearmt",
    help="Adaptive kNN machine translation: a frozen Hugging Face model learns a domain from a translation memory.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"nearmt {__version__}")
        raise typer.Exit()


@app.callback()
def _options(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Show the version."),
) -> None:
    """Nothing to do before a command."""


store_commands.register(app)
memory_commands.register(app)
text_commands.register(app)
explain_command.register(app)
demo_command.register(app)
paper_command.register(app)
bench_command.register(app)
serve_command.register(app)
load_command.register(app)


def main() -> None:
    """Run the command line. Exit code 2: the input or the call is at fault; 1: we are; 130: interrupted."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        app(standalone_mode=True)
    except OutputExistsError as error:
        _leave(f"{error}: choose another name, or overwrite it with --force", error.exit_code)
    except NearMTError as error:
        _leave(str(error), error.exit_code)
    except OSError as error:
        _leave(f"{error.filename or ''}: {(error.strerror or str(error)).lower()}".lstrip(": "), 2)
    except Exception as error:
        if os.environ.get("NEARMT_DEBUG"):
            traceback.print_exc()
        _leave(f"this should not have happened: {type(error).__name__}: {error} (NEARMT_DEBUG=1 shows where)", 1)


def _leave(sentence: str, code: int) -> None:
    print(f"nearmt: {' '.join(sentence.split())}", file=sys.stderr)
    sys.exit(code)
