"""The paper's experiments on toy domains: sections, reports, resuming, and errors in the configuration."""

import json
import re
import shutil

import pytest

from nearmt.errors import CorpusError, NearMTError, SettingError
from nearmt.experiments.paper import lab as lab_module
from nearmt.experiments.paper import load_config, run_paper
from nearmt.experiments.paper.config import SECTIONS
from nearmt.experiments.paper.lab import Lab
from nearmt.experiments.paper.main_table import MainTable
from nearmt.experiments.paper.workspace import Workspace
from nearmt.methods.metak import MetaK
from nearmt.models import Seq2Seq

CONFIG = """
title = "Toy <domains>"
model = "{model}"
general = "{test}"
k = [1, 2, 4]
seeds = [1, 2]
test_sentences = 12
judged_sentences = 6
judged_settings = 1
steps = 120
features_k = 2
training_sentences = [20]
hidden_sizes = [8]
timing_batch_sizes = [1, 4]
timing_k = [2, 4]
timing_sentences = 4
timing_rounds = 1

[[domains]]
name = "Client"
memory = "{memory}"
dev = "{dev}"
test = "{test}"

[[domains]]
name = "Half"
memory = "half.tsv"
dev = "{dev}"
test = "{test}"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("paper")


@pytest.fixture(scope="module")
def config_path(client, folder):
    lines = client.memory.read_text(encoding="utf-8").splitlines(keepends=True)
    (folder / "half.tsv").write_text("".join(lines[::2]), encoding="utf-8")
    path = folder / "toy.toml"
    path.write_text(
        CONFIG.format(model=client.model, memory=client.memory, dev=client.dev, test=client.test), encoding="utf-8"
    )
    return path


@pytest.fixture(scope="module")
def model(client):
    return Seq2Seq.load(client.model)


@pytest.fixture(scope="module")
def sections(config_path, folder, model):
    return {section.name: section for section in run_paper(load_config(config_path), folder / "out", model)}


def test_every_section_has_numbers(sections):
    assert tuple(sections) == SECTIONS
    for section in sections.values():
        assert section.data
        assert section.tables or section.examples
        for _, table in section.tables:
            assert all(len(row) == len(table.headings) for row in table.rows)
    main = sections["main"].data
    assert main["adaptive / Client / 4 / 1"]["bleu"] > main["base / Client"]["bleu"]
    assert main["adaptive / Client / 4 / 1"]["signature"].startswith("nrefs:1")
    assert main["tuned / Client / 2"]["settings"]["k"] == 2
    controls = sections["controls"].data
    assert controls["shuffled / Client"]["bleu"] == pytest.approx(controls["base / Client"]["bleu"], abs=1.5)
    assert sections["statistics"].data["Half"]["sentences"] < sections["statistics"].data["Client"]["sentences"]


def test_the_main_systems_are_scored_by_all_metrics_and_by_match(sections):
    metrics, matches = sections["metrics"].data, sections["matches"].data
    base, adaptive = metrics["base / Client"], metrics["adaptive / Client"]
    assert base["bleu"] == sections["main"].data["base / Client"]["bleu"]
    assert adaptive["ter"] < base["ter"]
    assert set(metrics["signatures"]) == {"bleu", "chrf", "ter"}
    for bands in matches.values():
        assert sum(band["sentences"] for band in bands) == 12
        assert all(band["bleu_gain"].keys() == {"vanilla", "adaptive"} for band in bands)
    assert [figure.name for figure in sections["matches"].figures] == ["matches-client", "matches-half"]


def test_comet_scores_in_the_folder_of_the_outputs_are_shown(sections, config_path, folder, model, tmp_path):
    out = shutil.copytree(folder / "out", tmp_path / "out")
    written = out / "outputs" / "client"
    outputs = (written / "adaptive.txt").read_text(encoding="utf-8").splitlines()
    assert len(outputs) == len((written / "source.txt").read_text(encoding="utf-8").splitlines()) == 12
    comet = written / "comet.json"
    comet.write_text(json.dumps({"adaptive.txt": [{"mt": text, "COMET": 0.75} for text in outputs]}), encoding="utf-8")
    again = {section.name: section for section in run_paper(load_config(config_path), out, model)}
    comet.write_text("[]")
    with pytest.raises(CorpusError, match=r"comet\.json is not a result of comet-score"):
        run_paper(load_config(config_path), out, model)
    assert again["metrics"].data["adaptive / Client"]["comet"] == 0.75
    table = dict(again["metrics"].tables)["Client"]
    assert table.headings[-1] == "COMET"
    assert [row[-1] for row in table.rows] == ["–", "–", "–", "0.7500"]
    assert "COMET" not in dict(again["metrics"].tables)["Half"].headings


def test_a_second_run_computes_nothing(sections, config_path, folder, model, monkeypatch):
    def refuse(*args, **options):
        raise AssertionError("computed again")

    before = (folder / "out" / "results.json").read_bytes()
    for name in ("train_metak", "train_variant", "Decoder"):
        monkeypatch.setattr(lab_module, name, refuse)
    run_paper(load_config(config_path), folder / "out", model)
    assert (folder / "out" / "results.json").read_bytes() == before


def test_an_interrupted_run_resumes(config_path, tmp_path, model, sections, folder, monkeypatch):
    """Cells that were finished before the interruption are not computed again, and the results are the same."""
    config = load_config(config_path)
    first = lab_module.Lab.score
    count = 0

    def interrupted_at_the_fifth(self, *args, **options):
        nonlocal count
        count += 1
        if count == 5:
            raise KeyboardInterrupt
        return first(self, *args, **options)

    monkeypatch.setattr(lab_module.Lab, "score", interrupted_at_the_fifth)
    with pytest.raises(KeyboardInterrupt):
        run_paper(config, tmp_path, model)
    monkeypatch.setattr(lab_module.Lab, "score", first)
    kept = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "cells").iterdir()}
    assert kept
    lab = Lab(config, model, tmp_path)
    for key, compute in MainTable().cells(lab).items():
        name = " / ".join(map(str, key))
        assert compute().bleu == pytest.approx(sections["main"].data[name]["bleu"]), name
    for name, when in kept.items():
        assert (tmp_path / "cells" / name).stat().st_mtime_ns == when


def test_cached_results_depend_on_the_data(config_path, folder, sections, model, tmp_path):
    """Another memory gives another key; an unchanged domain keeps its own."""
    config = load_config(config_path)
    lab = Lab(config, model, tmp_path)
    other = tmp_path / "other.toml"
    text = config_path.read_text(encoding="utf-8").replace("half.tsv", str(folder / "quarter.tsv"))
    lines = (folder / "half.tsv").read_text(encoding="utf-8").splitlines(keepends=True)
    (folder / "quarter.tsv").write_text("".join(lines[::2]), encoding="utf-8")
    other.write_text(text, encoding="utf-8")
    changed = Lab(load_config(other), model, tmp_path)
    assert changed.domains["Half"].key != lab.domains["Half"].key
    assert changed.domains["Client"].key == lab.domains["Client"].key
    assert lab.domains["Client"].test.key == sections["main"].data["base / Client"]["settings"]["test"]


def test_the_reports_agree_and_are_self_contained(sections, folder):
    out = folder / "out"
    page = (out / "report.html").read_text(encoding="utf-8")
    markdown = (out / "report.md").read_text(encoding="utf-8")
    assert not re.findall(r'(?:src|href)="(?!#)|url\((?!#)|@import', page)
    assert "Toy &lt;domains&gt;" in page
    for section in sections.values():
        for text in (page, markdown):
            assert section.title in text
    for link in re.findall(r"\(figures/(.*?)\)", markdown):
        assert (out / "figures" / link).read_text(encoding="utf-8").startswith("<?xml")
        assert (out / "figures" / link).with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    content = json.loads((out / "results.json").read_text(encoding="utf-8"))
    assert set(content["sections"]) == set(SECTIONS)
    assert str(folder) not in (out / "results.json").read_text(encoding="utf-8")
    assert str(folder) not in page + markdown


def test_the_papers_protocol_fixes_temperature_and_uses_all_of_dev(config_path, model, tmp_path):
    path = tmp_path / "paper.toml"
    text = config_path.read_text(encoding="utf-8").replace("half.tsv", str(config_path.parent / "half.tsv"))
    path.write_text(
        "paper_protocol = true\n" + text.replace('name = "Half"', 'name = "Half"\npaper_temperature = 100.0')
    )
    lab = Lab(load_config(path), model, tmp_path)
    domain = lab.domains["Half"]
    network = lab.network(domain, 4)
    assert isinstance(network, MetaK)
    assert (network.temperature, network.distance_scale) == (100.0, 1.0)
    train_part, select_part = domain.parts(4)
    assert len(train_part) == len(select_part) == len(domain.cache)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("k = [1, 2, 4]", "kk = [1, 2, 4]"), "unknown key kk"),
        (("k = [1, 2, 4]", "k = [0]"), "`k` must be a list of whole numbers of at least 1"),
        (("k = [1, 2, 4]", 'k = ["a"]'), "`k` must be a list of whole numbers of at least 1"),
        (("k = [1, 2, 4]", "k = 4"), "`k` must be a list"),
        (("steps = 120", 'steps = "many"'), "`steps` must be a whole number of at least 1"),
        (('name = "Half"', 'name = "Client"'), "two domains have the same name"),
        (('name = "Half"\n', ""), "name is missing"),
        (("half.tsv", "nowhere.tsv"), "there is no file"),
        (("features_k = 2", "features_k = 64"), "`features_k`"),
        (('title = "Toy <domains>"', "title = "), "not valid TOML"),
        (("seeds = [1, 2]", 'sections = ["everything"]'), "unknown everything"),
    ],
)
def test_errors_in_a_configuration_are_explained(config_path, change, message):
    text = config_path.read_text(encoding="utf-8")
    assert change[0] in text
    path = config_path.with_name("broken.toml")
    path.write_text(text.replace(*change), encoding="utf-8")
    with pytest.raises(SettingError, match=re.escape(message)):
        load_config(path)


def test_an_unknown_name_lists_the_ready_made_configurations():
    with pytest.raises(SettingError, match="demo-fr-en, opus-fr-en, paper-de-en"):
        load_config("no-such")


def test_the_ready_made_configurations_are_valid(tmp_path, monkeypatch):
    monkeypatch.setattr("nearmt_demo.model_folder", lambda: tmp_path)
    demo = load_config("demo-fr-en")
    assert [domain.name for domain in demo.domains] == ["Law", "Python"]
    assert demo.model == str(tmp_path)
    for name, first in (("paper-de-en", "it/train.de"), ("opus-fr-en", "it.train.tsv.gz")):
        with pytest.raises(
            NearMTError, match=rf"{name}.toml: there is no file {first}, .* and \d+ more; set `data` to"
        ):
            load_config(name)


def test_a_damaged_cell_counts_as_missing(tmp_path):
    workspace = Workspace(tmp_path)
    workspace.keep("score", {"a": 1}, {"bleu": 3.0})
    assert workspace.find("score", {"a": 1}) == {"bleu": 3.0}
    assert workspace.find("score", {"a": 2}) is None
    (path,) = (tmp_path / "cells").iterdir()
    path.write_text(path.read_text()[:-5])
    assert workspace.find("score", {"a": 1}) is None
