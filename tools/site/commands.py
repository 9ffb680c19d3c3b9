"""The command reference, generated from the typer application: what `nearmt COMMAND --help` says, as Markdown.

Commands are read through the few attributes that click has always had, because typer brings a click of its own.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import typer

_FACTS = re.compile(r"\s*\[(?P<facts>(?:default|env var|required|x?\s*[<>\d]).*)\]\s*$", re.DOTALL)
_EXAMPLE = "Example: "
_TYPE = re.compile(r"<(?P<name>[^<>]+)>")
_TYPE_NAMES = {"str": "text", "int": "number", "float": "number"}
_RANGE = re.compile(r"(?P<low>[\d.]+)<=x<=(?P<high>[\d.]+)|x>=(?P<least>[\d.]+)|x<=(?P<most>[\d.]+)")


@dataclass(frozen=True)
class Command:
    """A command or a group of commands: `path` is what is typed after the program's name."""

    path: str
    context: Any
    subcommands: tuple["Command", ...] = ()

    @property
    def help(self) -> str:
        return (self.context.command.help or "").strip()

    @property
    def title(self) -> str:
        return f"{self.program} {self.path}".strip()

    @property
    def program(self) -> str:
        return str(self.context.find_root().info_name)

    def all_below(self) -> Iterator["Command"]:
        """Itself, and every command and group in it."""
        yield self
        for command in self.subcommands:
            yield from command.all_below()

    def parameters(self) -> list[Any]:
        """Its arguments and options, without --help and what is hidden."""
        found = self.context.command.get_params(self.context)
        return [each for each in found if each.name != "help" and not getattr(each, "hidden", False)]


@dataclass(frozen=True)
class Reference:
    """Which commands there are, and where pages place them (page path → commands named there)."""

    root: Command
    placed: dict[str, list[str]] = field(default_factory=dict)

    def command(self, path: str) -> Command | None:
        return next((command for command in self.root.all_below() if command.path == path), None)

    def page_of(self, path: str) -> str | None:
        """The page that shows a command, by itself or with the group that it belongs to."""
        words = path.split()
        around = {" ".join(words[: count + 1]) for count in range(len(words))}
        return next((page for page, named in self.placed.items() if around & set(named)), None)

    def problems(self) -> list[str]:
        """What a reader would miss, one sentence each."""
        return [*self._undocumented(), *self._misplaced()]

    def _undocumented(self) -> Iterator[str]:
        for command in self.root.all_below():
            if not command.help:
                yield f"{command.title} has no help text"
            for parameter in command.parameters():
                if not (getattr(parameter, "help", None) or "").strip():
                    yield f"{command.title}: {parameter.opts[0]} has no help text"

    def _misplaced(self) -> Iterator[str]:
        named = [path for paths in self.placed.values() for path in paths]
        for path in sorted(set(named)):
            if self.command(path) is None:
                yield f"{self.root.program} {path} is on a page, but there is no such command"
            words = path.split()
            above = [" ".join(words[:count]) for count in range(1, len(words))]
            if named.count(path) > 1 or any(group in named for group in above):
                yield f"{self.root.program} {path} is on a page twice"
        for command in self.root.all_below():
            if command.path and not command.subcommands and self.page_of(command.path) is None:
                yield f"{command.title} is on no page: write <!-- command: {command.path} --> into one"


def command_tree(app: typer.Typer, program: str) -> Command:
    """The commands of an application."""
    return _command(typer.main.get_command(app), program, None)


def _command(command: Any, name: str, parent: Any) -> Command:
    context = typer.Context(command, info_name=name, parent=parent)
    path = " ".join(context.command_path.split()[1:])
    inner: dict[str, Any] = getattr(command, "commands", {})
    shown = {name: each for name, each in inner.items() if not each.hidden}
    return Command(path, context, tuple(_command(each, name, context) for name, each in shown.items()))


def render(command: Command, level: int = 2) -> str:
    """A command with its usage, options and example; a group with all its commands."""
    parts = [f"{'#' * level} {command.title}", command.help]
    if not command.subcommands:
        pieces = command.context.command.collect_usage_pieces(command.context)
        parts.append(_code(" ".join([command.title, *map(_usage, pieces)])))
    parts += _tables(command)
    epilog = (command.context.command.epilog or "").strip()
    if epilog.startswith(_EXAMPLE):
        parts.append("Example:\n\n" + _code(epilog.removeprefix(_EXAMPLE)))
    elif epilog:
        parts.append(epilog)
    parts += [render(each, level + 1) for each in command.subcommands]
    return "\n\n".join(part for part in parts if part)


def render_options(root: Command) -> str:
    """What can be given before any command."""
    return "\n\n".join(_tables(root))


def render_overview(reference: Reference) -> str:
    """One row for each command, with a link to where it is described; pages are seen from their own folder."""
    rows = ["| Command | |", "|---|---|"]
    for command in reference.root.all_below():
        if command.path and not command.subcommands:
            page = str(reference.page_of(command.path)).rpartition("/")[2]
            first = re.split(r"(?<=\.)\s", command.help, maxsplit=1)[0]
            rows.append(f"| [`{command.title}`]({page}#{command.title.replace(' ', '-')}) | {_cell(first)} |")
    return "\n".join(rows)


def _tables(command: Command) -> list[str]:
    tables = []
    for kind, title in (("argument", "Argument"), ("option", "Option")):
        found = [each for each in command.parameters() if each.param_type_name == kind]
        if found:
            rows = [_row(each, command.context) for each in found]
            tables.append("\n".join([f"| {title} | Description | Default |", "|---|---|---|", *rows]))
    return tables


def _row(parameter: Any, context: Any) -> str:
    name, text = parameter.get_help_record(context)
    name = name.removeprefix("/ ")  # an option that only switches off, such as --no-train
    facts = _FACTS.search(text)
    described = text[: facts.start()] if facts else text
    listed = re.split(r";\s*", facts["facts"]) if facts else []
    default = "; ".join(each.removeprefix("default: ") for each in listed if each.startswith("default: "))
    limits = "; ".join(_limit(each) for each in listed if not each.startswith("default: "))
    if parameter.param_type_name == "argument":
        name = name.partition(" <")[0]  # the metavar says more than its type
    shown = _cell(described) + (f" ({_cell(limits)})" if limits else "")
    return f"| {_code_cell(_TYPE.sub(_type, name))} | {shown} | {_code_cell(default) if default else ''} |"


def _usage(piece: str) -> str:
    """`NAME` for `{NAME}`, and `[STORE…]` for `[[STORE…]]...`: metavars have brackets and dots of their own."""
    plain = re.sub(r"^\{(.*)\}|^\[(\[.*\])\]", r"\1\2", piece)
    return plain.removesuffix("...") if "…" in plain else plain


def _type(found: re.Match[str]) -> str:
    """`<list[Path]>` or `<int range>` for users, who do not write Python."""
    name = found["name"].removeprefix("list[").removesuffix("]").removesuffix(" range").lower()
    return f"<{_TYPE_NAMES.get(name, name)}>"


def _limit(text: str) -> str:
    """`x>=1` or `1<=x<=64` in words."""
    found = _RANGE.fullmatch(text)
    if found is None:
        return text
    low, high = found["low"] or found["least"], found["high"] or found["most"]
    if low and high:
        return f"{low} to {high}"
    return f"at least {low}" if low else f"at most {high}"


def _code(text: str) -> str:
    return f"```console\n$ {text}\n```"


def _cell(text: str) -> str:
    """Text for a cell of a table; angle brackets and stars are meant as they are."""
    joined = " ".join(text.split())
    return re.sub(r"([|<>*_])", r"\\\1", joined)


def _code_cell(text: str) -> str:
    return f"`{' '.join(text.split())}`".replace("|", r"\|")
