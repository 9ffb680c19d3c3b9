"""The demo on toy materials: everything it shows is there, and a second run uses what is built."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from conftest import QUICK
from nearmt.demo import Materials, run_demo, write_report
from nearmt.demo import run as demo_run
from nearmt.demo.charts import bar_chart, line_chart


@pytest.fixture(scope="module")
def materials(client):
    return Materials(client.model, client.memory, client.dev, client.test)


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def result(materials, out):
    return run_demo(materials, out, replace(QUICK, max_k=4))


def test_the_demo_compares_plots_and_explains(result):
    scores = result.evaluation["comparison"]["scores"]
    assert scores["adaptive"]["bleu"] > scores["base"]["bleu"]
    assert {name: len(line) for name, line in result.curve.items()} == {"vanilla": 3, "uniform": 3, "adaptive": 3}
    assert sum(result.chosen_sizes.values()) == pytest.approx(1, abs=1e-4)
    assert len(result.examples) == 3
    for example in result.examples:
        assert example.adaptive == example.reference != example.base
        for change in example.changes:
            assert example.adaptive[change.start : change.end] == change.words
            assert change.words in change.segment_target.split()
    assert any(example.changes for example in result.examples)


def test_a_second_run_uses_what_is_there(result, materials, out, monkeypatch):
    def refuse(*args, **options):
        raise AssertionError("done again")

    for name in ("build", "evaluate", "train_metak"):
        monkeypatch.setattr(demo_run, name, refuse)
    assert run_demo(materials, out, replace(QUICK, max_k=4)) == result


def test_the_page_is_sound_and_loads_nothing(result, out):
    write_report(result, out / "report.html")
    page = (out / "report.html").read_text(encoding="utf-8")
    assert not re.findall(r'(?:src|href)="', page)
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


def test_text_in_charts_is_escaped():
    chart = line_chart(["<1>"], {"<b>": [1.0]}, "x<y", "a&b")
    assert "<b>" not in chart
    assert "&lt;b&gt;" in chart
    assert "a&amp;b" in bar_chart({"0": 0.5}, "x", "a&b")
