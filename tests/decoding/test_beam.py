"""Beam search on tables of log-probabilities, against a plain-Python search over the same tables."""

import math
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from nearmt.decoding.beam import BeamSettings, EarlyStopping, Hypothesis, Shifted, _Search, beam_search
from nearmt.errors import SettingError
from nearmt.models.topk import topk
from properties import examples

START = 0
Scored = tuple[float, tuple[int, ...], float]  # score, token ids, log-probability


class Tables:
    """Next-token log-probabilities that depend on the sentence, the length and the last two tokens."""

    def __init__(self, num_sentences: int, vocabulary: int, *, seed: int, spread: float = 1.5) -> None:
        generator = torch.Generator().manual_seed(seed)
        shape = (num_sentences, 12, vocabulary, vocabulary)
        self.table = (spread * torch.randn(shape, generator=generator)).log_softmax(dim=-1)
        self.other = 0.7 * torch.randn(num_sentences, vocabulary, vocabulary, generator=generator)
        self.calls: list[dict[str, list[int]]] = []

    def next_log_probs(self, sentence: int, prefix: Sequence[int]) -> Tensor:
        before = prefix[-2] if len(prefix) > 1 else START
        scores = self.table[sentence, len(prefix) % 12, prefix[-1]] + self.other[sentence, before]
        return scores.log_softmax(dim=-1)

    def __call__(
        self, token_ids: Tensor, parents: Tensor, prefixes: Tensor, is_last: Tensor, sentences: Tensor
    ) -> Tensor:
        assert torch.equal(token_ids, prefixes[:, -1])
        if self.calls:
            before = torch.tensor(self.calls[-1]["sentences"])
            assert torch.equal(before[parents], sentences)
        self.calls.append({"sentences": sentences.tolist(), "is_last": is_last.tolist(), "parents": parents.tolist()})
        rows = zip(sentences.tolist(), prefixes.tolist(), strict=True)
        return torch.stack([self.next_log_probs(sentence, prefix) for sentence, prefix in rows])


def search(tables: Tables, limits: Sequence[int], eos: Sequence[int], how: BeamSettings) -> list[list[Hypothesis]]:
    return beam_search(tables, max_new_tokens=limits, start_token_id=START, eos_token_ids=eos, settings=how)


def plain_search(tables: Tables, sentence: int, limit: int, eos: Sequence[int], how: BeamSettings) -> list[Scored]:
    """The same search with plain lists, one sentence at a time."""
    penalty = how.length_penalty
    running: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    finished: list[Scored] = []
    for length in range(1, limit + 1):
        candidates = []
        for total, ids in running:
            for token, value in enumerate(tables.next_log_probs(sentence, [START, *ids]).tolist()):
                candidates.append((total + value, (*ids, token)))
        candidates.sort(key=lambda found: -found[0])
        candidates = candidates[: (1 + len(eos)) * how.num_beams]
        for rank, (total, ids) in enumerate(candidates):
            if (ids[-1] in eos or length == limit) and rank < how.num_beams:
                finished.append((total / length**penalty, ids, total))
        finished = sorted(finished, key=lambda found: -found[0])[: how.num_beams]
        running = [found for found in candidates if found[1][-1] not in eos][: how.num_beams]
        if len(finished) == how.num_beams:
            reach = limit if how.early_stopping == "never" and penalty > 0 else length
            if how.early_stopping is True or not running[0][0] / reach**penalty > finished[-1][0]:
                break
    return finished[: how.num_hypotheses]


class ShiftedTables(Tables):
    """The same log-probabilities, split into a part per token and a part per row."""

    def __call__(self, *inputs: Tensor) -> Shifted:  # type: ignore[override]
        log_probs = super().__call__(*inputs)
        shift = torch.linspace(-3, 2, len(log_probs))
        return Shifted(log_probs - shift[:, None], shift)


@pytest.mark.parametrize("num_beams", [1, 3])
def test_a_shift_per_row_is_added_to_all_its_tokens(num_beams):
    how = BeamSettings(num_beams, num_hypotheses=num_beams)
    whole, apart = (search(kind(4, 9, seed=5), [6, 9, 4, 8], [1], how) for kind in (Tables, ShiftedTables))
    for one, other in zip(whole, apart, strict=True):
        assert [found.token_ids for found in one] == [found.token_ids for found in other]
        assert [found.score for found in one] == pytest.approx([found.score for found in other], abs=1e-5)


def greedy(tables: Tables, sentence: int, limit: int, eos: Sequence[int]) -> tuple[int, ...]:
    ids: tuple[int, ...] = ()
    while len(ids) < limit and not (ids and ids[-1] in eos):
        ids = (*ids, int(tables.next_log_probs(sentence, [START, *ids]).argmax()))
    return ids


@examples(60)
@given(
    seed=st.integers(0, 10_000),
    limits=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    num_beams=st.integers(2, 4),
    length_penalty=st.sampled_from([0.0, 0.6, 1.0, 1.7, -0.5]),
    early_stopping=st.sampled_from([False, True, "never"]),
    eos=st.sampled_from([(1,), (2, 5)]),
)
def test_beam_search_equals_a_plain_search(
    seed: int,
    limits: list[int],
    num_beams: int,
    length_penalty: float,
    early_stopping: EarlyStopping,
    eos: tuple[int, ...],
) -> None:
    tables = Tables(len(limits), 14, seed=seed)
    how = BeamSettings(num_beams, length_penalty, early_stopping, num_hypotheses=2)
    found = search(tables, limits, eos, how)
    for sentence, (group, limit) in enumerate(zip(found, limits, strict=True)):
        expected = plain_search(tables, sentence, limit, eos, how)
        assert [h.token_ids for h in group] == [ids for _, ids, _ in expected]
        for hypothesis, (score, _, log_probability) in zip(group, expected, strict=True):
            assert hypothesis.score == pytest.approx(score, abs=1e-4)
            assert hypothesis.log_probability == pytest.approx(log_probability, abs=1e-4)


@examples(30)
@given(seed=st.integers(0, 10_000), limits=st.lists(st.integers(1, 9), min_size=1, max_size=4))
def test_one_beam_is_greedy(seed: int, limits: list[int]) -> None:
    tables = Tables(len(limits), 10, seed=seed)
    found = search(tables, limits, (1,), BeamSettings(num_beams=1))
    for sentence, (group, limit) in enumerate(zip(found, limits, strict=True)):
        assert group[0].token_ids == greedy(tables, sentence, limit, (1,))


def test_a_finished_sentence_leaves_the_batch() -> None:
    tables = Tables(3, 12, seed=3)
    search(tables, [2, 8, 5], (1,), BeamSettings(num_beams=3))
    sizes = [len(set(call["sentences"])) for call in tables.calls]
    assert len(tables.calls[0]["sentences"]) == 3  # one row per sentence
    assert len(tables.calls[1]["sentences"]) == 9
    assert 0 not in tables.calls[2]["sentences"]
    assert sizes == sorted(sizes, reverse=True)


def test_is_last_marks_the_last_step_of_each_sentence() -> None:
    tables = Tables(2, 12, seed=4)
    search(tables, [1, 3], (1,), BeamSettings(num_beams=2, early_stopping="never"))
    assert tables.calls[0]["is_last"] == [True, False]
    assert tables.calls[-1]["is_last"] == [True, True]


def test_forced_first_token_leaves_one_live_beam() -> None:
    tables = Tables(2, 12, seed=5)

    def forced(token_ids: Tensor, parents: Tensor, prefixes: Tensor, is_last: Tensor, sentences: Tensor) -> Tensor:
        log_probs = tables(token_ids, parents, prefixes, is_last, sentences)
        if prefixes.shape[1] == 1:
            log_probs = torch.full_like(log_probs, -math.inf)
            log_probs[:, 7] = 0.0
        return log_probs

    how = BeamSettings(num_beams=4, num_hypotheses=4)
    found = beam_search(forced, max_new_tokens=[6, 6], start_token_id=START, eos_token_ids=[1], settings=how)
    for group in found:
        assert {h.token_ids[0] for h in group} == {7}
        assert len({h.token_ids for h in group}) == 4


def test_impossible_hypotheses_are_not_returned() -> None:
    def only_end(token_ids: Tensor, parents: Tensor, prefixes: Tensor, is_last: Tensor, sentences: Tensor) -> Tensor:
        log_probs = torch.full((len(token_ids), 12), -math.inf)
        log_probs[:, 1] = -0.5
        return log_probs

    how = BeamSettings(num_beams=3, num_hypotheses=3)
    found = beam_search(only_end, max_new_tokens=[4], start_token_id=START, eos_token_ids=[1], settings=how)
    assert found == [[Hypothesis((1,), -0.5, -0.5)]]


def test_no_sentences_give_no_results() -> None:
    assert search(Tables(1, 5, seed=0), [], (1,), BeamSettings()) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_beams": 0}, "`num_beams` must be at least 1"),
        ({"num_beams": 2, "num_hypotheses": 3}, "`num_hypotheses` must be between"),
        ({"length_penalty": math.nan}, "length_penalty"),
        ({"early_stopping": "soon"}, "early_stopping"),
    ],
)
def test_invalid_settings_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        BeamSettings(**options)  # type: ignore[arg-type]


def test_a_maximum_length_of_zero_is_refused() -> None:
    with pytest.raises(SettingError, match="max_new_tokens"):
        search(Tables(1, 5, seed=0), [0], (1,), BeamSettings())


@examples(60)
@given(st.integers(1, 5), st.integers(1, 3000), st.integers(1, 12), st.integers(0, 10**6))
def test_topk_equals_torchs(rows: int, width: int, count: int, seed: int) -> None:
    values = torch.randn(rows, width + 7, generator=torch.Generator().manual_seed(seed))[:, :width]
    count = min(count, width)
    found, places = topk(values, count)
    expected = values.topk(count, dim=1)
    assert torch.equal(found, expected.values)
    assert torch.equal(values.gather(1, places), expected.values)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_beams": 0}, "`num_beams` must be at least 1, not 0"),
        ({"num_hypotheses": 0}, "`num_hypotheses` must be between 1 and `num_beams` (4), not 0"),
        ({"num_hypotheses": 5}, "`num_hypotheses` must be between 1 and `num_beams` (4), not 5"),
        ({"length_penalty": 100.0}, "`length_penalty` must be between -100 and 100, not 100.0"),
        ({"length_penalty": -100.5}, "`length_penalty` must be between -100 and 100, not -100.5"),
        ({"early_stopping": "soon"}, "`early_stopping` must be true, false or 'never', not 'soon'"),
    ],
)
def test_a_refusal_names_the_setting_and_its_value(options: dict[str, object], message: str) -> None:
    with pytest.raises(SettingError) as refused:
        BeamSettings(**options)  # type: ignore[arg-type]
    assert str(refused.value) == message


def test_limits_of_settings_are_accepted() -> None:
    BeamSettings(num_beams=1, num_hypotheses=1, length_penalty=99.9)
    BeamSettings(num_beams=2, num_hypotheses=2, length_penalty=-99.9, early_stopping="never")


@pytest.mark.parametrize(
    ("limits", "eos", "message"),
    [
        ([3, 0], (1,), "`max_new_tokens` must be at least 1 for every sentence"),
        ([3], (), "beam search needs at least one end token"),
    ],
)
def test_a_search_without_room_or_end_is_refused(limits: list[int], eos: tuple[int, ...], message: str) -> None:
    with pytest.raises(SettingError) as refused:
        search(Tables(2, 5, seed=0), limits, eos, BeamSettings())
    assert str(refused.value) == message


def test_the_state_of_a_search_is_on_its_device() -> None:
    state = vars(_Search([3, 5], START, [1, 2], BeamSettings(3), torch.device("meta")))
    tensors = {name: value for name, value in state.items() if isinstance(value, Tensor)}
    assert len(tensors) >= 10
    assert {tensor.device.type for tensor in tensors.values()} == {"meta"}
    floating = {name for name, tensor in tensors.items() if tensor.is_floating_point()}
    assert floating == {"_running", "_done_log_probs", "_done_scores"}
    assert tensors["_is_done"].dtype == torch.bool


def test_the_step_function_gets_its_inputs_on_the_device() -> None:
    def step(token_ids: Tensor, parents: Tensor, prefixes: Tensor, is_last: Tensor, sentences: Tensor) -> Tensor:
        inputs = (token_ids, parents, prefixes, is_last, sentences)
        raise RuntimeError(" ".join(tensor.device.type for tensor in inputs))

    with pytest.raises(RuntimeError, match=r"^meta meta meta meta meta$"):
        beam_search(
            step, max_new_tokens=[3], start_token_id=START, eos_token_ids=[1], settings=BeamSettings(2), device="meta"
        )


@pytest.mark.parametrize(("num_end_tokens", "candidates"), [(1, 6), (2, 9), (4, 15)])
def test_each_step_considers_enough_candidates_to_continue_every_beam(num_end_tokens: int, candidates: int) -> None:
    searched = _Search([4], START, range(1, 1 + num_end_tokens), BeamSettings(3), torch.device("cpu"))
    scores, tokens, beams = searched._candidates(Shifted(torch.randn(1, 40).log_softmax(1)))
    assert scores.shape == tokens.shape == beams.shape == (1, candidates)


class CountedTables(Tables):
    """Tables that know the longest prefix they were asked about, which is the number of steps of a search."""

    longest = 0

    def next_log_probs(self, sentence: int, prefix: Sequence[int]) -> Tensor:
        self.longest = max(self.longest, len(prefix))
        return super().next_log_probs(sentence, prefix)


@pytest.mark.parametrize("early_stopping", [True, False, "never"])
@pytest.mark.parametrize("length_penalty", [0.0, 0.7, 1.0, 2.0, -1.0])
def test_a_search_stops_at_the_same_step_as_the_plain_search(
    early_stopping: EarlyStopping, length_penalty: float
) -> None:
    for seed in range(20):
        tables, plain = (CountedTables(1, 8, seed=seed, spread=2.5) for _ in range(2))
        how = BeamSettings(2, length_penalty, early_stopping, num_hypotheses=2)
        found = search(tables, [9], (1,), how)[0]
        expected = plain_search(plain, 0, 9, (1,), how)
        assert [h.token_ids for h in found] == [ids for _, ids, _ in expected]
        assert tables.longest == plain.longest


@pytest.mark.parametrize("early_stopping", [True, False, "never"])
def test_greedy_search_stops_at_the_first_end_token(early_stopping: EarlyStopping) -> None:
    for seed in range(20):
        tables = CountedTables(1, 5, seed=seed)
        found = search(tables, [12], (1,), BeamSettings(1, length_penalty=5.0, early_stopping=early_stopping))[0]
        assert tables.longest == len(found[0].token_ids)
        assert found[0].token_ids == greedy(tables, 0, 12, (1,))


def test_a_forced_first_token_leaves_one_of_two_beams_alive() -> None:
    def forced(token_ids: Tensor, parents: Tensor, prefixes: Tensor, is_last: Tensor, sentences: Tensor) -> Tensor:
        log_probs = torch.full((len(token_ids), 5), -math.inf)
        if prefixes.shape[1] == 1:
            log_probs[:, 3] = 0.0
        else:
            log_probs[:, 1], log_probs[:, 2] = -0.2, -2.0
        return log_probs

    how = BeamSettings(num_beams=2, num_hypotheses=2)
    found = beam_search(forced, max_new_tokens=[3], start_token_id=START, eos_token_ids=[1], settings=how)[0]
    assert [h.token_ids for h in found] == [(3, 1), (3, 2, 1)]
    assert [h.log_probability for h in found] == pytest.approx([-0.2, -2.2])


def test_one_hypothesis_is_returned_even_if_all_are_impossible() -> None:
    def impossible(token_ids: Tensor, parents: Tensor, prefixes: Tensor, is_last: Tensor, sentences: Tensor) -> Tensor:
        return torch.full((len(token_ids), 6), -2.0e8)

    how = BeamSettings(num_beams=2, num_hypotheses=2)
    found = beam_search(impossible, max_new_tokens=[2], start_token_id=START, eos_token_ids=[1], settings=how)[0]
    assert len(found) == 1
