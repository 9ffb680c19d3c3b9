"""Tags go to the right places in the translation."""

import html
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from test_markup import answers, each

from nearmt.markup import Marked, translate_marked, translate_with_ways
from properties import examples

LEXICON = {"die": "the", "Datei": "spreadsheet", "und": "&", "öffnen": "o", "neu": "brandnew"}
TAG_OR_WORD = re.compile(r"<[^<>]*>|&lt;b&gt;|&amp;|\w+")


def word_for_word(texts):
    """A translator that keeps the order of words and changes their lengths."""
    return [re.sub(r"\w+", lambda word: LEXICON[word[0]], text) for text in texts]


def with_translated_words(text):
    """What comes out if only the words between tags change."""
    return TAG_OR_WORD.sub(lambda found: html.escape(LEXICON.get(found[0], "")) or found[0], text)


SINGLE = st.tuples(*map(st.sampled_from, (("", " "), ("<x/>", "&lt;b&gt;", "<x></x>", "<g> <x/></g>"), ("", " ")))).map(
    "".join
)


def tags_between_words(*, has_singles_at_edges):
    """Tags among words that are often the same. There is a space or a single tag between any two words."""

    def extend(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        pair = st.tuples(st.sampled_from("bg"), inner).map(lambda pair: f"<{pair[0]}>{pair[1]}</{pair[0]}>")
        row = st.tuples(inner, st.just(" ") | SINGLE, inner).map("".join)
        if has_singles_at_edges:
            row |= st.tuples(SINGLE, inner).map("".join) | st.tuples(inner, SINGLE).map("".join)
        return pair | row

    return st.recursive(st.sampled_from(list(LEXICON)), extend, max_leaves=12)


@examples(200)
@given(text=tags_between_words(has_singles_at_edges=False))
@example(text="die die die die&lt;b&gt;die")
@example(text="die <x/> die die die die")
@example(text="die <b>die <x/> die</b> die")
@example(text="<b>die</b> <g>die</g> die <b>die</b>")
@example(text="die<x/><b>die</b>")
@example(text="die<x/><x></x>die")
def test_tags_keep_their_places_where_words_keep_theirs(text):
    expected = Marked(with_translated_words(text), "whole")
    assert translate_with_ways([text], word_for_word, "xml", language="de") == [expected]


@examples(200)
@given(text=tags_between_words(has_singles_at_edges=True))
def test_tags_next_to_other_tags_keep_their_places(text):
    (result,) = translate_marked([text], word_for_word, "xml", language="de")
    assert TAG_OR_WORD.findall(result) == TAG_OR_WORD.findall(with_translated_words(text))


def test_pair_follows_its_words():
    translate = answers(
        **{
            "Klicken Sie auf Datei, um die Tabelle zu öffnen.": "To open the spreadsheet, click File.",
            "Datei": "File.",
            "Tabelle": "Spreadsheet",
        }
    )
    text = 'Klicken Sie auf <g id="1">Datei</g>, um die <b>Tabelle</b> zu öffnen.'
    expected = 'To open the <b>spreadsheet</b>, click <g id="1">File</g>.'
    assert translate_with_ways([text], translate, "xml", language="de") == [Marked(expected, "whole")]


def test_nested_pairs_stay_nested_and_inflected_words_are_found():
    translate = answers(
        **{
            "Die neuen Tabellen sind gesperrt.": "The new tables are locked.",
            "neuen Tabellen": "new table",
            "Tabellen": "Tables",
        }
    )
    (result,) = translate_marked(["Die <i>neuen <b>Tabellen</b></i> sind gesperrt."], translate, "xml", language="de")
    assert result == "The <i>new <b>tables</b></i> are locked."


def test_fragment_translated_with_more_words_is_found():
    translate = answers(
        **{"Wählen Sie Datei - Öffnen zum Öffnen.": "Choose File - Open to open.", "Datei - Öffnen": "File - Open file"}
    )
    (result,) = translate_marked(["Wählen Sie <b>Datei - Öffnen</b> zum Öffnen."], translate, "xml", language="de")
    assert result == "Choose <b>File - Open</b> to open."


def test_single_tag_follows_the_words_beside_it_and_keeps_its_spaces():
    translate = answers(
        **{
            "Die Datei wurde heute gelöscht.": "The file was deleted today.",
            "Die Datei": "The file",
            "wurde heute gelöscht.": "x",
        }
    )
    (result,) = translate_marked(['Die Datei <x id="5"></x> wurde heute gelöscht.'], translate, "xml", language="de")
    assert result == 'The file <x id="5"></x> was deleted today.'


def test_span_that_is_not_found_is_placed_in_proportion():
    translate = answers(**{"Sie gehen nach Hause.": "You leave.", "nach Hause": "home"})
    (result,) = translate_with_ways(["Sie gehen <b>nach Hause</b>."], translate, "xml", language="de")
    assert (result.text, result.way) == ("You <b>leave</b>.", "whole")


def test_repeated_words_are_matched_by_their_order():
    (result,) = translate_marked(["Haus und <b>Haus</b> und Haus"], each("upper"), "xml", language="de")
    assert result == "HAUS UND <b>HAUS</b> UND HAUS"


def test_part_of_a_word_does_not_match_the_same_word_elsewhere():
    (result,) = translate_marked(["Haus<b>tür</b> und Tür"], each("upper"), "xml", language="de")
    assert result == "<b>HAUSTÜR</b> UND TÜR"


@pytest.mark.parametrize("pair", ["<b> </b>", "<b><x/></b>", "<b><i></i> <x/></b>"])
def test_pair_without_words_is_placed_like_a_single_tag(pair):
    text = f"die {pair} Datei <b>öffnen</b>"
    expected = Marked(f"DIE {pair} DATEI <b>ÖFFNEN</b>", "whole")
    assert translate_with_ways([text], each("upper"), "xml", language="de") == [expected]
