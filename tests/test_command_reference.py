"""The command reference of the documentation: nothing that a user can type is left out or left unexplained."""

from typing import Annotated

import typer

from commands import Reference, command_tree, render, render_overview
from links import on_site

HOST = "https://host.example/project"


def application() -> typer.Typer:
    app = typer.Typer(help="A program.")
    group = typer.Typer(help="About stores.")
    app.add_typer(group, name="store")

    @app.command(epilog="Example: prog greet Ada --times 2")
    def greet(
        name: Annotated[str, typer.Argument(metavar="NAME", help="Whom to greet.")],
        times: Annotated[int, typer.Option("--times", min=1, max=9, help="How often | at all.")] = 1,
    ) -> None:
        """Greet somebody. Twice, if asked to."""

    @group.command()
    def build(quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing.")] = False) -> None:
        """Build a store."""

    @group.command()
    def check() -> None:
        """Check a store."""

    return app


def reference(app: typer.Typer, **placed: list[str]) -> Reference:
    return Reference(command_tree(app, "prog"), {f"{page}.md": names for page, names in placed.items()})


def test_a_group_places_all_its_commands():
    assert reference(application(), one=["greet"], two=["store"]).problems() == []
    assert reference(application(), one=["greet", "store build"], two=["store check"]).problems() == []


def test_a_command_on_no_page_is_a_problem():
    (problem,) = reference(application(), one=["greet", "store build"]).problems()
    assert "prog store check is on no page" in problem


def test_a_command_that_does_not_exist_or_is_shown_twice_is_a_problem():
    assert reference(application(), one=["greet", "store", "gone"]).problems() == [
        "prog gone is on a page, but there is no such command"
    ]
    assert reference(application(), one=["greet", "store"], two=["store build", "greet"]).problems() == [
        "prog greet is on a page twice",
        "prog store build is on a page twice",
    ]


def test_commands_and_options_without_help_are_problems():
    app = application()

    @app.command()
    def silent(option: Annotated[int, typer.Option("--option")] = 1) -> None: ...

    assert reference(app, one=["greet", "store", "silent"]).problems() == [
        "prog silent has no help text",
        "prog silent: --option has no help text",
    ]


def test_a_command_is_shown_with_usage_limits_default_and_example():
    shown = render(reference(application()).root.subcommands[0])
    assert shown.startswith("## prog greet\n\nGreet somebody. Twice, if asked to.")
    assert "$ prog greet [OPTIONS] NAME" in shown
    assert "| `NAME` | Whom to greet. (required) |  |" in shown
    assert r"| `--times <number>` | How often \| at all. (1 to 9) | `1` |" in shown
    assert "$ prog greet Ada --times 2" in shown
    assert "--help" not in shown


def test_optional_arguments_are_bracketed_once_in_the_usage():
    app = application()

    @app.command()
    def serve(stores: Annotated[list[str] | None, typer.Argument(metavar="[STORE…]", help="Stores.")] = None) -> None:
        """Serve."""

    command = reference(app).command("serve")
    assert command is not None
    assert "$ prog serve [OPTIONS] [STORE…]\n" in render(command)


def test_the_overview_links_every_command_to_its_page():
    overview = render_overview(reference(application(), **{"commands/one": ["greet"], "commands/two": ["store"]}))
    assert "| [`prog greet`](one.md#prog-greet) | Greet somebody. |" in overview
    assert "(two.md#prog-store-build)" in overview


def test_links_work_on_the_site_as_they_do_in_the_repository():
    assert on_site("[a](../CHANGELOG.md#x)", "docs/server.md", HOST) == "[a](CHANGELOG.md#x)"
    assert on_site("[a](guide.md)", "docs/server.md", HOST) == "[a](guide.md)"
    assert on_site("[a](docs/guide.md)", "CHANGELOG.md", HOST) == "[a](guide.md)"
    assert on_site("[a](../guide.md) [b](../../SECURITY.md)", "docs/commands/index.md", HOST) == (
        "[a](../guide.md) [b](../SECURITY.md)"
    )
    assert on_site("[a](../examples/toy.py)", "docs/guide.md", HOST) == f"[a]({HOST}/blob/main/examples/toy.py)"
    unchanged = "`[a](../Makefile)` [b](https://x.example/) [c](#here) [d](../nowhere.md)\n```\n[e](../Makefile)\n```\n"
    assert on_site(unchanged, "docs/guide.md", HOST) == unchanged
