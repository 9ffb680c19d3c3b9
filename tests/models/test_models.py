"""Tokens, states and decoding steps of the tiny models of every family."""

import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM
from transformers.utils import logging as transformers_logging

import tiny_models
from nearmt.errors import ModelError
from nearmt.models import ForcedTokens, Seq2Seq
from nearmt.models.torch_engine import TorchEngine

SOURCES = ["die Tabelle ist gesperrt.", "der Hund", "das kleine Haus und ein Wort nicht rot."]
TARGETS = ["the spreadsheet is locked.", "a dog ☃ red", "this small house and a word not red."]
SHARING = {"marian", "m2m100", "nllb", "mbart", "mbart50", "bart", "t5"}
FORCING = {"m2m100", "nllb", "mbart50", "bart"}


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module", params=list(tiny_models.FAMILIES))
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def model(family: str, tmp_path_factory: pytest.TempPathFactory) -> Seq2Seq:
    make, languages = tiny_models.FAMILIES[family]
    return Seq2Seq.load(make(tmp_path_factory.mktemp(family)), **languages)


def forced(model: Seq2Seq, *, keep_unknown: bool = False) -> ForcedTokens:
    sources, targets = model.tokenize_sources(SOURCES), model.tokenize_targets(TARGETS)
    return model.force_decode(sources, targets, keep_unknown=keep_unknown)


def test_languages_are_plain_codes(model: Seq2Seq) -> None:
    assert (model.source_lang, model.target_lang) == ("de", "en")


def test_targets_are_content_and_one_eos(model: Seq2Seq) -> None:
    for ids in model.tokenize_targets(TARGETS):
        assert ids[-1] in model.eos_token_ids
        assert not set(ids[:-1]) & {*model.eos_token_ids, *model.forced_prefix, model.start_token_id}
        assert max(ids) < model.vocabulary_size


def test_tokenised_texts_can_be_restored(model: Seq2Seq) -> None:
    known = [TARGETS[0], TARGETS[2]]
    assert model.detokenize(model.tokenize_targets(known)) == known


def test_token_texts_keep_word_boundaries(model: Seq2Seq, family: str) -> None:
    ids = model.tokenize_targets(["the dog"])[0]
    pieces = model.token_texts(ids)
    assert len(pieces) == len(ids)
    assert {"fsmt": "</w>", "bart": "Ġ"}.get(family, "▁") in "".join(pieces)


def test_tokenizing_nothing_gives_nothing(model: Seq2Seq) -> None:
    assert model.tokenize_sources([]) == model.tokenize_targets([]) == []
    assert model.detokenize([]) == []


def test_long_texts_are_not_cut(model: Seq2Seq) -> None:
    text = " ".join(["the dog"] * 400)
    assert len(model.tokenize_sources([text])[0]) > 800
    assert len(model.tokenize_targets([text])[0]) > 800


def test_unknown_tokens_are_dropped_unless_wanted(model: Seq2Seq, family: str) -> None:
    targets = model.tokenize_targets(TARGETS)
    assert (model.unknown_token_id in targets[1]) == (family != "bart")  # byte-level BPE has no unknown characters
    kept = forced(model)
    assert model.unknown_token_id not in kept.token_ids.tolist()
    assert [p for t in targets for p in model.kept_positions(t)] == kept.positions.tolist()
    whole = forced(model, keep_unknown=True)
    assert whole.token_ids.tolist() == [token for target in targets for token in target]


def test_states_and_projection_are_the_models_logits(model: Seq2Seq, family: str) -> None:
    transformers_logging.disable_progress_bar()
    reference = AutoModelForSeq2SeqLM.from_pretrained(model.identity.name).eval()
    transformers_logging.enable_progress_bar()
    found = forced(model)
    logits = model.project(found.states)
    for row, (source, target) in enumerate(
        zip(model.tokenize_sources(SOURCES), model.tokenize_targets(TARGETS), strict=True)
    ):
        gold = [*model.forced_prefix, *target]
        decoder_input = [model.start_token_id, *gold[:-1]]
        with torch.no_grad():
            expected = reference(
                input_ids=torch.tensor([source]),
                attention_mask=torch.ones(1, len(source), dtype=torch.int64),
                decoder_input_ids=torch.tensor([decoder_input]),
                use_cache=False,
            ).logits[0, len(model.forced_prefix) :]
        mine = found.rows == row
        torch.testing.assert_close(logits[mine], expected[found.positions[mine]], rtol=1e-4, atol=1e-4)
        assert found.token_ids[mine].tolist() == [target[p] for p in found.positions[mine].tolist()]


def test_forced_prefix_is_not_returned(model: Seq2Seq, family: str) -> None:
    assert bool(model.forced_prefix) == (family in FORCING)
    assert (model.rules.forced_token(0) is not None) == (family in FORCING)
    assert model.rules.forced_token(1) is None
    assert not set(model.forced_prefix) & set(forced(model).token_ids.tolist())


def test_padding_does_not_matter(model: Seq2Seq) -> None:
    together = forced(model)
    for row, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        alone = model.force_decode(model.tokenize_sources([source]), model.tokenize_targets([target]))
        torch.testing.assert_close(alone.states, together.states[together.rows == row], rtol=1e-4, atol=1e-5)


def test_states_are_ordinary_float32_tensors(model: Seq2Seq) -> None:
    session = model.start_decoding(model.tokenize_sources(SOURCES[:1]))
    output = session.step(torch.tensor([model.start_token_id]), torch.tensor([0]))
    for tensor in (forced(model).states, output.states, output.logits):
        assert tensor.dtype == torch.float32
        tensor.add_(1.0)  # tensors made in inference mode refuse this


def test_steps_equal_forced_decoding(model: Seq2Seq) -> None:
    """Three rows per sentence, reordered between steps, and a sentence that ends early."""
    sources = model.tokenize_sources(SOURCES)
    targets = [ids[:4] for ids in model.tokenize_targets(TARGETS)]
    whole = model.force_decode(sources, targets, keep_unknown=True)
    session = model.start_decoding(sources)
    inputs = [[model.start_token_id, *model.forced_prefix, *target] for target in targets]
    skip, live, rows_before = len(model.forced_prefix), [0, 1, 2], 1
    for step in range(skip + 4):
        if step == skip + 2:
            live = [0, 2]
        group = 1 if step == 0 else 3
        old = {s: i for i, s in enumerate([0, 1, 2] if step <= skip + 2 else [0, 2])}
        parents = [old[s] * rows_before + (2 - b if rows_before > 1 else 0) for s in live for b in range(group)]
        tokens = [inputs[s][step] for s in live for _ in range(group)]
        output = session.step(torch.tensor(tokens), torch.tensor(parents))
        rows_before = group
        if step < skip:
            continue
        for place, sentence in enumerate(live):
            expected = whole.states[(whole.rows == sentence) & (whole.positions == step - skip)]
            rows = output.states[place * group : (place + 1) * group]
            torch.testing.assert_close(rows, expected.expand_as(rows), rtol=1e-4, atol=1e-5)


def test_sources_are_stored_once_per_sentence(model: Seq2Seq, family: str) -> None:
    session = model.start_decoding(model.tokenize_sources(SOURCES))
    start = torch.full((3,), model.start_token_id)
    session.step(start, torch.arange(3))
    session.step(start.repeat_interleave(4), torch.arange(3).repeat_interleave(4))
    per_sentence = 1 if family in SHARING else 4
    assert cross_rows(session) == {3 * per_sentence}
    session.step(start[:2].repeat_interleave(4), torch.tensor([0, 0, 1, 2, 8, 9, 9, 9]))
    assert cross_rows(session) == {2 * per_sentence}
    assert session.num_source_rows == 2 * per_sentence


def cross_rows(session: object) -> set[int]:
    layers = session._cache.cross_attention_cache.layers  # type: ignore[attr-defined]
    return {len(layer.keys) for layer in layers} | {len(layer.values) for layer in layers}


def test_rows_out_of_order_are_refused(model: Seq2Seq) -> None:
    session = model.start_decoding(model.tokenize_sources(SOURCES))
    tokens = torch.full((3,), model.start_token_id)
    with pytest.raises(ValueError, match="grouped by sentence"):
        session.step(tokens, torch.tensor([1, 0, 2]))
    with pytest.raises(ValueError, match="first step"):
        session.step(tokens[:2], torch.tensor([0, 2]))


@pytest.fixture
def frequent_switches() -> Iterator[None]:
    """Switch between threads much more often than usual."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("frequent_switches")
def test_threads_do_not_mix_their_states(model: Seq2Seq) -> None:
    sources, targets = model.tokenize_sources(SOURCES), model.tokenize_targets(TARGETS)
    expected = [model.force_decode([s], [t]).states for s, t in zip(sources, targets, strict=True)]
    failures: list[str] = []

    def work(index: int) -> None:
        for _ in range(8):
            found = model.force_decode([sources[index]], [targets[index]]).states
            if found.shape != expected[index].shape or not torch.allclose(found, expected[index], atol=1e-5):
                failures.append(f"thread {index}: states differ")
            if model.tokenize_targets([TARGETS[index]])[0] != targets[index]:
                failures.append(f"thread {index}: target ids differ")
            if model.tokenize_sources([SOURCES[index]])[0] != sources[index]:
                failures.append(f"thread {index}: source ids differ")

    threads = [threading.Thread(target=work, args=(index,)) for index in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_sources_and_targets_tokenised_concurrently_do_not_mix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Seq2Seq.load(tiny_models.make_marian(tmp_path))
    tokenizer: Any = model._codec._tokenizer  # type: ignore[attr-defined]
    switch, is_switched = tokenizer._switch_to_target_mode, threading.Event()

    def switch_slowly() -> None:
        switch()
        is_switched.set()
        time.sleep(0.2)

    sources, targets = model.tokenize_sources(SOURCES), model.tokenize_targets(TARGETS)
    monkeypatch.setattr(tokenizer, "_switch_to_target_mode", switch_slowly)
    found: list[list[int]] = []
    thread = threading.Thread(target=lambda: found.extend(model.tokenize_targets(TARGETS)))
    thread.start()
    assert is_switched.wait(timeout=10)
    assert model.tokenize_sources(SOURCES) == sources
    thread.join()
    assert found == targets


def test_pair_longer_than_the_models_positions_is_refused(model: Seq2Seq, family: str) -> None:
    short, long = model.tokenize_sources(["der Hund"]), model.tokenize_targets([" ".join(["the dog"] * 60)])
    if family == "t5":
        assert model.max_target_tokens > 100_000
        return
    assert model.max_target_tokens == model.max_source_tokens == 64
    with pytest.raises(ModelError, match="too long for the model, which has 64 positions"):
        model.force_decode(short, long)


def test_fsmt_encodes_targets_with_the_targets_vocabulary(tmp_path_factory: pytest.TempPathFactory) -> None:
    model = Seq2Seq.load(tiny_models.make_fsmt(tmp_path_factory.mktemp("two")))
    source, target = model.tokenize_sources(["word"])[0], model.tokenize_targets(["word"])[0]
    assert model.token_texts(target) == ["w", "o", "r", "d</w>", "</s>"]
    assert source != target
    assert isinstance(model._engine, TorchEngine)
    assert model._engine.model.config.src_vocab_size != model.vocabulary_size
