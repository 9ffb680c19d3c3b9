"""Matches in a store: the best ones are found, with their newest unit, and changes of the store are followed."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearmt.corpus import SentencePair
from nearmt.datastore import CommitData, Filter, Languages, Manifest, Snapshot, Unit
from nearmt.errors import SettingError, StoreDamagedError
from nearmt.retrieval.reader import Reader
from nearmt.retrieval.sentences import index as sentence_index
from nearmt.retrieval.sentences import matches
from nearmt.retrieval.sentences.index import SentenceIndex
from nearmt.retrieval.sentences.matches import MatchFinder, best_of_stores, first_exact
from nearmt.retrieval.sentences.similarity import ComparedTexts, percents
from nearmt.retrieval.sentences.terms import terms_of
from properties import examples
from synthetic_stores import WIDTH, appended

WORDS = ["die", "neue", "tabelle", "zeigt", "zelle", "heute", "grosse", "alte", "oeffnet", "12"]


def commit(
    pairs: Sequence[SentencePair], removed_units: Sequence[int] = (), units: Sequence[Unit] | None = None
) -> CommitData:
    count = len(pairs)
    return CommitData(
        pairs,
        np.ones(count, np.int64),
        np.zeros((count, WIDTH), np.float16),
        np.zeros(count, np.int32),
        np.ones(count, np.float16),
        np.zeros(count, np.uint16),
        units,
        removed_units,
    )


def store_of(folder: Path, pairs: Sequence[SentencePair]) -> Snapshot:
    folder.mkdir()
    appended(folder, Manifest(model={}, languages=Languages("de", "en"), width=WIDTH), commit(pairs))
    return Snapshot.open(folder)


def changed(folder: Path, pairs: Sequence[SentencePair] = (), **changes: Any) -> Snapshot:
    appended(folder, Manifest.load(folder), commit(pairs, **changes))
    return Snapshot.open(folder)


def dated(source: str, target: str, year: int, origin: str = "a") -> SentencePair:
    return SentencePair(source, target, f"{target}-id", origin, f"{year}-01-01T00:00:00Z")


@pytest.fixture
def finder(tmp_path):
    return MatchFinder(
        store_of(
            tmp_path / "s",
            [
                dated("die neue tabelle zeigt die zelle .", "first", 2020),
                dated("die alte tabelle zeigt die zelle .", "second", 2021, "b"),
                dated("die neue tabelle zeigt die zelle .", "third", 2022, "b"),
                dated("die neue tabelle zeigt die zelle .", "fourth", 2021, "c"),
                dated("heute", "today", 2020),
                dated("Klicken Sie auf OK", "Click OK", 2020),
            ],
        )
    )


def targets(found: Sequence[matches.Match]) -> list[str]:
    return [match.target for match in found]


def test_the_best_come_first_and_of_equals_the_newest(finder):
    found = finder.matches("die  neue tabelle zeigt die zelle .")
    assert targets(found) == ["third", "fourth", "first", "second"]
    assert [match.percent for match in found] == [100, 100, 100, 83]
    best = found[0]
    assert (best.sentence_id, best.unit_id, best.origin) == (2, "third-id", "b")
    assert best.changed_at == "2022-01-01T00:00:00Z"
    assert best.store == str(finder.snapshot.folder)


def test_limit_and_minimum(finder):
    text = "die neue tabelle zeigt die zelle ."
    assert targets(finder.matches(text, limit=2)) == ["third", "fourth"]
    assert targets(finder.matches(text, minimum=84)) == ["third", "fourth", "first"]
    for wrong in ({"limit": 0}, {"minimum": 0}, {"minimum": 101}):
        with pytest.raises(SettingError, match=f"`{next(iter(wrong))}`"):
            finder.matches(text, **wrong)


@pytest.mark.parametrize("text", ["", " \n", "nothing like it", "?"])
def test_a_text_that_is_like_nothing_has_no_matches(finder, text):
    assert finder.matches(text) == []
    assert finder.exact(text) is None


def test_a_difference_in_tags_gives_99_percent(finder):
    assert [match.percent for match in finder.matches("Klicken Sie auf <b>OK</b>")] == [99]
    assert [match.percent for match in finder.matches('<x id="1"/>Klicken Sie auf OK')] == [99]


def test_exact_is_the_newest_with_the_very_same_source(finder):
    match = finder.exact(" die neue tabelle  zeigt die zelle . ")
    assert match is not None
    assert (match.target, match.percent) == ("third", 100)
    assert finder.exact("Die neue tabelle zeigt die zelle .") is None
    assert finder.exact("die neue tabelle zeigt die zelle") is None


def test_of_units_with_the_same_date_the_last_is_the_newest(tmp_path):
    found = MatchFinder(store_of(tmp_path / "s", [dated("x y", "one", 2020), dated("x y", "two", 2020)]))
    match = found.exact("x y")
    assert match is not None
    assert match.target == "two"
    assert targets(found.matches("x y")) == ["two", "one"]


def test_filters_choose_sentences_and_units(finder):
    text = "die neue tabelle zeigt die zelle ."
    narrower = finder.filtered(Filter(exclude=("b",)))
    assert targets(narrower.matches(text)) == ["fourth", "first"]
    assert narrower.exact(text).target == "fourth"
    assert finder.filtered(Filter(until="2021-01-01")).exact(text).target == "first"
    assert finder.filtered(Filter(only=("nosuch",))).exact(text) is None
    assert finder.filtered(Filter(only=("nosuch",))).matches(text) == []
    # The same pair came again from another origin: a filter shows the unit that passes.
    again = Unit.of(dated("heute", "today", 2023, "d"), 4, is_first=False)
    later = finder.following(changed(finder.snapshot.folder, units=[again]))
    assert later.exact("heute").origin == "d"
    assert later.filtered(Filter(exclude=("d",))).exact("heute").origin == "a"
    assert [match.origin for match in later.filtered(Filter(exclude=("d",))).matches("heute")] == ["a"]


def test_additions_and_removals_are_followed(finder):
    text, folder = "die neue tabelle zeigt die zelle .", finder.snapshot.folder
    reader = Reader(folder)
    assert reader.finder.exact(text).target == "third"
    changed(folder, [dated(text, "fifth", 2024)], removed_units=[2, 3])
    assert reader.refresh()
    assert reader.finder.exact(text).target == "fifth"
    assert targets(reader.finder.matches(text)) == ["fifth", "first", "second"]
    changed(folder, removed_units=[0, 6])
    assert reader.refresh()
    assert reader.finder.exact(text) is None
    assert targets(reader.finder.matches(text)) == ["second"]


def test_a_finder_that_follows_finds_what_a_new_one_finds(tmp_path, monkeypatch):
    monkeypatch.setattr(sentence_index, "_IN_MEMORY", 4)
    monkeypatch.setattr("nearmt.datastore.lookup._UNSORTED", 3)
    rng = np.random.default_rng(1)

    def pairs(count: int) -> list[SentencePair]:
        return [SentencePair(" ".join(rng.choice(WORDS, 3)), f"target {rng.integers(10**9)}") for _ in range(count)]

    following = MatchFinder(store_of(tmp_path / "s", pairs(5)))
    for number in range(8):
        snapshot = changed(tmp_path / "s", pairs(int(rng.integers(1, 4))), removed_units=[number])
        following = following.following(snapshot)
        if number % 3 == 0:
            continue  # a finder that was never used is followed too
        fresh = MatchFinder(snapshot)
        for text in (snapshot.sides(0)[0], snapshot.sides(len(snapshot.sentences) - 1)[0], "heute zeigt die"):
            assert following.matches(text, 50, 1) == fresh.matches(text, 50, 1)
            assert following.exact(text) == fresh.exact(text)


def test_a_rebuilt_store_is_read_anew(tmp_path):
    old = MatchFinder(store_of(tmp_path / "old", [SentencePair("a b", "x")]))
    assert old.matches("a b")
    (tmp_path / "new").mkdir()
    manifest = Manifest(model={}, languages=Languages("de", "en"), width=WIDTH, created_at="2020-01-01T00:00:00Z")
    appended(tmp_path / "new", manifest, commit([SentencePair("c d", "y")]))
    new = old.following(Snapshot.open(tmp_path / "new"))
    assert targets(new.matches("c d")) == ["y"]
    assert new.matches("a b") == []
    assert new.exact("a b") is None


def test_an_exact_match_is_found_among_very_many_with_the_same_words(tmp_path):
    pairs = [SentencePair(f"Article {i}", f"Section {i}") for i in range(400)]
    found = MatchFinder(store_of(tmp_path / "s", pairs)).matches("Article 3", limit=3)
    assert [match.percent for match in found] == [100, 99, 99]
    assert targets(found) == ["Section 3", "Section 399", "Section 398"]


def test_a_short_match_is_found_among_very_many_long_sentences(tmp_path):
    rng = np.random.default_rng(1)
    pairs = [SentencePair("die zelle", "the cell")]
    pairs += [SentencePair(f"die zelle {' '.join(rng.choice(WORDS, 8))} {i}", "x") for i in range(400)]
    found = MatchFinder(store_of(tmp_path / "s", pairs)).matches("Die Zelle!")
    assert [(match.target, match.percent) for match in found] == [("the cell", 99)]


def test_scripts_without_spaces_are_matched_by_character(tmp_path):
    pairs = [SentencePair("表格显示单元格", "one"), SentencePair("今天天气很好", "two")]
    found = MatchFinder(store_of(tmp_path / "s", pairs)).matches("表格显示单元表")
    assert [(match.target, match.percent) for match in found] == [("one", 85)]


@examples(15)
@given(st.data())
def test_the_index_finds_what_a_comparison_with_every_sentence_finds(tmp_path_factory, data):
    texts = data.draw(st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=7), min_size=1, max_size=12))
    sources = [" ".join(words) for words in texts]
    snapshot = store_of(
        tmp_path_factory.mktemp("stores") / "s", [SentencePair(source, f"{i}") for i, source in enumerate(sources)]
    )
    text = " ".join(data.draw(st.lists(st.sampled_from([*WORDS, "x"]), min_size=1, max_size=7)))
    minimum = data.draw(st.integers(1, 100))
    similarities = percents(ComparedTexts.of([text]), ComparedTexts.of(sources))[0]
    wanted = sorted(similarities[similarities >= minimum].tolist(), reverse=True)
    found = MatchFinder(snapshot).matches(text, 50, minimum)
    assert [match.percent for match in found] == wanted
    assert all(similarities[match.sentence_id] == match.percent for match in found)


def test_the_terms_of_some_sentences_come_from_every_segment(tmp_path, monkeypatch):
    monkeypatch.setattr(sentence_index, "_IN_MEMORY", 3)
    sources = [" ".join(WORDS[: 1 + i % 5]) for i in range(11)]
    snapshot = store_of(tmp_path / "s", [SentencePair(source, f"{i}") for i, source in enumerate(sources)])
    index = SentenceIndex.open(snapshot)
    ids = np.array([0, 2, 3, 8, 9, 10])
    terms, starts = index.terms_at(ids)
    for at, sentence_id in enumerate(ids):
        assert terms[starts[at] : starts[at + 1]].tolist() == terms_of(sources[sentence_id]).tolist()
    assert index.lengths_of(np.arange(11)).tolist() == [len(source.split()) for source in sources]


def test_stores_are_searched_together_and_a_pair_in_both_is_found_once(finder, tmp_path):
    text = "die neue tabelle zeigt die zelle ."
    other = MatchFinder(store_of(tmp_path / "other", [dated(text, "first", 2030), dated(text, "newest", 2025)]))
    found = best_of_stores([finder, other], text)
    assert targets(found) == ["newest", "third", "fourth", "first", "second"]
    assert [match.store for match in found][:2] == [str(other.snapshot.folder), str(finder.snapshot.folder)]
    assert first_exact([finder, other], text).target == "third"
    assert first_exact([other, finder], text).target == "first"
    assert first_exact([other, finder], "heute").target == "today"


def test_equal_hashes_of_different_texts_are_not_reused(finder, monkeypatch):
    monkeypatch.setattr(matches, "text_hash", lambda text: int(finder.snapshot.sentences["source_hash"][4]))
    assert finder.exact("gestern") is None
    assert finder.exact("heute").target == "today"


def test_units_of_sentences_that_do_not_exist_are_damage(finder):
    snapshot = finder.snapshot
    snapshot.units["sentence"][0] = 99
    with pytest.raises(StoreDamagedError, match=r"units\.bin"):
        _ = finder.newest
