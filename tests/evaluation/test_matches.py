"""Best matches in a memory, and scores by their percentage."""

import pytest

from nearmt.evaluation import matches
from nearmt.evaluation.matches import BestMatch, best_matches, match_bands
from nearmt.retrieval.sentences.similarity import ComparedTexts, percents


def test_best_matches_are_those_of_a_plain_search(monkeypatch):
    monkeypatch.setattr(matches, "_COMPARED_AT_ONCE", 2)
    memory = ["the red house", "a green tree", "the red horse"]
    texts = ["the red house", "a green bee", "red horse", "tree"]
    reported: list[int] = []
    found = best_matches(texts, memory, reported.append)
    for text, match in zip(texts, found, strict=True):
        similarities = [percents(ComparedTexts.of([text]), ComparedTexts.of([other]))[0, 0] for other in memory]
        assert match.percent == max(similarities) == similarities[match.row]
    assert found == [BestMatch(0, 100), BestMatch(1, 66), BestMatch(2, 66), BestMatch(1, 33)]
    assert reported == [2, 4]


def test_bands_hold_every_sentence_once_and_score_it_with_every_method():
    references = ["one two three", "four five six", "seven eight nine", "ten eleven twelve"]
    outputs = {"base": ["one", "four five six", "seven", "x"], "adaptive": references}
    bands = match_bands([BestMatch(0, p) for p in (49, 50, 59, 100)], outputs, references)
    assert [(band.label, band.sentences) for band in bands] == [("under 50 %", 1), ("50–60 %", 2), ("90 % or more", 1)]
    assert all(band.chrf["adaptive"] == pytest.approx(100) for band in bands)
    assert 0 < bands[1].chrf["base"] < 100
    assert bands[0].chrf["base"] > bands[2].chrf["base"] == 0
