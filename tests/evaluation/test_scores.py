"""Scores agree with sacreBLEU's own."""

import pytest
from sacrebleu.metrics import BLEU, CHRF, TER

from nearmt.evaluation.scores import EditRates, bootstrap, compare, signatures

REFERENCES = ["the red house stands on the hill", "we open the file and close it", "a word"] * 4
SYSTEMS = {
    "base": ["on the hill the red house stands", "we open file and close", "word"] * 4,
    "adaptive": ["the red house stands on a hill", "we open the file and close", "a word"] * 4,
}


def test_all_metrics_are_those_of_sacrebleu():
    compared = compare(SYSTEMS, REFERENCES, ["base"])
    for name, outputs in SYSTEMS.items():
        score = compared.scores[name]
        for metric, found in ((BLEU(force=True), score.bleu), (CHRF(), score.chrf), (TER(), score.ter)):
            assert found == pytest.approx(metric.corpus_score(outputs, [REFERENCES]).score), (name, metric)
    assert compared.scores["adaptive"].ter < compared.scores["base"].ter
    assert bootstrap(SYSTEMS, REFERENCES, "base") == {"adaptive": compared.scores["adaptive"].p_values["base"]}
    assert compared.ter_signature == signatures()["ter"]
    assert compared.ter_signature.startswith("nrefs:1|case:lc|tok:tercom")


def test_ter_compares_an_output_with_a_reference_only_once(monkeypatch):
    rates = EditRates(REFERENCES)
    first = rates.ter(SYSTEMS["base"])

    def refuse(*args):
        raise AssertionError("compared again")

    monkeypatch.setattr(rates._metric, "sentence_score", refuse)
    assert rates.ter(SYSTEMS["base"]) == first


def test_ter_of_empty_references_is_that_of_sacrebleu():
    for output in ("", "word"):
        assert EditRates([""]).ter([output]) == TER().corpus_score([output], [[""]]).score
