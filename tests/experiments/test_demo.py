"""The demo on the toy model and memory, its report page and its prompt."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from command_line import nearmt
from nearmt.cli import demo_command
from nearmt.cli.demo_prompt import translate_typed
from nearmt.cli.output import command_of_this_program
from nearmt.datastore import Manifest
from nearmt.errors import MissingExtraError, SettingError
from nearmt.experiments.demo import Materials, find_materials, run_demo, write_report
from nearmt.experiments.demo import run as demo_run
from nearmt.experiments.report import BarChart, LineChart, charts, figure, png_of, svg_of
from quick import QUICK


@pytest.fixture(scope="module")
def materials(client):
    return Materials(client.model, client.memory, client.dev, client.test)


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def demo(materials, out):
    return run_demo(materials, out, replace(QUICK, max_k=4))


@pytest.fixture(scope="module")
def result(demo):
    return demo.result


def test_the_demo_has_scores_matches_and_explained_examples(result):
    scores = result.evaluation["comparison"]["scores"]
    assert list(scores) == ["base", "vanilla", "adaptive"]
    assert scores["adaptive"]["bleu"] > scores["base"]["bleu"]
    assert sum(band.sentences for band in result.matches) == result.evaluation["comparison"]["num_sentences"]
    assert sum(result.chosen_sizes.values()) == pytest.approx(1, abs=1e-4)
    assert len(result.examples) == 3
    for example in result.examples:
        assert example.adaptive == example.reference != example.base
        for change in example.changes:
            assert example.adaptive[change.start : change.end] == change.words
            assert change.words in change.segment_target
    assert any(example.changes for example in result.examples)
    assert list(result.seconds) == [
        "loading the model",
        "building and training",
        "translating the test set",
        "explaining",
    ]


def test_a_second_run_reuses_all_results(result, materials, out, monkeypatch):
    def refuse(*args, **options):
        raise AssertionError("computed again")

    for name in ("build", "evaluate", "pick_examples"):
        monkeypatch.setattr(demo_run, name, refuse)
    assert run_demo(materials, out, replace(QUICK, max_k=4)).result == result


def test_a_store_of_another_model_is_rebuilt(result, materials, out, tmp_path):
    shutil.copytree(out, tmp_path, dirs_exist_ok=True)
    older = Manifest.load(tmp_path / "demo.store")
    older.changed(model={**older.model, "weights": "another"}).save(tmp_path / "demo.store")
    again = run_demo(materials, tmp_path, replace(QUICK, max_k=4)).result
    assert Manifest.load(tmp_path / "demo.store").model["weights"] != "another"
    assert again.evaluation["comparison"] == result.evaluation["comparison"]


def test_the_page_is_well_formed_and_self_contained(result, out):
    write_report(result, out / "report.html")
    page = (out / "report.html").read_text(encoding="utf-8")
    assert not re.findall(r'(?:src|href)="(?!#)|url\((?!#)|@import', page)
    assert page.count("<svg") == 2
    assert "<mark>" in page

    class Balance(HTMLParser):
        def __init__(self):
            super().__init__()
            self.open_tags = []

        def handle_starttag(self, tag, attrs):
            if tag not in ("meta",):
                self.open_tags.append(tag)

        def handle_startendtag(self, tag, attrs):
            pass

        def handle_endtag(self, tag):
            assert self.open_tags.pop() == tag

    parser = Balance()
    parser.feed(page)
    assert parser.open_tags == []


def test_suggested_commands_can_be_pasted_into_a_shell(result, out, tmp_path, monkeypatch, capsys):
    program = Path(sys.executable).with_name("nearmt")
    monkeypatch.setattr(sys, "argv", [str(program), "demo"])
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)
    shutil.copytree(out / "demo.store", "the client's/demo.store")
    source = '"Was" kostet $1? Das ist\'s!'
    examples = [replace(result.examples[0], source=source), *result.examples[1:]]
    demo_command._print_next(replace(result, examples=examples), Path("the client's"), is_reused=False)
    commands = re.findall(r"^  (.*nearmt .*)$", capsys.readouterr().out, re.MULTILINE)
    pasted = [shlex.split(command, comments=False) for command in commands]  # a shell may not know comments
    assert [command[:2] for command in pasted] == [[str(program), n] for n in ("demo", "explain", "serve", "build")]
    assert pasted[0][2:] == ["--try", "--out", "the client's"]
    assert [command[2] for command in pasted[1:3]] == ["the client's/demo.store"] * 2
    assert pasted[1][3:] == [source]
    done = subprocess.run(commands[1], shell=True, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "method adaptive" in done.stdout


def test_suggested_commands_name_the_program_as_the_shell_finds_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for place in (".venv/bin", "other one/bin"):
        Path(place).mkdir(parents=True)
        for name in ("nearmt", "python"):
            Path(place, name).touch(mode=0o755)

    def named(started: str, path: str = "/usr/bin") -> str:
        monkeypatch.setattr(sys, "argv", [started])
        monkeypatch.setenv("PATH", path)
        return command_of_this_program()

    here = str(tmp_path / ".venv/bin")
    assert named(".venv/bin/nearmt") == ".venv/bin/nearmt"
    assert named(f"{here}/nearmt") == ".venv/bin/nearmt"
    assert named(f"{here}/nearmt", here) == named(".venv/bin/nearmt", here) == "nearmt"
    assert named(".venv/bin/nearmt", str(tmp_path / "other one/bin")) == ".venv/bin/nearmt"
    assert named("other one/bin/nearmt") == "'other one/bin/nearmt'"
    monkeypatch.setattr(sys, "executable", f"{here}/python")
    assert named("/lib/nearmt/__main__.py") == ".venv/bin/python -m nearmt"
    assert named("/lib/nearmt/__main__.py", here) == "python -m nearmt"
    assert named("pytest") == "nearmt"
    monkeypatch.chdir(here)
    assert named(f"{here}/nearmt") == "./nearmt"


LINES = LineChart(["<1>"], {"<b>": [1.0]}, "x<y", "a&b")
BARS = BarChart({"0": 0.5}, "x", "a&b")


def test_text_in_charts_is_escaped():
    for drawing in (svg_of(LINES), figure(LINES, "<b>")):
        assert "<b>" not in drawing
        assert "&lt;b&gt;" in drawing
    assert "a&amp;b" in svg_of(BARS)


def test_equal_charts_give_equal_files():
    for chart in (LINES, BARS):
        assert svg_of(chart) == svg_of(replace(chart))
        assert png_of(chart) == png_of(replace(chart))
        assert "<dc:date>" not in svg_of(chart)


def test_charts_on_one_page_share_no_ids_and_follow_its_colors():
    ids = [re.findall(r'\bid="(.*?)"', figure(chart, "")) for chart in (LINES, BARS)]
    assert all(ids)
    assert not set(ids[0]) & set(ids[1])
    assert "#000000" in svg_of(BARS)
    assert "#000000" not in figure(BARS, "")


def test_missing_matplotlib_is_reported_before_any_work(materials, tmp_path, monkeypatch):
    monkeypatch.setattr(charts, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"nearmt\[paper\]"):
        run_demo(materials, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_prompt_translates_what_is_typed_and_says_why(demo, client, monkeypatch, capsys):
    changed = demo.result.examples[0]
    typed = iter([changed.source, "unbekannt", " "])
    monkeypatch.setattr("builtins.input", lambda prompt: next(typed))
    translate_typed(demo.translator)
    printed = capsys.readouterr().out
    assert f"base      {changed.base}\nadaptive  {changed.adaptive}\n" in printed
    for change in changed.changes:
        assert f"from: {change.segment_source} → {change.segment_target}" in printed
    assert "The memory changed nothing." in printed
    assert list(typed) == []


@pytest.mark.parametrize("end", [EOFError, KeyboardInterrupt])
def test_the_prompt_ends_with_the_input(demo, end, monkeypatch, capsys):
    def stop(prompt):
        raise end

    monkeypatch.setattr("builtins.input", stop)
    translate_typed(demo.translator)
    assert "adaptive" not in capsys.readouterr().out


def test_the_prompt_says_when_words_were_only_removed(monkeypatch, capsys, demo):
    typed = iter(["der hund ist rot .", ""])
    monkeypatch.setattr("builtins.input", lambda prompt: next(typed))
    shorter = replace(demo.translator.translate(["der hund ."])[0], text="the", token_ids=(), _explain=tuple)
    monkeypatch.setattr(type(demo.translator), "translate", lambda self, texts: [shorter_or_not(self)])

    def shorter_or_not(translator):
        return shorter if translator is demo.translator else replace(shorter, text="the dog")

    translate_typed(demo.translator)
    assert "The memory only moved or removed words." in capsys.readouterr().out


@pytest.mark.parametrize("content", ["", "[]", '{"key": ', '{"key": "KEY", "result": {"matches": []}}'])
def test_unreadable_results_of_an_earlier_run_are_computed_again(result, materials, out, tmp_path, content):
    shutil.copytree(out, tmp_path, dirs_exist_ok=True)
    key = json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))["key"]
    (tmp_path / "result.json").write_text(content.replace("KEY", key), encoding="utf-8")
    again = run_demo(materials, tmp_path, replace(QUICK, max_k=4))
    assert not again.is_reused
    assert again.result.evaluation["comparison"] == result.evaluation["comparison"]


def test_another_memory_is_noticed_also_after_an_interrupted_build(result, materials, out, tmp_path, monkeypatch):
    shutil.copytree(out, tmp_path, dirs_exist_ok=True)
    fewer = tmp_path / "fewer.tsv"
    fewer.write_text("".join(materials.memory.read_text(encoding="utf-8").splitlines(keepends=True)[:200]))
    changed = replace(materials, memory=fewer)

    def interrupt(*args, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(demo_run, "build", interrupt)
        with pytest.raises(KeyboardInterrupt):
            run_demo(changed, tmp_path, replace(QUICK, max_k=4))
    again = run_demo(changed, tmp_path, replace(QUICK, max_k=4))
    assert again.result.info["sentences"] < result.info["sentences"]
    assert run_demo(changed, tmp_path, replace(QUICK, max_k=4)).is_reused


def test_an_old_package_is_reported(monkeypatch):
    monkeypatch.delattr("nearmt_demo.model_folder")
    with pytest.raises(SettingError, match="upgrade it"):
        find_materials()


def test_without_a_terminal_there_is_no_prompt(demo, materials, out, monkeypatch):
    monkeypatch.setattr("nearmt.experiments.demo.find_materials", lambda progress: materials)
    monkeypatch.setattr("nearmt.experiments.demo.run.QUICK", replace(QUICK, max_k=4))
    code, printed, _ = nearmt("demo", "--try", "--out", out, stdin="der hund\n")
    assert code == 0
    assert "Type a sentence" not in printed
    assert "An earlier run took" in printed
    assert f"source     {demo.result.examples[0].source}" in printed
