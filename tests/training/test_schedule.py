"""The training schedule, on a learner whose held-out losses are given in advance."""

import contextlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from nearmt.errors import SettingError
from nearmt.training.schedule import Batches, Best, TrainingSettings, check_parts, fit, one_thread
from synthetic import make_cache

SENTENCE_IDS = torch.tensor([2, 0, 0, 1, 2, 1, 1])


class ScriptedLearner:
    """Returns the given losses, one list per check, and records rows and rates of every step.

    The state of a network is its number and the number of steps it was trained for.
    """

    def __init__(self, losses: Sequence[Sequence[float]]) -> None:
        self.num_networks = len(losses[0])
        self.rows: list[list[int]] = []
        self.rates: list[list[float]] = []
        self._losses = iter(losses)

    def step(self, rows: torch.Tensor, rates: torch.Tensor) -> None:
        self.rows.append(rows.tolist())
        self.rates.append(rates.tolist())

    def held_out_losses(self) -> list[float]:
        return list(next(self._losses))

    def state_of(self, number: int) -> tuple[int, int]:
        return number, len(self.rows)


def run(
    losses: Sequence[Sequence[float]], **settings: Any
) -> tuple[ScriptedLearner, list[Best[Any]], list[tuple[Any, ...]]]:
    """Train with a check after every step, unless `settings` says otherwise."""
    learner, checks = ScriptedLearner(losses), []
    usual = {"steps": len(losses), "first_check": 1, "check_every": 1, "learning_rate": 8.0, "lowest_rate": 1.0}
    best = fit(
        learner, SENTENCE_IDS, TrainingSettings(**{**usual, **settings}), lambda step, loss: checks.append((step, loss))
    )
    return learner, best, checks


@pytest.mark.parametrize(
    ("steps", "first_check", "checked"),
    [(20, 10, [10, 15, 20]), (20, 11, [15, 20]), (23, 10, [10, 15, 20, 23]), (4, 10, [4]), (10, 1, [5, 10])],
)
def test_losses_are_checked_at_regular_steps_from_the_first_check_and_after_the_last_step(steps, first_check, checked):
    losses = [[float(-number)] for number in range(len(checked))]
    learner, _, checks = run(losses, steps=steps, first_check=first_check, check_every=5)
    assert [step for step, _ in checks] == checked
    assert len(learner.rows) == steps


def test_the_state_with_the_lowest_loss_is_kept_and_a_tie_keeps_the_earlier_one():
    _, best, checks = run([[3.0], [1.0], [2.0], [1.0]])
    assert best == [Best((0, 2), 1.0, 2)]
    assert checks == [(1, 3.0), (2, 1.0), (3, 1.0), (4, 1.0)]


def test_each_network_keeps_its_own_best_state_and_the_lowest_loss_of_all_is_reported():
    _, best, checks = run([[3.0, 5.0], [4.0, 2.0], [1.0, 1.5], [1.0, 6.0]])
    assert best == [Best((0, 3), 1.0, 3), Best((1, 3), 1.5, 3)]
    assert checks == [(1, 3.0), (2, 2.0), (3, 1.0), (4, 1.0)]


def test_the_learning_rate_is_halved_after_checks_without_improvement_down_to_the_lowest_rate():
    learner, _, _ = run([[1.0]] * 9, halve_after=2, stop_after=100, lowest_rate=3.0)
    assert [rate for (rate,) in learner.rates] == [8, 8, 8, 4, 4, 3, 3, 3, 3]


def test_checks_before_the_first_finite_loss_count_as_checks_without_improvement():
    learner, best, _ = run([[math.nan], [math.nan], [1.0]], halve_after=2)
    assert [rate for (rate,) in learner.rates] == [8, 8, 4]
    assert best == [Best((0, 3), 1.0, 3)]


def test_an_improvement_starts_the_count_of_checks_again():
    losses = [[5.0], [6.0], [4.0], [5.0], [5.0], [5.0], [3.0], [3.0], [3.0], [3.0]]
    learner, best, _ = run(losses, halve_after=2, stop_after=4)
    assert [rate for (rate,) in learner.rates] == [8, 8, 8, 8, 8, 4, 4, 4, 4, 2]
    assert best == [Best((0, 7), 3.0, 7)]


def test_training_stops_after_checks_without_improvement():
    learner, best, checks = run([[1.0]] * 20, halve_after=3, stop_after=7)
    assert len(learner.rates) == 8
    assert checks[-1] == (8, 1.0)
    assert best[0].step == 1


def test_a_network_that_stopped_stays_unchanged_while_another_improves():
    losses = [[1.0, 9.0 - number] for number in range(9)]
    learner, best, _ = run(losses, halve_after=2, stop_after=3)
    assert [first for first, _ in learner.rates] == [8, 8, 8, 4, 0, 0, 0, 0, 0]
    assert {second for _, second in learner.rates} == {8}
    assert best[1].step == 9


def test_training_goes_on_until_every_network_has_stopped():
    losses = [[1.0, 3.0], [1.0, 2.0], [1.0, 2.0], [1.0, 2.0], [1.0, 2.0], [1.0, 2.0]]
    learner, _, _ = run(losses, halve_after=50, stop_after=2)
    assert learner.rates == [[8, 8], [8, 8], [8, 8], [0, 8]]


def test_a_loss_below_zero_is_reported_as_zero():
    _, best, _ = run([[0.5], [-1e-7]])
    assert best == [Best((0, 2), 0.0, 2)]


@pytest.mark.parametrize("losses", [[[math.nan]] * 3, [[1.0, math.nan]] * 3, [[math.inf]] * 3])
def test_a_network_without_a_finite_loss_fails_the_training(losses):
    with pytest.raises(SettingError, match=r"^training failed because the retrieved distances or probabilities are"):
        run(losses)


def test_batches_follow_the_settings():
    learner, _, _ = run([[1.0]] * 5, batch_sentences=2, seed=3)
    expected = Batches(SENTENCE_IDS, 2, 3)
    assert learner.rows == [expected.next().tolist() for _ in range(5)]


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_every_epoch_has_each_sentence_once_in_a_random_order(size):
    batches, rng = Batches(SENTENCE_IDS, size, seed=7), np.random.default_rng(7)
    rows_of = [[1, 2], [3, 5, 6], [0, 4]]
    for _ in range(3):
        order = rng.permutation(3).tolist()
        for start in range(0, 3, size):
            expected = [row for sentence in order[start : start + size] for row in rows_of[sentence]]
            assert batches.next().tolist() == expected


def test_training_uses_one_thread_and_restores_their_number():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        inside = 0
        with contextlib.suppress(RuntimeError), one_thread():
            inside = torch.get_num_threads()
            raise RuntimeError
        assert inside == 1
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_an_empty_part_is_refused_and_one_token_is_enough():
    one, empty = make_cache(1), make_cache(1).split([])[1]
    check_parts(one, one)
    for train, held_out in ((one, empty), (empty, one)):
        with pytest.raises(SettingError, match=r"^training needs at least two sentences, and preferably a few hu"):
            check_parts(train, held_out)
