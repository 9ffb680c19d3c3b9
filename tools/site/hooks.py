"""What mkdocs does beyond its own: the reference, checked and generated, and links that also work on GitHub.

Pages place generated parts by comments, which GitHub does not show:

    <!-- command: build -->      a command, or a group with all its commands
    <!-- commands -->            the table of all commands
    <!-- options -->             the options that go before any command
    <!-- api: nearmt.Translator -->   a public name, from its docstring and annotations

A command or public name that is on no page, or that has no text of its own, fails the build.
"""

import importlib
import re
import tomllib
from collections.abc import Callable

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import links
from commands import Command, Reference, command_tree, render, render_options, render_overview

PACKAGE = "nearmt"
APPLICATION = ("nearmt.cli.app", "app")  # the module and the name of the typer application
_MARK = re.compile(r"^<!-- (?P<kind>command|commands|options|api)(?:: (?P<name>[^>]+?))? -->$", re.MULTILINE)

_reference: Reference


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Addresses have one place, pyproject.toml."""
    urls = tomllib.loads((links.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]
    config.repo_url, config.site_url = urls["Source"], urls["Documentation"]
    config.repo_name = urls["Source"].removeprefix("https://").partition("/")[2]
    config.edit_uri = "edit/main/docs/"
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from the top of the repository, and see that pages place all there is to document."""
    global _reference
    for name, text in links.root_pages().items():
        files.append(File.generated(config, name, content=text))
    pages = {file.src_uri: file.content_string for file in files.documentation_pages()}
    module, name = APPLICATION
    root = command_tree(getattr(importlib.import_module(module), name), PACKAGE)
    _reference = Reference(root, {page: _named("command", text) for page, text in pages.items()})
    problems = _reference.problems() + _problems_of_api([n for text in pages.values() for n in _named("api", text)])
    if problems:
        raise PluginError("the reference is incomplete:\n" + "\n".join(f"  {problem}" for problem in problems))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links first, for what is generated is made for the site."""
    path = page.file.src_uri
    in_repository = path if path in links.ROOT_PAGES else f"docs/{path}"
    if path in links.ROOT_PAGES:
        page.edit_url = f"{config.repo_url}/edit/main/{path}"
    return _MARK.sub(_generated, links.on_site(markdown, in_repository, str(config.repo_url)))


def _named(kind: str, text: str) -> list[str]:
    return [found["name"] for found in _MARK.finditer(text) if found["kind"] == kind]


def _generated(found: re.Match[str]) -> str:
    makers: dict[str, Callable[[str], str]] = {
        "command": lambda name: render(_found(_reference.command(name))),
        "commands": lambda _: render_overview(_reference),
        "options": lambda _: render_options(_reference.root),
        "api": lambda name: f"::: {name}",
    }
    return makers[found["kind"]](found["name"])


def _found(command: Command | None) -> Command:
    assert command is not None  # on_files has looked
    return command


def _problems_of_api(placed: list[str]) -> list[str]:
    public = [f"{PACKAGE}.{name}" for name in importlib.import_module(PACKAGE).__all__]
    package = griffe.load(PACKAGE, search_paths=[str(links.ROOT / "src")])
    missing = [name for name in public if name not in placed]
    found = [f"{name} is public but on no page: write <!-- api: {name} --> into one" for name in missing]
    found += [f"{name} is on a page but not in {PACKAGE}.__all__" for name in placed if name not in public]
    found += [f"{name} is on a page twice" for name in sorted(set(placed)) if placed.count(name) > 1]
    for name in public:
        if name.endswith("__"):
            continue
        member = package[name.partition(".")[2]]
        if not member.has_docstring:
            found.append(f"{name} has no docstring")
    return found
