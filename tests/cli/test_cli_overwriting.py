"""Commands overwrite files only with --force, and refuse before they load a model."""

import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from command_line import assert_one_sentence, nearmt
from nearmt.errors import OutputExistsError
from nearmt.experiments.demo import Materials
from nearmt.models import Seq2Seq
from nearmt.store import Store

SENTENCE = "die neue tabelle zeigt die zelle .\n"
REFUSAL = r"exists: choose another name, or overwrite it with --force$"
COMMANDS = {"demo": ("demo",), "paper": ("paper",), "bench": ("bench", "speed")}
FILES = {
    "md": SENTENCE,
    "po": f'msgid "{SENTENCE.strip()}"\nmsgstr ""\n',
    "xlf": '<xliff version="1.2"><file original="a" source-language="de" target-language="en"><body>'
    f'<trans-unit id="1"><source>{SENTENCE.strip()}</source></trans-unit></body></file></xliff>\n',
    "tmx": '<tmx version="1.4"><header srclang="de"/><body>'
    f'<tu><tuv xml:lang="de"><seg>{SENTENCE.strip()}</seg></tuv></tu></body></tmx>\n',
}


@pytest.fixture
def no_model(monkeypatch):
    """Fail if a model is loaded."""

    def refuse(*args, **options):
        raise AssertionError("a model was loaded")

    monkeypatch.setattr(Seq2Seq, "load", refuse)


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("options", [(), ("--json",)])
@pytest.mark.usefixtures("no_model")
def test_translate_refuses_an_existing_file(client, tmp_path, kind, options):
    text, other = tmp_path / f"a.{kind}", tmp_path / "precious.tmx"
    text.write_text(FILES[kind], encoding="utf-8")
    other.write_text("precious")
    for out in (text, other):
        assert_one_sentence(nearmt("translate", client.store, text, "-o", out, *options), rf"{out.name} {REFUSAL}")
    assert_one_sentence(nearmt("translate", client.store, text, "-o", tmp_path, *options), "is a folder, not a file")
    assert_one_sentence(
        nearmt("translate", client.store, text, "-o", tmp_path / "none" / "b", *options), "is not a folder"
    )
    assert text.read_text(encoding="utf-8") == FILES[kind]
    assert other.read_text() == "precious"
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("kind", FILES)
def test_force_translates_a_file_in_place(client, tmp_path, kind):
    text = tmp_path / f"a.{kind}"
    lines = 100 if kind == "md" else 1  # more than are read at once
    text.write_text(FILES[kind] * lines, encoding="utf-8")
    code, _, err = nearmt("translate", client.store, text, "-o", text, "--force", "-q", "--batch-size", "2")
    assert (code, err) == (0, "")
    assert text.read_text(encoding="utf-8").count("the new spreadsheet shows the cell .") == lines
    assert list(tmp_path.iterdir()) == [text]


def test_standard_output_devices_and_pipes_need_no_force(client, tmp_path):
    text, pipe = tmp_path / "a.md", tmp_path / "pipe"
    text.write_text(SENTENCE, encoding="utf-8")
    os.mkfifo(pipe)
    assert "spreadsheet" in nearmt("translate", client.store, text, "-o", "-", "-q")[1]
    assert nearmt("translate", client.store, text, "-o", "/dev/null", "-q")[0] == 0
    found = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_text(encoding="utf-8")))
    reader.start()
    assert nearmt("translate", client.store, text, "-o", pipe, "-q")[0] == 0
    reader.join()
    assert "spreadsheet" in found[0]


def test_standard_output_can_be_given_as_a_path(client, tmp_path):
    text, out = tmp_path / "a.md", tmp_path / "out"
    text.write_text(SENTENCE, encoding="utf-8")
    with out.open("w") as stream:
        command = [sys.executable, "-m", "nearmt", "translate", client.store, text, "-o", "/dev/stdout", "-q"]
        subprocess.run(command, stdout=stream, check=True)
    assert out.read_text(encoding="utf-8").startswith("the new spreadsheet")


@pytest.mark.usefixtures("no_model")
def test_export_refuses_an_existing_file(client, tmp_path):
    out = tmp_path / "precious.tmx"
    out.write_text("precious")
    assert_one_sentence(nearmt("export", client.store, "--tmx", out), REFUSAL)
    with pytest.raises(OutputExistsError, match=r"precious\.tmx exists$"):
        Store(client.store).export_tmx(out)
    assert out.read_text() == "precious"
    code, printed, _ = nearmt("export", client.store, "--tmx", out, "--force")
    assert (code, printed) == (0, f"500 units written to {out}\n")
    assert out.read_text(encoding="utf-8").count("<tu>") + out.read_text(encoding="utf-8").count("<tu ") == 500
    assert nearmt("export", client.store, "--tmx", tmp_path / "new.tmx", "--json")[0] == 0
    assert (tmp_path / "new.tmx").read_bytes() == out.read_bytes()
    Store(client.store).export_tmx(out, overwrite=True)


@pytest.mark.parametrize(("path", "shown"), [("-", "standard output"), ("/dev/stdout", "/dev/stdout")])
def test_export_to_standard_output_is_only_tmx(client, tmp_path, path, shown):
    command = [sys.executable, "-m", "nearmt", "export", client.store, "--tmx", path]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.rstrip().endswith("</tmx>")
    assert done.stderr == f"500 units written to {shown}\n"
    quiet = subprocess.run([*command, "--quiet"], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert (quiet.stdout, quiet.stderr) == (done.stdout, "")
    assert list(tmp_path.iterdir()) == []


def test_export_refuses_json_and_tmx_on_standard_output(client):
    assert_one_sentence(nearmt("export", client.store, "--tmx", "-", "--json"), "--tmx a file")


def test_quiet_export_prints_nothing(client, tmp_path):
    assert nearmt("export", client.store, "--tmx", tmp_path / "a.tmx", "-q") == (0, "", "")
    assert (tmp_path / "a.tmx").exists()


def test_evaluate_refuses_a_folder_with_files(client, tmp_path, monkeypatch):
    out = tmp_path / "out"
    out.mkdir()
    command = ("evaluate", client.store, client.test, "--limit", "3", "--methods", "base", "--outputs", out, "-q")
    assert nearmt(*command)[0] == 0
    first = (out / "base.txt").read_text(encoding="utf-8")
    (out / "base.txt").write_text("precious")
    with monkeypatch.context() as patch:
        patch.setattr(Seq2Seq, "load", lambda *args, **options: pytest.fail("a model was loaded"))
        assert_one_sentence(nearmt(*command), "out has files in it: choose another name, or overwrite it with --force")
        assert_one_sentence(nearmt(*command[:-2], out / "base.txt"), "is a file, not a folder")
    assert (out / "base.txt").read_text() == "precious"
    code, printed, _ = nearmt(*command, "--force", "--json")
    assert code == 0
    assert json.loads(printed)
    assert (out / "base.txt").read_text(encoding="utf-8") == first
    assert {path.name for path in out.iterdir()} == {"base.txt", "source.txt", "reference.txt", "evaluation.json"}


def test_bench_server_leaves_no_files(client, tmp_path):
    pytest.importorskip("uvicorn")
    (tmp_path / "in.de").write_text(SENTENCE, encoding="utf-8")
    before = set(Path(tempfile.gettempdir()).glob("nearmt-bench-server-*"))
    command = [sys.executable, "-m", "nearmt", "bench", "server", client.store, "in.de"]
    options = ["--clients", "2", "--seconds", "1", "--json", "-q", "--threads", "1"]
    done = subprocess.run([*command, *options], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["wrong_answers"] == 0
    assert [path.name for path in tmp_path.iterdir()] == ["in.de"]
    assert set(Path(tempfile.gettempdir()).glob("nearmt-bench-server-*")) <= before


@pytest.mark.usefixtures("no_model")
@pytest.mark.parametrize("command", ["demo", "paper", "bench"])
def test_output_folder_with_other_files_is_refused(client, tmp_path, command, monkeypatch):
    materials = Materials(client.model, client.memory, client.dev, client.test)
    monkeypatch.setattr("nearmt.experiments.demo.find_materials", lambda progress: materials)
    monkeypatch.setattr("nearmt_demo.model_folder", lambda: client.model)
    arguments = {"demo": (), "paper": ("demo-fr-en",), "bench": (client.store,)}[command]
    for name in ("report.html", "results.json", "result.json", "performance.md", "bench.md"):
        (tmp_path / name).write_text("precious")
    refusal = f"has files in it that are not from nearmt {command}: choose a new folder or an empty one"
    assert_one_sentence(nearmt(*COMMANDS[command], *arguments, "--out", tmp_path), refusal)
    assert {path.read_text() for path in tmp_path.iterdir()} == {"precious"}
    assert len(list(tmp_path.iterdir())) == 5
