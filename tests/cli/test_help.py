"""`--help` is complete, grouped, and quick."""

import inspect
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from command_line import nearmt
from nearmt.cli.app import app

# Panels of `nearmt --help` with their commands.
PANELS = {
    "Everyday": ["demo", "build", "train", "translate", "explain", "evaluate"],
    "Memory": ["info", "matches", "add", "remove", "export", "index", "compact", "verify"],
    "Research": ["paper", "bench"],
    "Service": ["serve"],
}


def commands(group: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """All commands with the words that call them."""
    group = group or typer.main.get_command(app)
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


COMMANDS = dict(commands())


def test_every_command_is_in_a_panel():
    root: Any = typer.main.get_command(app)
    found: dict[str, list[str]] = {}
    for name, command in root.commands.items():
        found.setdefault(command.rich_help_panel, []).append(name)
    assert found == PANELS
    assert {path[1] for path in COMMANDS if path[0] == "bench"} == {"speed", "indexes", "server"}


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_option_has_a_help_text_and_a_panel(path):
    command = COMMANDS[path]
    assert command.help
    assert command.epilog.startswith(f"Example: nearmt {' '.join(path)}")
    for parameter in command.params:
        assert parameter.help, parameter.name
        assert parameter.help.endswith("."), parameter.help
        if parameter.param_type_name == "option" and parameter.name != "repair":
            assert parameter.rich_help_panel, parameter.name


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_commands_take_few_parameters(path):
    function = inspect.unwrap(COMMANDS[path].callback)
    assert len(inspect.signature(function).parameters) <= 10


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_shows_every_option(path):
    code, out, _ = nearmt(*path, "--help")
    assert code == 0
    for parameter in COMMANDS[path].params:
        for option in (*parameter.opts, *parameter.secondary_opts):
            assert parameter.param_type_name == "argument" or option in out


@pytest.mark.parametrize(
    "path", [path for path in COMMANDS if {"model", "beam"} & {p.name for p in COMMANDS[path].params}], ids=" ".join
)
def test_device_and_type_can_be_chosen_where_a_model_is_loaded(path):
    names = {parameter.name for parameter in COMMANDS[path].params}
    if path not in {("serve",), ("bench", "server")}:  # the server has settings of its own
        assert {"device", "dtype"} <= names


def test_help_does_not_import_heavy_libraries():
    script = "import sys; sys.argv = ['nearmt', *sys.argv[1:], '--help']\nfrom nearmt.cli import main\n"
    script += "try:\n    main()\nfinally:\n    assert not {'torch', 'transformers', 'faiss'} & set(sys.modules)\n"
    for path in ([], ["build"], ["bench", "speed"]):
        done = subprocess.run([sys.executable, "-c", script, *path], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr
