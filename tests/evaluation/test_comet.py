"""COMET scores from a file, and the outputs that it is computed on."""

import json
import re

import pytest

from nearmt.errors import CorpusError
from nearmt.evaluation.comet import read_comet

OUTPUTS = {"base": ["a house", "a  tree "], "adaptive": ["the house", "the tree"]}


def sentences(name, scores):
    pairs = zip(OUTPUTS[name], scores, strict=True)
    return [{"src": "x", "mt": " ".join(text.split()), "ref": "y", "COMET": score} for text, score in pairs]


@pytest.fixture
def written(tmp_path):
    def write(content):
        path = tmp_path / "comet.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return path

    return write


def test_a_system_has_the_mean_of_its_sentences(written):
    content = {"systems/base.txt": sentences("base", [0.5, 0.7]), "adaptive.txt": sentences("adaptive", [1, 0.5])}
    assert read_comet(written(content), OUTPUTS) == pytest.approx({"base": 0.6, "adaptive": 0.75})
    content["adaptive.txt"][0]["errors"] = []  # some models add the errors they found
    del content["systems/base.txt"]
    assert read_comet(written(content), OUTPUTS) == {"adaptive": 0.75}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "comet.json is not JSON"),
        ([0.5, 0.7], "must be an object with a list for each system"),
        ({}, "must be an object with a list for each system"),
        ({"other.txt": []}, "scores other.txt, but the systems are base, adaptive"),
        ({"base.txt": 0.5}, "base.txt must be a list with an object per sentence"),
        ({"base.txt": [0.5, 0.7]}, "base.txt must be a list with an object per sentence"),
        ({"base.txt": [{"COMET": 0.5}]}, "has 1 scores for base.txt, but the test set has 2"),
        ({"base.txt": [{"COMET": 0.5}, {"mt": "a tree"}]}, "sentence 2 of base.txt has no COMET score"),
        ({"base.txt": [{"COMET": 0.5}, {"COMET": True}]}, "sentence 2 of base.txt has no COMET score"),
        (
            {"base.txt": [{"COMET": 0.5, "mt": "a house"}, {"COMET": 0.5, "mt": "a bush"}]},
            "another translation of sentence 2 than base.txt has now",
        ),
        (
            {"a/base.txt": sentences("base", [0.5, 0.7]), "b/base.txt": sentences("base", [0.5, 0.7])},
            "two files that are named base",
        ),
    ],
)
def test_a_file_of_the_wrong_shape_is_refused_with_one_sentence(written, content, message):
    with pytest.raises(CorpusError, match=re.escape(message)):
        read_comet(written(content), OUTPUTS)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(CorpusError, match=r"comet\.json cannot be read: no such file"):
        read_comet(tmp_path / "comet.json", OUTPUTS)
