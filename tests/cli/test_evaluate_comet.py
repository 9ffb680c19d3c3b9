"""`nearmt evaluate` with COMET scores that were computed elsewhere, and its table by match percentage."""

import json
import shutil

import pytest

from command_line import assert_one_sentence, nearmt
from nearmt.models import Seq2Seq
from nearmt.store import Store

METHODS = ["base", "adaptive"]


@pytest.fixture(scope="module")
def command(client):
    return ("evaluate", client.store, client.test, "--limit", "12", "--methods", ",".join(METHODS))


@pytest.fixture(scope="module")
def first_run(command, tmp_path_factory):
    folder = tmp_path_factory.mktemp("evaluation") / "systems"
    code, out, err = nearmt(*command, "--outputs", folder, "--json")
    assert code == 0
    return folder, json.loads(out), err


@pytest.fixture
def comet(first_run, tmp_path):
    """What comet-score writes about the outputs of the first run."""
    folder = first_run[0]
    lines = {
        name: (folder / f"{name}.txt").read_text(encoding="utf-8").splitlines()
        for name in ("source", "reference", *METHODS)
    }
    content = {
        str(folder / f"{name}.txt"): [
            {"src": source, "mt": output, "ref": reference, "COMET": 0.5 + number / 100}
            for source, output, reference in zip(lines["source"], lines[name], lines["reference"], strict=True)
        ]
        for number, name in enumerate(METHODS)
    }
    path = tmp_path / "comet.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def test_outputs_are_ready_for_comet_score(first_run, client):
    folder, _, err = first_run
    sources = (folder / "source.txt").read_text(encoding="utf-8").splitlines()
    references = (folder / "reference.txt").read_text(encoding="utf-8").splitlines()
    assert list(zip(sources, references, strict=True)) == client.test_pairs[:12]
    for name in METHODS:
        assert (folder / f"{name}.txt").read_text(encoding="utf-8").count("\n") == 12
    assert f"comet-score -s {folder}/source.txt -r {folder}/reference.txt" in " ".join(err.split())
    assert f"-t {folder}/base.txt {folder}/adaptive.txt --to_json {folder}/comet.json" in " ".join(err.split())


def test_scores_appear_beside_the_others_without_translating_again(first_run, command, comet, monkeypatch):
    monkeypatch.setattr(Seq2Seq, "load", lambda *args, **options: pytest.fail("a model was loaded"))
    folder, content, _ = first_run
    code, out, _ = nearmt(*command, "--outputs", folder, "--comet", comet, "--json")
    assert code == 0
    shown = json.loads(out)
    for number, name in enumerate(METHODS):
        assert shown["comparison"]["scores"][name].pop("comet") == pytest.approx(0.5 + number / 100)
        assert content["comparison"]["scores"][name].pop("comet") is None
    assert shown == content
    code, out, _ = nearmt(*command, "--outputs", folder, "--comet", comet)
    assert "COMET" in out
    assert "0.5100" in out


def test_scores_of_other_outputs_are_refused(first_run, command, comet, client, tmp_path, store_copy):
    folder = first_run[0]
    assert_one_sentence(nearmt(*command, "--comet", comet), "--comet needs --outputs")
    assert_one_sentence(
        nearmt(*command, "--outputs", tmp_path / "no", "--comet", comet), "no outputs of an earlier run"
    )
    with_comet = ("--outputs", folder, "--comet", comet)
    assert_one_sentence(nearmt(*command[:-1], "base", *with_comet), "has the outputs of base, adaptive: leave out")
    assert_one_sentence(nearmt(*command[:3], "--limit", "5", *with_comet), "outputs for another test set")
    Store(store_copy).remove(source=client.memory.read_text(encoding="utf-8").split("\t")[0])
    assert_one_sentence(nearmt("evaluate", store_copy, *command[2:], *with_comet), "this store has changed since")
    content = json.loads(comet.read_text(encoding="utf-8"))
    content[str(folder / "base.txt")].pop()
    comet.write_text(json.dumps(content), encoding="utf-8")
    assert_one_sentence(nearmt(*command, *with_comet), "has 11 scores for .*base.txt, but the test set has 12")
    damaged = shutil.copytree(folder, tmp_path / "damaged")
    (damaged / "evaluation.json").write_text("{}")
    assert_one_sentence(nearmt(*command, "--outputs", damaged, "--comet", comet), "evaluation.json is damaged")


def test_the_result_has_every_range_of_matches(first_run, command):
    bands = first_run[1]["matches"]
    assert sum(band["sentences"] for band in bands) == 12
    for band in bands:
        assert set(band["bleu"]) == set(band["chrf"]) == set(METHODS)
        assert band["bleu_gain"]["adaptive"] == pytest.approx(band["bleu"]["adaptive"] - band["bleu"]["base"])
        assert band["is_small"]
    _, out, _ = nearmt(*command[:-1], "base", "-q")
    assert "BLEU by best match in the memory" in out
    assert "* too few sentences for a reliable score" in out
    assert "TER nrefs:1|case:lc|tok:tercom" in out
