"""Running commands in this process, and what a failed command must look like."""

import re

from typer.testing import CliRunner

from nearmt.cli.app import app

Result = tuple[int, str, str]  # exit code, standard output, standard error


def nearmt(*arguments: object, stdin: str | None = None) -> Result:
    """Run a command."""
    done = CliRunner().invoke(app, [*map(str, arguments)], input=stdin)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stdout, done.stderr


def assert_one_sentence(result: Result, pattern: str, code: int = 2) -> None:
    """A command failed with one sentence on standard error."""
    assert result[0] == code, result
    assert result[1] == ""
    lines = [line for line in result[2].splitlines() if line.startswith("nearmt:")]
    assert len(lines) == 1, result[2]
    assert re.search(pattern, lines[0]), lines[0]
    assert "Traceback" not in result[2]
