"""Which sentences of a dev set are held out."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearmt.training.devset import evenly, held_out_blocks
from properties import examples


@examples(200)
@given(st.integers(1, 3000), st.floats(0.01, 0.9), st.integers(0, 99))
def test_held_out_sentences_are_blocks_of_the_wanted_size(num_sentences, share, seed):
    chosen = held_out_blocks(num_sentences, share, seed)
    assert chosen == sorted(set(chosen))
    assert len(chosen) == max(1, round(num_sentences * share))
    assert 0 <= chosen[0] <= chosen[-1] < num_sentences
    num_blocks = 1 + sum(after != before + 1 for before, after in pairwise(chosen))
    assert num_blocks <= max(1, min(5, len(chosen) // 10))


def test_blocks_come_from_all_parts_of_the_set():
    chosen = held_out_blocks(1000, 0.2)
    assert all(sum(200 * part <= i < 200 * (part + 1) for i in chosen) == 40 for part in range(5))


def test_the_seed_moves_the_blocks():
    assert held_out_blocks(1000, 0.2, 1) == held_out_blocks(1000, 0.2, 1) != held_out_blocks(1000, 0.2, 2)


@pytest.mark.parametrize(("count", "expected"), [(1, [5]), (2, [5, 8]), (3, [5, 7, 8]), (9, [5, 6, 7, 8, 9])])
def test_a_few_of_them_come_from_everywhere(count, expected):
    found = evenly([5, 6, 7, 8, 9], count)
    assert found[0] == 5
    assert len(found) == len(expected)
    assert set(found) <= {5, 6, 7, 8, 9}
