"""Held-out sentences: what is translated, what is excluded, and how it is scored."""

import numpy as np
import pytest

from nearmt.corpus import SentencePair
from nearmt.errors import SettingError
from nearmt.evaluation.held_out import HeldOutSet, translate_held_out
from nearmt.evaluation.scores import bleu
from nearmt.training.devset import dev_from_pairs
from nearmt.translator import Translator


def test_pairs_too_long_for_the_model_are_left_out(toy_model):
    short, long = SentencePair("die tabelle .", "the sheet ."), SentencePair("die " * 2000, "the")
    held_out = HeldOutSet.from_pairs(toy_model, [long, short])
    assert held_out.pairs == [short]
    assert held_out.references == ["the sheet ."]
    with pytest.raises(SettingError, match="no pair that the model can translate"):
        HeldOutSet.from_pairs(toy_model, [long])


def test_held_out_sentences_are_translated_and_scored(client, toy_model):
    translator = Translator(client.store, model=toy_model)
    pairs = [SentencePair(*pair) for pair in client.test_pairs[:8]]
    done: list[int] = []
    scored = translate_held_out(
        translator.decoder(translator.method), HeldOutSet.from_pairs(toy_model, pairs), done.append
    )
    assert scored.texts == [translation.text for translation in translator.translate([pair.source for pair in pairs])]
    assert toy_model.detokenize([best.token_ids for best in scored.hypotheses]) == scored.texts
    assert scored.bleu == bleu(scored.texts, [pair.target for pair in pairs])
    assert done[-1] == 8


def test_a_dev_set_keeps_the_exclusions_of_its_sentences(client, toy_model):
    snapshot = Translator(client.store, model=toy_model).snapshot
    stored, new = snapshot.text(0), SentencePair(*client.test_pairs[0])
    dev = dev_from_pairs(toy_model, snapshot, [stored, new], "test")
    assert dev.held_out([1]).excluded is None
    excluded = dev.held_out([1, 0]).excluded
    assert excluded
    assert excluded[0] is None
    np.testing.assert_array_equal(excluded[1], dev.excluded[0])
    assert dev.held_out([1, 0]).pairs == [new, stored]
