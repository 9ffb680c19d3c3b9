"""Text is split into sentences, lines and parts that fit a model, and put together again."""

from hypothesis import given
from hypothesis import strategies as st

from nearmt.markup import split_sentences, split_text, translate_long
from nearmt.markup.splitting import TokenizedText, tokenize_to_fit
from properties import examples

WORDS = st.sampled_from(["die", "z. B.", "Ende.", "neu!", "\n", "\r\n", "  ", "\u00a0", "„Zitat“", "你好。"])
TEXTS = st.text() | st.lists(WORDS, max_size=8).map(" ".join)


def test_long_text_keeps_its_white_space_byte_for_byte():
    text = "  Das ist z. B. ein Test.  Herr Dr. Müller kam am 3. Mai.\r\n\r\n\tNeuer Absatz!\n\n Ende \u00a0\n"
    asked = []

    def translate(texts):
        asked.extend(texts)
        return [text.upper() for text in texts]

    assert translate_long([text, "", " \n"], translate, language="de") == [text.upper(), "", " \n"]
    assert asked == ["Das ist z. B. ein Test.", "Herr Dr. Müller kam am 3. Mai.", "Neuer Absatz!", "Ende"]


def test_repeated_sentence_is_translated_once():
    calls = []

    def translate(texts):
        calls.append(texts)
        return texts

    translate_long(["Ja. Ja.", "Ja."], translate, language="de")
    assert calls == [["Ja."]]


@examples(200)
@given(text=TEXTS, is_newline_break=st.booleans())
def test_joined_sentences_are_the_text(text, is_newline_break):
    assert "".join(split_sentences(text, "de-DE", is_newline_break=is_newline_break)) == text
    assert translate_long([text], lambda sentences: sentences, language="de") == [text]


@examples(100)
@given(text=TEXTS, splits_sentences=st.booleans())
def test_spans_are_the_places_of_the_translations(text, splits_sentences):
    split = split_text(text, "de", splits_sentences=splits_sentences)
    assert split.fill(split.sentences) == text
    translations = [f"<{number}>" for number in range(len(split.sentences))]
    filled = split.fill(translations)
    assert [filled[start:end] for start, end in split.spans(translations)] == translations


def test_text_can_be_split_at_line_ends_only():
    assert split_text("Eins. Zwei.\nDrei.", "de", splits_sentences=False).sentences == ("Eins. Zwei.", "Drei.")


class WordTokenizer:
    """One token a word, with the texts it was given."""

    def __init__(self):
        self.texts = []

    def __call__(self, texts):
        self.texts += texts
        return [[len(word) for word in text.split()] for text in texts]


def test_text_that_fits_is_tokenised_once():
    tokenize = WordTokenizer()
    assert tokenize_to_fit(["ein Hund", "da"], tokenize, max_tokens=2) == [
        [TokenizedText("ein Hund", [3, 4])],
        [TokenizedText("da", [2])],
    ]
    assert tokenize.texts == ["ein Hund", "da"]
    assert tokenize_to_fit([], tokenize, max_tokens=2) == []


def test_long_text_is_cut_at_sentence_ends_then_at_spaces():
    tokenize = WordTokenizer()
    tokenize_to_fit(["Ja. Der große Hund bellt."], tokenize, max_tokens=2)
    assert tokenize.texts == ["Ja. Der große Hund bellt.", "Ja.", "Der große Hund bellt.", "Der große", "Hund bellt."]


@examples(100)
@given(text=st.lists(st.sampled_from(["a", "bc.", "d!", "efg"]), min_size=1, max_size=30).map(" ".join))
def test_parts_have_all_words_in_order_and_fit(text):
    (parts,) = tokenize_to_fit([text], WordTokenizer(), max_tokens=3)
    assert [token for part in parts for token in part.token_ids] == [len(word) for word in text.split()]
    assert all(1 <= len(part.token_ids) <= 3 for part in parts)
    assert " ".join(part.text for part in parts) == text


def test_text_without_spaces_is_cut_anywhere():
    def tokenize(texts):
        return [[ord(char) for char in text] for text in texts]

    (parts,) = tokenize_to_fit(["你好。世界很大"], tokenize, max_tokens=3)
    assert ["".join(map(chr, part.token_ids)) for part in parts] == ["你好。", "世界", "很大"]
    assert [part.text for part in parts] == ["你好。", "世界", "很大"]
    ((one, other),) = tokenize_to_fit(["你好"], tokenize, max_tokens=0)  # no shorter parts exist
    assert (one, other) == (TokenizedText("你", [ord("你")]), TokenizedText("好", [ord("好")]))
