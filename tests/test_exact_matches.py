"""A translator that reuses stored translations, and the matches that it finds."""

import pytest

from nearmt.corpus import SentencePair
from nearmt.datastore import Filter
from nearmt.decoding.decoder import Decoder
from nearmt.errors import SettingError
from nearmt.store import Store, build
from nearmt.translator import Translator

STORED = "die neue tabelle zeigt die zelle heute oft ."
TARGET = "A stored, odd translation!"
OTHER = "heute zeigt die zelle die neue tabelle ."


@pytest.fixture
def store(store_copy, toy_model):
    opened = Store(store_copy, model=toy_model)
    opened.add([SentencePair(STORED, TARGET, "u1", "client-x", "2024-05-01T00:00:00Z")])
    return opened


def reusing(store, toy_model, **options):
    return Translator(store.folder, model=toy_model, exact="reuse", **options)


def test_a_stored_text_comes_back_verbatim_and_is_not_decoded(store, toy_model, monkeypatch):
    decoded: list[int] = []
    decode = Decoder.decode

    def counting(self, sources, *others):
        decoded.append(len(sources))
        return decode(self, sources, *others)

    monkeypatch.setattr(Decoder, "decode", counting)
    (result,) = reusing(store, toy_model).translate([f"  {STORED.replace(' ', '  ')}\n"])
    assert decoded == [0]
    assert (result.text, result.score, result.token_ids, result.tokens) == (TARGET, 0.0, (), ())
    assert result.alternatives == ()
    assert result.match is not None
    assert (result.match.percent, result.match.source, result.match.unit_id) == (100, STORED, "u1")
    assert (result.match.origin, result.match.changed_at) == ("client-x", "2024-05-01T00:00:00Z")


def test_a_text_that_comes_again_is_decoded_once_and_counted_each_time(store, toy_model, monkeypatch):
    decoded: list[int] = []
    decode = Decoder.decode

    def counting(self, sources, *others):
        decoded.append(len(sources))
        return decode(self, sources, *others)

    monkeypatch.setattr(Decoder, "decode", counting)
    texts = [OTHER, STORED, "", f" {OTHER}", "die neue tabelle .", OTHER, STORED]
    progress: list[int] = []
    results = reusing(store, toy_model).translate(texts, on_done=progress.append)
    assert decoded == [2]
    assert progress[-1] == 6  # all but the empty text
    assert [result.source for result in results] == texts
    assert results[0].text == results[3].text == results[5].text != results[4].text
    assert results[5].tokens[0].neighbors == results[0].tokens[0].neighbors


def test_texts_are_translated_unless_reuse_is_asked_for(store, toy_model):
    (result,) = Translator(store.folder, model=toy_model).translate([STORED])
    assert result.match is None
    assert result.text != TARGET
    assert result.tokens


@pytest.mark.parametrize("text", [STORED.removesuffix(" ."), STORED.capitalize(), STORED + " ."])
def test_a_text_that_differs_in_case_or_punctuation_is_translated(store, toy_model, text):
    (result,) = reusing(store, toy_model).translate([text])
    assert result.match is None
    assert result.text != TARGET


def test_a_batch_gives_what_each_text_gives_alone_and_counts_all(store, toy_model):
    translator = reusing(store, toy_model)
    texts = [OTHER, STORED, "", STORED, "die zelle zeigt ."]
    done: list[int] = []
    together = translator.translate(texts, on_done=done.append)
    assert [result.source for result in together] == texts
    assert [result.match is not None for result in together] == [False, True, False, True, False]
    for text, result in zip(texts, together, strict=True):
        (alone,) = translator.translate([text])
        assert (alone.text, alone.match) == (result.text, result.match)
    assert done == [2, 4]
    plain = Translator(store.folder, model=toy_model)
    assert together[0].text == plain.translate([OTHER])[0].text
    assert translator.translate([]) == []


def test_additions_corrections_and_removals_are_followed_at_once(store, toy_model):
    translator = reusing(store, toy_model)
    assert translator.translate([OTHER])[0].match is None
    store.add([SentencePair(OTHER, "one", None, "client-x")])
    assert translator.translate([OTHER])[0].text == "one"
    assert translator.matches(OTHER)[0].target == "one"
    store.add([SentencePair(OTHER, "two", None, "client-x")])  # a correction
    assert translator.translate([OTHER])[0].text == "two"
    store.add([SentencePair(OTHER, "older", "u9", "client-y", "2001-01-01T00:00:00Z")])
    assert translator.translate([OTHER])[0].text == "two"
    store.remove(origin="client-x")
    assert translator.translate([OTHER])[0].text == "older"
    store.compact()
    assert translator.translate([OTHER])[0].text == "older"
    store.remove(source=OTHER)
    assert translator.translate([OTHER])[0].match is None
    assert all(match.source != OTHER for match in translator.matches(OTHER))


def test_a_filter_decides_what_may_be_reused(store, toy_model):
    translator = reusing(store, toy_model)
    without = translator.filtered(Filter(exclude=("client-*",)))
    assert without.translate([STORED])[0].match is None
    assert all(match.target != TARGET for match in without.matches(STORED))
    assert translator.translate([STORED])[0].text == TARGET
    only = reusing(store, toy_model, filter=Filter(only=("client-x",)))
    assert [match.target for match in only.matches(STORED)] == [TARGET]


def test_the_first_store_wins(store, toy_model, tmp_path):
    memory = tmp_path / "memory.tsv"
    memory.write_text(f"{STORED}\tanother translation\n{OTHER}\tonly here\n", encoding="utf-8")
    second = build(memory, model=toy_model, out=tmp_path / "second.store", train=False)
    texts = [STORED, OTHER]
    translator = Translator([store.folder, second.folder], model=toy_model, exact="reuse")
    assert [result.text for result in translator.translate(texts)] == [TARGET, "only here"]
    assert {match.store for match in translator.matches(STORED, limit=2)} == {str(store.folder), str(second.folder)}
    turned = Translator(
        [second.folder, store.folder],
        model=toy_model,
        exact="reuse",
        method="vanilla",
        k=4,
        temperature=10,
        knn_share=0.5,
    )
    assert turned.translate([STORED])[0].text == "another translation"


def test_matches_of_an_empty_text_and_wrong_settings(store, toy_model):
    translator = Translator(store.folder, model=toy_model)
    assert translator.matches(" ") == []
    assert len(translator.matches(STORED)) == 5
    assert translator.matches(STORED, limit=1)[0].target == TARGET
    assert all(match.percent >= 90 for match in translator.matches(STORED, limit=50, minimum=90))
    with pytest.raises(SettingError, match="`limit`"):
        translator.matches(STORED, limit=0)
    with pytest.raises(SettingError, match="`exact` takes translate or reuse, not 'never'"):
        Translator(store.folder, model=toy_model, exact="never")  # type: ignore[arg-type]
