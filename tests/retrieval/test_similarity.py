"""Percentages of similarity: whole words count, and only equal texts are 100 % similar."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearmt.corpus import normalise_space
from nearmt.retrieval.sentences.similarity import ComparedTexts, percents
from nearmt.retrieval.sentences.terms import terms_of
from properties import examples

WORDS = st.sampled_from(["die", "Die", "neue", "tabelle", "7", "12", ".", ",", "zelle", "表", "格", "😀"])
TEXTS = st.lists(WORDS, max_size=9).map(" ".join)


def percent(text: str, other: str) -> int:
    return int(percents(ComparedTexts.of([text]), ComparedTexts.of([other]))[0, 0])


def edit_distance(first: list[int], second: list[int]) -> int:
    row = list(range(len(second) + 1))
    for i, a in enumerate(first, 1):
        before, row[0] = row[0], i
        for j, b in enumerate(second, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (a != b))
    return row[-1]


@examples(60)
@given(st.lists(TEXTS, min_size=1, max_size=4), st.lists(TEXTS, min_size=1, max_size=4))
def test_percentages_are_those_of_a_plain_edit_distance(texts, others):
    found = percents(ComparedTexts.of(texts), ComparedTexts.of(others))
    for i, text in enumerate(texts):
        for j, other in enumerate(others):
            first, second = terms_of(text).tolist(), terms_of(other).tolist()
            longest = max(len(first), len(second), 1)
            wanted = min(99, 100 * (longest - edit_distance(first, second)) // longest)
            assert found[i, j] == (100 if normalise_space(text) == normalise_space(other) else wanted)


@examples(40)
@given(TEXTS, TEXTS)
def test_similarity_is_symmetric(first, second):
    assert percent(first, second) == percent(second, first)


@pytest.mark.parametrize(
    ("text", "other", "wanted"),
    [
        ("The proxy is valid.", "The  proxy\nis valid. ", 100),
        ("The proxy is valid.", "The proxy is valid", 99),
        ("The proxy is valid.", "the Proxy is valid.", 99),
        ("Section 12 applies.", "Section 7 applies.", 99),
        ("The proxy is valid.", "The proxy is void.", 75),
        ("The proxy is valid.", "The proxy is not valid.", 80),
        ("one two three", "one two four", 66),  # rounded down
        ("表格显示单元格", "表格显示单元表", 85),
        ("表格显示单元格", "表格显示单元格。", 99),
        ("!?", "!?", 100),
        ("!?", "!.", 50),
        ("one", "two", 0),
    ],
)
def test_percentages_count_words(text, other, wanted):
    assert percent(text, other) == wanted


def test_more_different_words_than_there_are_characters_before_the_surrogates():
    numbers = np.arange(60_000, dtype=np.uint32)
    starts, hashes = np.array([0, len(numbers)]), np.array([1], np.uint64)
    text = ComparedTexts(numbers, starts, hashes)
    other = ComparedTexts(np.where(numbers < 30_000, numbers, numbers + 100_000), starts, hashes + np.uint64(1))
    assert percents(text, other).tolist() == [[50]]
