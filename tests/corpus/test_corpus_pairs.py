"""Pairs, counts, dates and language codes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearmt.corpus import DropCounts, SentencePair
from nearmt.corpus.languages import LanguagePair, PairFinder, check_languages, match_rank
from nearmt.corpus.pairs import PairSieve, normalise_space, utc_date
from nearmt.errors import CorpusError


def sift(source: str, target: str, *, keep_identical: bool = False) -> tuple[SentencePair | None, dict[str, int]]:
    drops = DropCounts()
    pair = PairSieve(drops, keep_identical).pair(source, target, unit_id="1", origin="f", changed_at=None)
    return pair, drops.as_dict()


def test_drop_counts_add_up_by_reason() -> None:
    drops = DropCounts()
    drops.add("empty")
    drops.add("duplicate", 3)
    drops.add("empty")
    assert drops.total == 5
    assert drops.as_dict() == {"duplicate": 3, "empty": 2}
    assert DropCounts().total == 0


def test_sentence_pair_is_frozen() -> None:
    with pytest.raises(AttributeError):
        SentencePair("a", "b").source = "c"  # type: ignore[misc]


@pytest.mark.parametrize(("source", "target"), [("", "b"), ("a", ""), (" \n", "b"), ("a", "\u00a0"), ("", "")])
def test_empty_side_is_dropped(source: str, target: str) -> None:
    assert sift(source, target) == (None, {"empty": 1})


def test_identical_sides_are_dropped_unless_kept() -> None:
    assert sift("OK ", " OK") == (None, {"identical": 1})
    pair, drops = sift("OK", "OK", keep_identical=True)
    assert pair is not None
    assert drops == {}


@given(st.text())
def test_normalised_text_is_one_trimmed_line(text: str) -> None:
    clean = normalise_space(text)
    assert len(clean.splitlines()) <= 1
    assert clean == clean.strip()
    assert normalise_space(clean) == clean


def test_no_break_space_survives_normalising() -> None:
    assert normalise_space(" 10\u00a0%\t\u2028und  \r\n mehr ") == "10\u00a0% und mehr"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("20240501T120000Z", "2024-05-01T12:00:00Z"),
        ("2024-05-01 14:00+0200", "2024-05-01T12:00:00Z"),
        ("2024-05-01T12:00:00.999Z", "2024-05-01T12:00:00Z"),
        ("2024-05-01", "2024-05-01T00:00:00Z"),
        ("YEAR-MO-DA HO:MI+ZONE", None),
        ("20240231T120000Z", None),
        ("0001-01-01T00:00:00+14:00", None),
        ("", None),
        (None, None),
    ],
)
def test_dates_become_utc(text: str | None, expected: str | None) -> None:
    assert utc_date(text) == expected


@pytest.mark.parametrize(
    ("wanted", "found", "rank"),
    [
        ("de", "de", 0),
        ("de-DE", "DE_de", 0),
        ("de", "de-DE", 1),
        ("de-DE", "de", 1),
        ("de-DE", "de-AT", 2),
        ("zh-CN", "zh-Hans-CN", 1),
        ("zh-CN", "zh-TW", None),
        ("zh", "zh-TW", 1),
        ("sr-Latn", "sr@latin", 1),
        ("sr-Cyrl", "sr@latin", None),
        ("de", "den", None),
        ("de", "en", None),
        ("de", "", None),
    ],
)
def test_language_codes_match_by_region_fallback(wanted: str, found: str, rank: int | None) -> None:
    assert match_rank(wanted, found) == rank


@pytest.mark.parametrize(
    ("wanted", "codes", "expected"),
    [
        (("de", "en"), ["en", "de"], (1, 0)),
        (("de-DE", "en"), ["de-AT", "de", "de-DE", "en-US"], (2, 3)),
        (("de-DE", "en"), ["de-AT", "de", "en-US"], (1, 2)),
        (("de-DE", "en-GB"), ["de-AT", "en-US", "en-GB"], (0, 2)),
        (("en-US", "en-GB"), ["en-GB", "en-US"], (1, 0)),
        (("en-US", "en-GB"), ["en-US"], None),
        (("de", "en"), ["de", "fr"], None),
    ],
)
def test_best_variants_are_found(wanted: tuple[str, str], codes: list[str], expected: tuple[int, int] | None) -> None:
    assert PairFinder("f", *wanted).find(codes) == expected


def test_finder_is_correct_over_many_combinations() -> None:
    finder = PairFinder("f", "de", "en")
    for number in range(2500):
        assert finder.find(["en", f"x{number}", "de"]) == (2, 0)
    finder.finish()


def test_languages_that_no_unit_has_together_are_an_error() -> None:
    finder = PairFinder("f.tmx", "de", "en")
    finder.find(["de", "fr"])
    finder.find(["en", "fr"])
    with pytest.raises(CorpusError, match=r"f\.tmx has no unit with both de and en: its languages are de, fr, en\."):
        finder.finish()


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("en-US", "de-DE", "the languages are swapped"),
        ("fr", "en", "from fr to en, but de to en was requested"),
        ("de", "fr", "from de to fr, but de to en was requested"),
    ],
)
def test_other_languages_are_refused(source: str, target: str, message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        check_languages("f", LanguagePair("de", "en"), source=source, target=target)


def test_swapped_variants_of_one_language_are_noticed() -> None:
    check_languages("f", LanguagePair("en-US", "en-GB"), source="en-us", target="en_GB")
    check_languages("f", LanguagePair("en", "en"), source="en", target="en")
    with pytest.raises(CorpusError, match="swapped"):
        check_languages("f", LanguagePair("en-US", "en-GB"), source="en-GB", target="en-US")


@pytest.mark.parametrize(("source", "target"), [(None, None), ("de-AT", None), (None, "en-US")])
def test_unstated_languages_pass(source: str | None, target: str | None) -> None:
    check_languages("f", LanguagePair("de", "en"), source=source, target=target)
    check_languages("f", LanguagePair(None, None), source="fr", target="it")
