"""Option groups, values of options, and the options that load a model."""

import json
import logging
import shlex
from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from command_line import assert_one_sentence, nearmt
from nearmt.cli.groups import expand_groups
from nearmt.cli.output import counts_text, number_of, size_text
from nearmt.models import Seq2Seq

TEXT = "die neue tabelle zeigt die zelle .\n"


@dataclass(frozen=True)
class Group:
    """Two options, one of them required."""

    needed: Annotated[int, typer.Option("--needed", help="A number.")]
    words: Annotated[list[str] | None, typer.Option("--word", help="Words.")] = None


def test_groups_become_options():
    seen = []

    def command(name: Annotated[str, typer.Argument()] = "x", *, group: Group, flag: bool = False) -> None:
        """What it does."""
        seen.append((name, group, flag))

    app = typer.Typer()
    app.command()(expand_groups(command))
    run = CliRunner().invoke
    assert run(app, ["a", "--needed", "3", "--word", "b", "--word", "c", "--flag"]).exit_code == 0
    assert run(app, ["--needed", "4"]).exit_code == 0
    assert seen == [("a", Group(3, ["b", "c"]), True), ("x", Group(4, None), False)]
    assert run(app, []).exit_code == 2
    assert "What it does." in run(app, ["--help"]).stdout


@pytest.fixture
def loaded(monkeypatch):
    """Devices and types that models were loaded with."""
    found = []
    load = Seq2Seq.load

    def spy(*args, **options):
        model = load(*args, **options)
        found.append((options["device"], options["dtype"], model.engine))
        return model

    monkeypatch.setattr(Seq2Seq, "load", spy)
    return found


@pytest.fixture(scope="module")
def torch_store(client, tmp_path_factory):
    """A store of bfloat16 states, trained with them."""
    out = tmp_path_factory.mktemp("bfloat16") / "s.store"
    options = ("--engine", "torch", "--device", "cpu", "--dtype", "bfloat16", "--no-train", "-q")
    assert nearmt("build", client.memory, "--model", client.model, "--out", out, *options)[0] == 0
    training = ("--temperature", "0.1", "--max-k", "4", "--steps", "200", "--dtype", "bfloat16", "-q")
    assert nearmt("train", out, client.dev, *training)[0] == 0
    return out


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "auto"])
def test_translate_loads_the_model_as_asked(torch_store, loaded, caplog, dtype):
    with caplog.at_level(logging.ERROR):
        code, out, err = nearmt("translate", torch_store, "-", "-q", "--device", "cpu", "--dtype", dtype, stdin=TEXT)
    assert code == 0, err
    assert "spreadsheet" in out
    assert loaded == [("cpu", dtype, "torch")]


def test_all_commands_load_the_model_as_asked(torch_store, client, loaded, tmp_path):
    options = ("--device", "cpu", "--dtype", "bfloat16")
    more = tmp_path / "more.tsv"
    more.write_text("das neue wort .\tthe new word .\n", encoding="utf-8")
    text = tmp_path / "in.de"
    text.write_text(TEXT, encoding="utf-8")
    own = ("--tables", "own", "--text", text, "--batches", "1", "--rounds", "1", "--out", tmp_path / "bench", "-q")
    for command in (
        ("explain", torch_store, TEXT),
        ("evaluate", torch_store, client.test, "--limit", "2", "--methods", "base,adaptive", "-q"),
        ("add", torch_store, more, "-q"),
        ("bench", "speed", torch_store, *own),
    ):
        code, _, err = nearmt(*command, *options)
        assert code == 0, err
        assert set(loaded) == {("cpu", "bfloat16", "torch")}, command
        loaded.clear()


def test_verify_loads_the_model_as_asked(store_copy, loaded):
    next((store_copy / "data-000001").glob("keys*")).unlink()
    code, _, err = nearmt("verify", store_copy, "--repair", "--dtype", "float32", "--device", "cpu", "-q")
    assert code == 0, err
    assert [load[:2] for load in loaded] == [("cpu", "float32")]


def test_unknown_devices_and_types_fail_with_one_sentence(client):
    for option, value in (("--device", "toaster"), ("--dtype", "float8")):
        result = nearmt("translate", client.store, "-", option, value, stdin=TEXT)
        assert_one_sentence(result, f"{option.strip('-')}.*{value}")


def test_revision_is_passed_on(client, monkeypatch):
    asked = []

    def refuse(name, **options):
        asked.append((name, options["revision"]))
        raise KeyboardInterrupt

    monkeypatch.setattr(Seq2Seq, "load", refuse)
    for options in ((), ("--revision", "v2"), ("--model", "other"), ("--model", "other", "--revision", "v2")):
        assert nearmt("translate", client.store, "-", *options, stdin=TEXT)[0] == 130
    stored = json.loads(nearmt("info", client.store, "--json")[1])["model"]
    assert asked == [(stored["name"], None), (stored["name"], "v2"), ("other", None), ("other", "v2")]


@pytest.mark.parametrize(
    ("count", "expected"), [(0, "0 entries"), (1, "1 entry"), (2, "2 entries"), (12345, "12,345 entries")]
)
def test_counts_have_a_plural(count, expected):
    assert number_of(count, "entry", "entries") == expected
    assert number_of(count, "unit") == expected.replace("entries", "units").replace("entry", "unit")


def test_counts_by_reason_leave_out_zeros():
    assert counts_text({"empty": 2, "too long": 0, "duplicate": 1500}) == "2 empty, 1,500 duplicate"


@pytest.mark.parametrize(
    ("size", "expected"),
    [(0, "0 bytes"), (1, "1 byte"), (999, "999 bytes"), (1234, "1.2 kB"), (45_600_000, "45.6 MB"), (3e15, "3000.0 TB")],
)
def test_sizes_have_a_fitting_unit(size, expected):
    assert size_text(size) == expected


def test_removing_one_unit_is_singular_and_hints_can_be_pasted(store_copy):
    spaced = store_copy.rename(store_copy.with_name("a client's.store"))
    assert nearmt("remove", spaced, "--origin", "none")[2] == "nearmt: no matching units\n"
    source = json.loads(nearmt("explain", spaced, TEXT, "--json")[1])["tokens"][0]["neighbors"][0]["segment"]["source"]
    assert nearmt("remove", spaced, "--source-text", source)[1] == "1 unit removed, 1 sentence deleted\n"
    err = nearmt("remove", spaced, "--origin", "memory.tsv")[2]
    assert f"run nearmt compact {shlex.quote(str(spaced))}" in err
