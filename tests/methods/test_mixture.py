"""The mixture against a small NumPy reference, on random input and on edge cases."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nearmt.errors import SettingError
from nearmt.methods.mixture import (
    MixtureWeights,
    Uniform,
    Vanilla,
    add_knn_mass,
    distinct_counts,
    mix,
    neighbor_counts,
    size_likelihoods,
    weights_from_sizes,
)
from nearmt.retrieval.neighbors import Neighbors
from properties import examples
from synthetic import bare

VOCABULARY = 11


def reference(p_nmt, distances, tokens, found, size_probabilities, sizes, temperature):
    """p(y) = p(0)·p_NMT(y) + Σ_k p(k)·p_kNN,k(y), as in the paper."""
    out = np.zeros_like(p_nmt)
    for row in range(len(p_nmt)):
        real = [i for i in range(len(tokens[row])) if found[row][i]]
        if not real:
            out[row] = p_nmt[row]
            continue
        out[row] = size_probabilities[row][0] * p_nmt[row]
        for k, share in zip(sizes[1:], size_probabilities[row][1:], strict=True):
            votes = np.zeros(p_nmt.shape[1])
            for i in real[:k]:
                votes[tokens[row][i]] += np.exp(-(distances[row][i] - distances[row][0]) / temperature)
            out[row] += share * votes / votes.sum()
    return out


@st.composite
def cases(draw):
    max_k = draw(st.integers(1, 9))
    num_rows = draw(st.integers(1, 5))
    seed = draw(st.integers(0, 2**31))
    rng = np.random.default_rng(seed)
    num_found = rng.integers(0, max_k + 1, num_rows)
    found = np.arange(max_k)[None, :] < num_found[:, None]
    scale = draw(st.sampled_from([0.0, 1.0, 100.0, 1e4]))  # 0: exact repeats, all distances 0
    distances = np.sort(rng.random((num_rows, max_k)) * scale, axis=1)
    distances = np.round(distances, draw(st.sampled_from([0, 3])))  # ties
    tokens = rng.integers(0, draw(st.integers(1, VOCABULARY)), (num_rows, max_k))  # token id 0 included
    return max_k, distances, tokens, found, rng


def neighbors_of(distances, tokens, found):
    ids = np.where(found, np.arange(found.size).reshape(found.shape), -1)
    return Neighbors.sorted_from(
        torch.tensor(distances, dtype=torch.float32), torch.tensor(tokens), torch.tensor(ids), distances.shape[1]
    )


def mixed(p_nmt, weights, neighbors):
    k = weights.neighbor_weights.shape[1]
    return mix(torch.tensor(p_nmt, dtype=torch.float32).log(), weights, neighbors.token_ids[:, :k]).exp().numpy()


@examples(200)
@given(cases(), st.sampled_from([1.0, 10.0, 100.0]))
def test_adaptive_mixture_equals_the_reference(case, temperature):
    max_k, distances, tokens, found, rng = case
    sizes = neighbor_counts(max_k)
    p_sizes = rng.dirichlet(np.ones(len(sizes)), len(tokens))
    p_nmt = rng.dirichlet(np.ones(VOCABULARY), len(tokens))
    neighbors = neighbors_of(distances, tokens, found)
    weights = weights_from_sizes(neighbors, torch.tensor(p_sizes, dtype=torch.float32), sizes, temperature)
    expected = reference(p_nmt, distances, tokens, found, p_sizes, sizes, temperature)
    np.testing.assert_allclose(mixed(p_nmt, weights, neighbors), expected, atol=1e-5)
    total = weights.nmt_share + weights.neighbor_weights.sum(1)
    np.testing.assert_allclose(total.numpy(), 1.0, atol=1e-5)


@examples(100)
@given(cases(), st.floats(0, 1))
def test_vanilla_and_uniform_equal_the_reference(case, share):
    max_k, distances, tokens, found, rng = case
    p_nmt = rng.dirichlet(np.ones(VOCABULARY), len(tokens))
    neighbors = neighbors_of(distances, tokens, found)
    weights = Vanilla(max_k, 10.0, share).weigh(bare(neighbors))
    shares = np.tile([1 - share, share], (len(tokens), 1))
    expected = reference(p_nmt, distances, tokens, found, shares, (0, max_k), 10.0)
    np.testing.assert_allclose(mixed(p_nmt, weights, neighbors), expected, atol=1e-5)
    sizes = neighbor_counts(max_k)
    weights = Uniform(max_k, 10.0).weigh(bare(neighbors))
    shares = np.full((len(tokens), len(sizes)), 1 / len(sizes))
    expected = reference(p_nmt, distances, tokens, found, shares, sizes, 10.0)
    np.testing.assert_allclose(mixed(p_nmt, weights, neighbors), expected, atol=1e-5)


@examples(50)
@given(cases())
def test_size_likelihoods_are_the_retrieved_distributions_at_the_gold_token(case):
    max_k, distances, tokens, found, rng = case
    sizes = neighbor_counts(max_k)
    gold = rng.integers(0, VOCABULARY, len(tokens))
    neighbors = neighbors_of(distances, tokens, found)
    got = size_likelihoods(neighbors, torch.tensor(gold), sizes, 10.0).numpy()
    p_nmt = np.zeros((len(tokens), VOCABULARY))
    for column, k in enumerate(sizes[1:]):
        only_k = np.zeros((len(tokens), len(sizes)))
        only_k[:, column + 1] = 1
        expected = reference(p_nmt, distances, tokens, found, only_k, sizes, 10.0)
        np.testing.assert_allclose(got[:, column], expected[np.arange(len(gold)), gold], atol=1e-5)
        assert k <= max_k


def test_zero_knn_share_leaves_the_models_numbers_bit_for_bit():
    log_probs = torch.randn(4, VOCABULARY).log_softmax(1)
    neighbors = neighbors_of(np.sort(np.random.rand(4, 3)), np.random.randint(0, 9, (4, 3)), np.ones((4, 3), bool))
    weights = Vanilla(3, 10.0, 0.0).weigh(bare(neighbors))
    assert torch.equal(mix(log_probs.clone(), weights, neighbors.token_ids), log_probs)


def test_missing_neighbor_gets_no_weight_and_repeats_the_last_found_features():
    neighbors = neighbors_of(
        np.array([[1.0, 2.0, 9.0, 9.0]]), np.array([[5, 6, 7, 7]]), np.array([[True, True, False, False]])
    )
    weights = Vanilla(4, 10.0, 0.5).weigh(bare(neighbors))
    assert weights.neighbor_weights[0, 2:].tolist() == [0, 0]
    assert neighbors.squared_distances[0].tolist() == [1.0, 2.0, 2.0, 2.0]
    assert distinct_counts(neighbors)[0].tolist() == [1, 2, 2, 2]


def test_a_row_without_neighbors_is_the_model_alone():
    neighbors = neighbors_of(np.zeros((1, 2)), np.zeros((1, 2), int), np.zeros((1, 2), bool))
    weights = Vanilla(2, 10.0, 0.9).weigh(bare(neighbors))
    assert weights.nmt_share.tolist() == [1.0]
    assert weights.neighbor_weights.tolist() == [[0.0, 0.0]]


def test_duplicates_at_distance_zero_do_not_leak_weight_beyond_k():
    neighbors = neighbors_of(np.zeros((1, 4)), np.array([[3, 4, 4, 4]]), np.ones((1, 4), bool))
    weights = Vanilla(1, 10.0, 1.0).weigh(bare(neighbors))
    probabilities = mix(torch.full((1, VOCABULARY), -1.0), weights, neighbors.token_ids[:, :1]).exp()
    assert probabilities[0, 3] == pytest.approx(1.0)
    assert probabilities[0, 4] == pytest.approx(0.0)


def test_distinct_counts_treat_token_zero_like_any_other():
    neighbors = neighbors_of(np.arange(4.0)[None], np.array([[0, 5, 0, 0]]), np.ones((1, 4), bool))
    assert distinct_counts(neighbors)[0].tolist() == [1, 2, 2, 2]


def test_equally_near_neighbors_come_in_the_order_of_their_entry_ids():
    neighbors = Neighbors.sorted_from(
        torch.tensor([[2.0, 1.0, 1.0]]), torch.tensor([[7, 8, 9]]), torch.tensor([[1, 5, 3]]), 3
    )
    assert neighbors.entry_ids.tolist() == [[3, 5, 1]]
    assert neighbors.token_ids.tolist() == [[9, 8, 7]]


@examples(200)
@given(st.data(), st.integers(1, 6), st.integers(1, 3))
def test_neighbors_come_nearest_first_from_candidates_in_any_order(data, k, rows):
    width = data.draw(st.integers(0, 8))
    distances = data.draw(
        st.lists(st.lists(st.integers(0, 9), min_size=width, max_size=width), min_size=rows, max_size=rows)
    )
    order = data.draw(st.sampled_from([sorted, list, lambda row: [*sorted(row)[:-1], 0]]))
    distances = [order(row)[:width] for row in distances]
    ids = [data.draw(st.permutations(range(width))) for _ in range(rows)]
    ids = [[i if data.draw(st.booleans()) or i % 2 else -1 for i in row] for row in ids]
    if any(len(row) != width for row in distances):
        return
    shape = (rows, width)
    found = Neighbors.sorted_from(
        torch.tensor(distances, dtype=torch.float32).reshape(shape),
        torch.tensor(ids).reshape(shape).clamp_min(0) + 7,
        torch.tensor(ids).reshape(shape),
        k,
    )
    for row in range(rows):
        expected = sorted((d, i) for d, i in zip(distances[row], ids[row], strict=True) if i >= 0)[:k]
        count = len(expected)
        assert found.found[row].tolist() == [True] * count + [False] * (k - count)
        assert found.entry_ids[row, :count].tolist() == [i for _, i in expected]
        assert found.squared_distances[row, :count].tolist() == [d for d, _ in expected]
        assert found.token_ids[row, :count].tolist() == [i + 7 for _, i in expected]


@pytest.mark.parametrize(("max_k", "sizes"), [(1, (0, 1)), (8, (0, 1, 2, 4, 8)), (6, (0, 1, 2, 4, 6))])
def test_sizes_are_powers_of_two_up_to_k(max_k, sizes):
    assert neighbor_counts(max_k) == sizes


def test_invalid_settings_are_refused():
    for make in (lambda: Vanilla(0, 1, 0.5), lambda: Vanilla(1, 0, 0.5), lambda: Vanilla(1, 1, 1.5)):
        with pytest.raises(SettingError):
            make()


@pytest.mark.parametrize("share", [1.0, 0.5, 1e-6, 0.0])
def test_added_mass_and_shift_together_give_the_mixture(share):
    torch.manual_seed(4)
    own = torch.randn(5, VOCABULARY).softmax(dim=1)
    token_ids = torch.randint(0, VOCABULARY, (5, 4))
    knn_weights = (1 - share) * torch.rand(5, 4).softmax(dim=1)
    shares = torch.full((5,), share)
    weights = MixtureWeights(shares, knn_weights, (0, 4), torch.stack((shares, 1 - shares), dim=1))
    expected = (share * own.double()).scatter_add_(1, token_ids, knn_weights.double())
    log_probs = own.log()
    shift = add_knn_mass(log_probs, weights, token_ids)
    torch.testing.assert_close((log_probs + shift[:, None]).exp().double(), expected, atol=2e-6, rtol=2e-5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Vanilla(0, 1, 0.5), "the number of neighbours must be between 1 and 1024, not 0"),
        (lambda: Uniform(1025, 1), "the number of neighbours must be between 1 and 1024, not 1025"),
        (lambda: Vanilla(1, 0.0, 0.5), "`temperature` must be a number above 0, not 0.0"),
        (lambda: Uniform(1, float("inf")), "`temperature` must be a number above 0, not inf"),
        (lambda: Vanilla(1, 1, 1.5), "`knn_share` must be between 0 and 1, not 1.5"),
        (lambda: Vanilla(1, 1, -0.1), "`knn_share` must be between 0 and 1, not -0.1"),
    ],
)
def test_a_refusal_names_the_setting_and_its_value(make, message):
    with pytest.raises(SettingError) as refused:
        make()
    assert str(refused.value) == message


def test_limits_of_settings_are_accepted():
    assert Vanilla(1024, 1e-9, 0.0).max_k == 1024
    assert Vanilla(1, 0.5, 1.0).max_k == 1


def test_weights_keep_the_sizes_and_their_probabilities():
    neighbors = neighbors_of(np.zeros((2, 4)), np.zeros((2, 4), int), np.array([[True] * 4, [False] * 4]))
    weights = Uniform(4, 1.0).weigh(bare(neighbors))
    assert weights.sizes == (0, 1, 2, 4)
    assert weights.size_probabilities.tolist() == [[0.25] * 4, [1, 0, 0, 0]]


def test_weights_move_to_another_device_with_all_their_parts():
    neighbors = neighbors_of(np.zeros((2, 4)), np.zeros((2, 4), int), np.ones((2, 4), bool))
    moved = Uniform(4, 1.0).weigh(bare(neighbors)).to(torch.device("meta"))
    parts = (moved.nmt_share, moved.neighbor_weights, moved.size_probabilities)
    assert [part.device.type for part in parts] == ["meta"] * 3
    assert [part.shape for part in parts] == [(2,), (2, 4), (2, 4)]
    assert moved.sizes == (0, 1, 2, 4)


def test_distinct_counts_of_many_neighbors_equal_a_set_that_grows():
    rng = np.random.default_rng(5)
    tokens = rng.integers(0, 30, (3, 200))
    found = np.arange(200)[None] < np.array([[200], [120], [0]])
    counts = distinct_counts(neighbors_of(np.sort(rng.random((3, 200))), tokens, found))
    for row, number in enumerate((200, 120, 0)):
        expected = [len(set(tokens[row, : min(i + 1, number)])) for i in range(200)]
        assert counts[row].tolist() == expected
