"""Errors of commands: fields become options, closed pipes are no errors."""

import subprocess
import sys
from typing import Annotated

import pytest
import typer
from typer.core import TyperGroup

from command_line import assert_one_sentence, nearmt
from nearmt.cli import main
from nearmt.cli.app import app as nearmt_app
from nearmt.cli.errors import Command, with_options
from nearmt.errors import SettingError

app = typer.Typer()


@app.command(cls=Command)
def example(
    name: Annotated[str, typer.Argument()] = "",
    knn_share: Annotated[float, typer.Option("--share")] = 0.0,
    max_k: Annotated[int, typer.Option("--max-k")] = 1,
    train: Annotated[bool, typer.Option(" /--no-train")] = True,
    index: Annotated[str, typer.Option("--index", "-i")] = "",
) -> None:
    """An example."""


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("vanilla needs `max_k` and `knn_share`", "vanilla needs --max-k and --share"),
        ("`dev` does not go with `train=False`", "dev does not go with --no-train"),
        ("`factory` is not known", "--index is not known"),
        ("`temperature` must be above 0", "temperature must be above 0"),
        ("`name` is an argument", "name is an argument"),
        ("set `max_k=False`", "set --max-k"),
        ("`train` is needed", "--no-train is needed"),
        ("a `B5 file` stays, and so does `", "a `B5 file` stays, and so does `"),
    ],
)
def test_fields_become_options_of_the_command(message, expected):
    assert with_options(message, typer.main.get_command(app)) == expected


def test_fields_become_options_of_the_command_that_a_message_mentions():
    running, group = typer.main.get_command(app), typer.main.get_command(nearmt_app)
    assert isinstance(group, TyperGroup)
    commands = group.commands
    message = "run nearmt train a.store with `methods` robust, or use `knn_share`"
    assert with_options(message, running, commands) == "run nearmt train a.store with --methods robust, or use --share"
    assert with_options("run nearmt verify with `repair`", running, commands) == "run nearmt verify with --repair"
    assert with_options("use `repair` in nearmt verify", running, commands) == "use repair in nearmt verify"


def test_library_errors_name_options(client, tmp_path):
    build = ("build", client.memory, "--model", client.model, "--out")
    assert_one_sentence(
        nearmt(*build, tmp_path / "s", "--dev", client.dev, "--no-train"), "--dev is for training.* with --no-train$"
    )
    assert_one_sentence(nearmt(*build, client.store), "exists: .* replace it with --force$")


def test_field_without_an_option_loses_its_backticks(client, monkeypatch):
    def fail(*args: object, **options: object) -> None:
        raise SettingError("`knn_share` and `length_factor` are wrong")

    monkeypatch.setattr("nearmt.translator.Translator.__init__", fail)
    assert_one_sentence(
        nearmt("translate", client.store, "-", stdin="x"), "^nearmt: --share and length_factor are wrong$"
    )


def test_internal_error_is_one_sentence_unless_debugging(client, monkeypatch, capsys):
    def fail(*args: object, **options: object) -> None:
        raise ZeroDivisionError("no luck")

    monkeypatch.setattr("nearmt.store.Store.__init__", fail)
    monkeypatch.setattr(sys, "argv", ["nearmt", "info", str(client.store)])
    for debug, is_shown in (("", False), ("1", True)):
        monkeypatch.setenv("NEARMT_DEBUG", debug)
        with pytest.raises(SystemExit) as left:
            main()
        told = capsys.readouterr().err
        assert left.value.code == 1
        assert "nearmt: internal error: ZeroDivisionError: no luck" in told
        assert ("Traceback" in told) == is_shown


def in_pipe(arguments: str, reader: str) -> tuple[list[str], str]:
    """Standard output of the reader and the exit code of nearmt, and standard error."""
    command = f'{sys.executable} -m nearmt {arguments} | {reader}; echo "${{PIPESTATUS[0]}}"'
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    return done.stdout.splitlines(), done.stderr


def test_closed_pipe_ends_quietly(client, tmp_path):
    (tmp_path / "in.de").write_text("die neue tabelle zeigt die zelle .\n" * 40, encoding="utf-8")
    out, err = in_pipe(f"translate {client.store} {tmp_path / 'in.de'} -q --batch-size 1", "head -1")
    assert out[1:] == ["0"]
    assert err == ""
    sentence = '"heute öffnet die tabelle die große zelle ."'
    for arguments in (f"explain {client.store} {sentence}", f"explain {client.store} {sentence} --json"):
        assert in_pipe(arguments, "true") == (["0"], "")
    assert in_pipe(f"info {client.store}", "true") == (["0"], "")


def test_broken_pipe_elsewhere_is_an_error(client, monkeypatch):
    def fail(*args: object, **options: object) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr("nearmt.store.Store.__init__", fail)
    monkeypatch.setattr("nearmt.cli.errors._is_output_closed", lambda: False)
    assert_one_sentence(nearmt("info", client.store), "broken pipe")
