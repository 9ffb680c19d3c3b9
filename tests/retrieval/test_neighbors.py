"""Sorting of search results against plain Python, and the values derived from distances."""

import math

import numpy as np
import pytest
import torch

from nearmt.retrieval.neighbors import Neighbors, distance_weights, nearest_first, repeat_last

COLUMNS = ("squared_distances", "token_ids", "entry_ids", "found")


def some_neighbors() -> Neighbors:
    ids = torch.tensor([[4, 0, 7], [2, 9, -1], [-1, -1, -1], [5, -1, -1]])
    distances = torch.tensor([[1.0, 2.0, 4.0], [0.5, 3.0, 3.0], [0.0, 0.0, 0.0], [6.0, 6.0, 6.0]])
    return Neighbors(distances, ids + 10, ids, ids >= 0)


def test_fewer_neighbors_of_the_same_rows():
    whole = some_neighbors()
    assert (len(whole), whole.max_k) == (4, 3)
    part = whole.nearest(2)
    assert (len(part), part.max_k) == (4, 2)
    for name in COLUMNS:
        assert torch.equal(getattr(part, name), getattr(whole, name)[:, :2])
    assert whole.nearest(3) is whole
    assert whole.nearest(4) is whole


@pytest.mark.parametrize("rows", [torch.tensor([3, 1]), torch.tensor([True, False, False, True]), slice(1, 3)])
def test_some_rows_with_all_their_neighbors(rows):
    part = some_neighbors().rows(rows)
    for name in COLUMNS:
        assert torch.equal(getattr(part, name), getattr(some_neighbors(), name)[rows])


def sorted_row(k, distances, ids, tokens):
    """What one row should become: found ones by distance and id, then missing ones at the last distance."""
    found = sorted((d, i, t) for d, i, t in zip(distances, ids, tokens, strict=True) if i >= 0)[:k]
    missing = k - len(found)
    last = found[-1][0] if found else 0.0
    return (
        [d for d, _, _ in found] + [last] * missing,
        [i for _, i, _ in found] + [-1] * missing,
        [t for *_, t in found],
    )


ROWS = [
    # distances, entry ids; tokens are the ids + 100
    ([3.0, 1.0, 2.0, 5.0], [8, 6, 0, 3]),
    ([1.0, 2.0, 3.0, 4.0], [1, 2, 3, 4]),
    ([2.0, 2.0, 2.0, 2.0], [9, 4, 7, 1]),
    ([1.0, 2.0, 2.0, 3.0], [5, 8, 2, 0]),
    ([0.0, 0.0, 1.0, 1.0], [-1, 3, -1, 0]),
    ([7.0, 6.0, 5.0, 4.0], [-1, -1, -1, -1]),
    ([9.0, 1.0, 1.0, 1.0], [2, -1, -1, 6]),
    ([4.0, 3.0, 3.0, 3.0], [0, 3, 2, 1]),
]


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5, 9])
@pytest.mark.parametrize("rows", [*([row] for row in range(len(ROWS))), [0, 1], [1, 2, 3], list(range(len(ROWS)))])
def test_candidates_are_sorted_by_distance_and_then_by_entry_id(k, rows):
    distances, ids = ([ROWS[row][part] for row in rows] for part in (0, 1))
    tokens = [[i + 100 for i in row] for row in ids]
    columns = np.array(distances, np.float32), np.array(ids), np.array(tokens)
    found = nearest_first(k, *columns)
    values = np.arange(100, 110, dtype=np.int32)
    by_entry = Neighbors.sorted_entries(torch.from_numpy(columns[0]), torch.from_numpy(columns[1]), values, k)
    by_token = Neighbors.sorted_from(
        torch.from_numpy(columns[0]), torch.from_numpy(columns[2]), torch.from_numpy(columns[1]), k
    )
    for at, row in enumerate(rows):
        expected = sorted_row(k, ROWS[row][0], ROWS[row][1], tokens[at])
        assert found[0][at].tolist() == expected[0]
        assert found[1][at].tolist() == expected[1]
        assert found[2][at].tolist()[: len(expected[2])] == expected[2]
        for neighbors in (by_entry, by_token):
            assert neighbors.squared_distances[at].tolist() == expected[0]
            assert neighbors.entry_ids[at].tolist() == expected[1]
            assert neighbors.found[at].tolist() == [i >= 0 for i in expected[1]]
            assert neighbors.token_ids[at].tolist()[: len(expected[2])] == expected[2]
    for neighbors in (by_entry, by_token):
        types = [getattr(neighbors, name).dtype for name in COLUMNS]
        assert types == [torch.float32, torch.int64, torch.int64, torch.bool]
    assert all(column.shape == (len(rows), k) and column.flags["C_CONTIGUOUS"] for column in found)


def test_padded_slots_have_token_zero():
    found = nearest_first(3, np.array([[1.0]], np.float32), np.array([[4]]), np.array([[9]]))
    assert found[2].tolist() == [[9, 0, 0]]


def test_a_tie_at_the_kth_place_is_decided_by_the_entry_id():
    found = nearest_first(2, np.array([[1.0, 2.0, 2.0, 2.0]], np.float32), np.array([[9, 8, 7, 3]]))
    assert found[1].tolist() == [[9, 3]]


def test_the_last_found_value_is_repeated_in_missing_slots_of_its_row():
    values = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0], [0.5, 1.5, 2.5]])
    repeated = repeat_last(values, some_neighbors().found)
    assert repeated.tolist() == [[1.0, 2.0, 3.0], [4.0, 5.0, 5.0], [7.0, 7.0, 7.0], [0.5, 0.5, 0.5]]
    assert repeat_last(values, torch.ones(4, 3, dtype=torch.bool)) is values


def test_weights_fall_with_the_distance_from_the_nearest_neighbor():
    weights = distance_weights(some_neighbors(), 2.0)
    expected = [
        [1.0, math.exp(-0.5), math.exp(-1.5)],
        [1.0, math.exp(-1.25), 0.0],
        [0.0, 0.0, 0.0],
        [1.0, 0.0, 0.0],
    ]
    np.testing.assert_allclose(weights, expected, rtol=1e-6)
