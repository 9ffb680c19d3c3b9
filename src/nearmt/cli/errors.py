"""Errors of a command: one sentence on standard error and an exit code.

The library names settings by their fields in backticks; here they become the options of the running command.
"""

import os
import re
import select
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NoReturn

import typer
from typer.core import TyperCommand

from nearmt.errors import NearMTError, OutputExistsError

_FIELD = re.compile(r"`([a-z]\w*)(=False)?`")
_COMMAND = re.compile(r"\bnearmt ([a-z]+)")
_ALIASES = {"factory": "index"}  # fields that a command calls by another name


class Command(TyperCommand):
    """A command that fails with one sentence. Exit code 2: the input or the call is at fault; 1: nearmt is."""

    def invoke(self, ctx: Any) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()  # here a closed pipe can still be handled
        except OutputExistsError as error:
            fail(f"{error}: choose another name, or overwrite it with --force", error.exit_code)
        except NearMTError as error:
            siblings = getattr(ctx.parent.command, "commands", {}) if ctx.parent is not None else {}
            fail(with_options(str(error), self, siblings), error.exit_code)
        except OSError as error:
            if isinstance(error, BrokenPipeError) and _is_output_closed():
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is still in the buffer
                raise typer.Exit(0) from None
            fail(f"{error.filename or ''}: {(error.strerror or str(error)).lower()}".lstrip(": "), 2)
        return result


def fail(sentence: str, code: int) -> NoReturn:
    """Print one sentence on standard error and exit."""
    print(f"nearmt: {' '.join(sentence.split())}", file=sys.stderr)
    sys.exit(code)


def with_options(message: str, command: Any, commands: Mapping[str, Any] = MappingProxyType({})) -> str:
    """Replace fields in backticks by options.

    After the name of another command, as in "run nearmt train with `methods`", they are that command's options, and
    otherwise those of the running command. A field without an option only loses its backticks. `field=False` becomes
    the option that switches the field off.
    """

    def name_option(found: re.Match[str]) -> str:
        mentioned = [commands[name] for name in _COMMAND.findall(message[: found.start()]) if name in commands]
        for candidate in (*mentioned[-1:], command):
            for parameter in candidate.params:
                if parameter.name == _ALIASES.get(found[1], found[1]) and parameter.param_type_name == "option":
                    names = [*parameter.opts, *parameter.secondary_opts]
                    return str(parameter.secondary_opts[0] if found[2] and parameter.secondary_opts else names[0])
        return found[0].strip("`")

    return _FIELD.sub(name_option, message)


def _is_output_closed() -> bool:
    """True if standard output is a pipe that nobody reads any more."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), select.POLLOUT)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))
