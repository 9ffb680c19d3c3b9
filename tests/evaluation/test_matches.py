"""Best matches in a memory, and scores by their percentage."""

import pytest
from sacrebleu.metrics import BLEU, CHRF

from nearmt.evaluation import matches
from nearmt.evaluation.matches import BestMatch, MatchBand, best_matches, match_bands
from nearmt.retrieval.sentences.similarity import ComparedTexts, percents


def test_best_matches_are_those_of_a_plain_search(monkeypatch):
    monkeypatch.setattr(matches, "_COMPARED_AT_ONCE", 2)
    monkeypatch.setattr(matches, "_MEMORY_AT_ONCE", 2)
    memory = ["the red house", "a green tree", "the red horse"]
    texts = ["the red house", "a green bee", "red horse", "tree"]
    reported: list[int] = []
    found = best_matches(texts, iter(memory), reported.append)
    for text, match in zip(texts, found, strict=True):
        similarities = [percents(ComparedTexts.of([text]), ComparedTexts.of([other]))[0, 0] for other in memory]
        assert match.percent == max(similarities) == similarities[match.row]
    assert found == [BestMatch(0, 100), BestMatch(1, 66), BestMatch(2, 66), BestMatch(1, 33)]
    assert reported == [2, 3]


def test_bands_hold_every_sentence_once_and_score_it_with_every_method():
    references = ["one two three", "four five six", "seven eight nine", "ten eleven twelve"]
    outputs = {"base": ["one", "four five six", "seven", "x"], "adaptive": references}
    bands = match_bands([BestMatch(0, p) for p in (49, 50, 69, 100)], outputs, references)
    assert [(band.label, band.sentences) for band in bands] == [("0–50 %", 1), ("50–70 %", 2), ("95–100 %", 1)]
    assert all(band.is_small for band in bands)
    assert all(band.chrf["adaptive"] == pytest.approx(100) for band in bands)
    assert 0 < bands[1].chrf["base"] < 100
    assert bands[0].chrf["base"] > bands[2].chrf["base"] == 0


def test_a_band_is_scored_as_a_corpus_and_not_by_mean_sentence_scores():
    references = ["the red house stands on the green hill", "a tree", "we open the file and close it again", "no"]
    outputs = {"base": ["the red house stands on a hill", "tree", "we open a file and close it", "no"]}
    (band,) = match_bands([BestMatch(0, 95), BestMatch(1, 100)] * 2, outputs, references)
    assert band.bleu["base"] == BLEU(force=True).corpus_score(outputs["base"], [references]).score
    assert band.chrf["base"] == CHRF().corpus_score(outputs["base"], [references]).score
    assert band.gains() == {}


@pytest.mark.parametrize(
    ("percent", "label"),
    [(0, "0–50 %"), (50, "50–70 %"), (70, "70–85 %"), (84, "70–85 %"), (85, "85–95 %"), (95, "95–100 %")],
)
def test_a_range_begins_with_its_lower_bound(percent, label):
    (band,) = match_bands([BestMatch(0, percent)] * 30, {"base": ["a b"] * 30, "adaptive": ["a"] * 30}, ["a"] * 30)
    assert (band.label, band.sentences, band.is_small) == (label, 30, False)
    assert band.gains("chrf")["adaptive"] == band.chrf["adaptive"] - band.chrf["base"] > 0
    assert MatchBand.from_dict(band.as_dict()) == band
