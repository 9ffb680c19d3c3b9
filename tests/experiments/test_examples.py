"""Which example sentences a report shows, and how it explains their words."""

from types import SimpleNamespace
from typing import Any

from nearmt.corpus import SentencePair
from nearmt.experiments.report import Change, Reason, changed_words, pick_examples, pick_misled, reasons_for


def neighbor(token_id, weight, source, target):
    return SimpleNamespace(token_id=token_id, weight=weight, segment=SimpleNamespace(source=source, target=target))


def translation(text: str, supported: dict[str, list[Any]]) -> Any:
    """A translation of one token per word; `supported` gives the neighbours of some words."""
    tokens, start = [], 0
    for number, word in enumerate(text.split()):
        end = start + len(word)
        tokens.append(SimpleNamespace(start=start, end=end, token_id=number, neighbors=supported.get(word, [])))
        start = end + 1
    return SimpleNamespace(text=text, tokens=tokens)


class Memory:
    """A translator that knows its outputs beforehand and supports every word with the same segment."""

    def __init__(self, outputs):
        self.outputs = outputs
        self.explained = []

    def explain(self, source):
        self.explained.append(source)
        text = self.outputs[source]
        words = text.split()
        supported = {word: [neighbor(number, 1.0, "segment", text)] for number, word in enumerate(words)}
        return translation(text, supported)


def test_changed_words_are_those_that_the_model_lacks_with_their_best_segment():
    found = translation(
        "A proxy, is valid here",
        {
            "A": [neighbor(0, 0.5, "s1", "t1")],
            "proxy,": [neighbor(1, 0.2, "s2", "t2"), neighbor(1, 0.6, "s1", "t1"), neighbor(7, 0.9, "s3", "t3")],
            "is": [neighbor(2, 1.0, "s1", "t1")],
            "here": [neighbor(9, 1.0, "s1", "t1")],
        },
    )
    assert changed_words(found, "The power is valid") == [Change("A proxy,", 0, 8, "s1", "t1")]
    assert changed_words(found, "a PROXY is valid") == []


def test_a_segment_is_named_once_with_all_its_words():
    changes = [Change("A", 0, 1, "s1", "t1"), Change("b", 2, 3, "s2", "t2"), Change("c", 4, 5, "s1", "t1")]
    assert reasons_for(changes) == [Reason("A … c", "s1", "t1"), Reason("b", "s2", "t2")]


def test_examples_are_the_greatest_gains_and_the_misled_one_the_greatest_loss():
    sources = [f"phrase {name} de cinq mots" for name in ("une", "deux", "trois", "quatre")]
    references = [
        "the big house is in it",
        "shareholder approval is needed now",
        "this sentence gains nothing at all",
        "the right words are these ones",
    ]
    outputs = {
        "base": ["a", "owner consent is needed now", references[2], references[3]],
        "adaptive": ["the big house is in it", "shareholder approval is needed now", references[2], "the wrong words"],
    }
    pairs = [SentencePair(source, target) for source, target in zip(sources, references, strict=True)]
    memory: Any = Memory(dict(zip(sources, outputs["adaptive"], strict=True)))
    examples = pick_examples(memory, pairs, outputs)
    assert [example.source for example in examples] == sources[:2]
    (misled,) = pick_misled(memory, pairs, outputs)
    assert misled.source == sources[3]
    assert pick_misled(memory, pairs[:3], {name: texts[:3] for name, texts in outputs.items()}) == []


def test_a_sentence_without_a_corrected_word_is_only_a_fallback():
    sources = ["une phrase de cinq mots", "encore une de cinq mots"]
    pairs = [SentencePair(sources[0], "to be or not to be it"), SentencePair(sources[1], "the section applies to them")]
    outputs = {"base": ["x y z", "the article applies to them"], "adaptive": [pair.target for pair in pairs]}
    memory: Any = Memory(dict(zip(sources, outputs["adaptive"], strict=True)))
    assert [example.source for example in pick_examples(memory, pairs, outputs, 1)] == [sources[1]]
    assert [example.source for example in pick_examples(memory, pairs, outputs, 2)] == [sources[1], sources[0]]
