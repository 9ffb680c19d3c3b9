"""Beam search over our decoding session gives what transformers' own `generate` gives."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForSeq2SeqLM, GenerationConfig
from transformers.utils import logging as transformers_logging

import tiny_models
from nearmt.decoding.beam import BeamSettings, EarlyStopping, Hypothesis, beam_search
from nearmt.models import Seq2Seq

TEXTS = ["die Tabelle ist gesperrt.", "der Hund", "das kleine Haus und ein Wort nicht rot.", "wir öffnen die Datei."]


@dataclass(frozen=True)
class Twins:
    """Our model and transformers' own, from the same files."""

    ours: Seq2Seq
    theirs: Any  # has `generate`, which PreTrainedModel does not declare


def load_twins(folder: Path, languages: dict[str, Any]) -> Twins:
    transformers_logging.disable_progress_bar()
    theirs = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    transformers_logging.enable_progress_bar()
    return Twins(Seq2Seq.load(folder, **languages), theirs)


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module", params=list(tiny_models.FAMILIES))
def twins(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Twins:
    make, languages = tiny_models.FAMILIES[request.param]
    return load_twins(make(tmp_path_factory.mktemp(request.param)), languages)


def search(
    model: Seq2Seq, sources: Sequence[Sequence[int]], limits: Sequence[int], settings: BeamSettings
) -> list[list[Hypothesis]]:
    session = model.start_decoding(sources)

    def step(token_ids: Tensor, parents: Tensor, prefixes: Tensor, is_last: Tensor, sentences: Tensor) -> Tensor:
        log_probs = session.step(token_ids, parents).logits.log_softmax(dim=-1)
        return model.rules.apply(prefixes, log_probs, is_last)

    return beam_search(
        step,
        max_new_tokens=limits,
        start_token_id=model.start_token_id,
        eos_token_ids=model.eos_token_ids,
        settings=settings,
    )


def generate(
    twins: Twins, sources: Sequence[Sequence[int]], limit: int, settings: BeamSettings
) -> list[list[tuple[tuple[int, ...], float]]]:
    config = GenerationConfig(**twins.theirs.generation_config.to_diff_dict())
    config.update(
        max_length=limit + 1,
        num_beams=settings.num_beams,
        num_return_sequences=settings.num_hypotheses,
        do_sample=False,
        decoder_start_token_id=twins.ours.start_token_id,
    )
    if settings.num_beams > 1:
        config.update(length_penalty=settings.length_penalty, early_stopping=settings.early_stopping)
    if twins.ours.forced_prefix:
        config.update(forced_bos_token_id=twins.ours.forced_prefix[0])
    time = max(map(len, sources))
    pad = twins.theirs.generation_config.pad_token_id
    found = twins.theirs.generate(
        input_ids=torch.tensor([[*ids, *[pad] * (time - len(ids))] for ids in sources]),
        attention_mask=torch.tensor([[1] * len(ids) + [0] * (time - len(ids)) for ids in sources]),
        generation_config=config,
        return_dict_in_generate=True,
        output_scores=True,
    )
    scores = found.sequences_scores.tolist() if settings.num_beams > 1 else [0.0] * len(found.sequences)
    flat = [(cut(ids[1:], twins.ours), score) for ids, score in zip(found.sequences.tolist(), scores, strict=True)]
    size = settings.num_hypotheses
    return [flat[i : i + size] for i in range(0, len(flat), size)]


def cut(token_ids: list[int], model: Seq2Seq) -> tuple[int, ...]:
    """A row of `generate` without what follows EOS."""
    ends = [i for i, token in enumerate(token_ids) if token in model.eos_token_ids]
    return tuple(token_ids[: ends[0] + 1] if ends else token_ids)


def check(twins: Twins, limit: int, settings: BeamSettings) -> None:
    sources = twins.ours.tokenize_sources(TEXTS)
    expected = generate(twins, sources, limit, settings)
    found = search(twins.ours, sources, [limit] * len(sources), settings)
    assert [[h.token_ids for h in group] for group in found] == [[ids for ids, _ in group] for group in expected]
    if settings.num_beams > 1:
        ours = torch.tensor([[h.score for h in group] for group in found])
        theirs = torch.tensor([[score for _, score in group] for group in expected])
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("early_stopping", [False, True, "never"])
@pytest.mark.parametrize("length_penalty", [0.6, 1.0])
def test_beam_of_four_equals_generate(twins: Twins, length_penalty: float, early_stopping: EarlyStopping) -> None:
    settings = BeamSettings(4, length_penalty, early_stopping, num_hypotheses=3)
    check(twins, 16, settings)


def test_one_beam_equals_greedy_generate(twins: Twins) -> None:
    check(twins, 16, BeamSettings(num_beams=1))


@pytest.mark.parametrize("limit", [2, 5])
def test_reached_limit_equals_generate(twins: Twins, limit: int) -> None:
    check(twins, limit, BeamSettings(num_beams=3, num_hypotheses=1))


def test_every_sentence_has_its_own_limit(twins: Twins) -> None:
    sources = twins.ours.tokenize_sources(TEXTS)
    limits, settings = [3, 12, 7, 4], BeamSettings(num_beams=4)
    together = search(twins.ours, sources, limits, settings)
    alone = [generate(twins, [ids], limit, settings)[0] for ids, limit in zip(sources, limits, strict=True)]
    assert [group[0].token_ids for group in together] == [group[0][0] for group in alone]


@pytest.mark.parametrize(
    ("family", "rules"),
    [
        ("marian", {"no_repeat_ngram_size": 2, "min_length": 6}),
        ("marian", {"repetition_penalty": 1.3, "bad_words_ids": [[64], [43, 43], [30]]}),
        ("t5", {"suppress_tokens": [14, 31], "begin_suppress_tokens": [42, 6], "min_new_tokens": 4}),
        ("m2m100", {"begin_suppress_tokens": [2, 43, 94], "forced_eos_token_id": 2, "eos_token_id": [2, 94]}),
        ("m2m100", {"min_length": 4, "sequence_bias": [[[127], 3.0]], "top_k": 5, "temperature": 0.3}),
    ],
)
def test_rules_of_the_generation_config_are_applied(family: str, rules: dict[str, Any], tmp_path: Path) -> None:
    make, languages = tiny_models.FAMILIES[family]
    folder = make(tmp_path)
    config = json.loads((folder / "generation_config.json").read_text())
    (folder / "generation_config.json").write_text(json.dumps(config | rules))
    twins = load_twins(folder, languages)
    check(twins, 10, BeamSettings(num_beams=3, num_hypotheses=2))
    check(twins, 7, BeamSettings(num_beams=3))
