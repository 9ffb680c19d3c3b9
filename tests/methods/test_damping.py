"""Out-of-domain damping: stages, running distances and the weights after damping."""

from typing import Any

import numpy as np
import pytest
import torch

from nearmt.methods.damping import Damping, DistanceTracker, damped, stages
from nearmt.methods.metak import MetaK
from nearmt.methods.mixture import MixtureWeights
from nearmt.methods.network_file import load_network, network_bytes
from nearmt.methods.retrieved import RunningDistance, running_distance
from nearmt.retrieval.neighbors import Neighbors
from synthetic import bare, even_damping


def test_stages_follow_the_number_of_tokens():
    lengths = torch.tensor([0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 20, 21, 500])
    assert stages(lengths).tolist() == [0, 0, 1, 2, 3, 4, 4, 5, 5, 6, 6, 7, 7]


def some_neighbors(distances: list[float], is_found: list[bool]) -> Neighbors:
    found = torch.tensor(is_found).unsqueeze(1)
    ids = torch.zeros(len(distances), 1, dtype=torch.int64)
    return Neighbors(torch.tensor(distances).unsqueeze(1), ids, ids.masked_fill(~found, -1), found)


def test_running_distance_is_the_mean_so_far_and_skips_tokens_without_neighbors():
    near = some_neighbors([np.e - 1, 99.0, np.e**3 - 1, np.e**5 - 1], [True, False, True, True])
    for sentence_ids, means, lengths in (
        (None, [1, 1, 2, 3], [1, 1, 2, 3]),
        (torch.tensor([0, 0, 4, 4]), [1, 1, 3, 4], [1, 1, 1, 2]),
        (torch.tensor([1, 2, 3, 4]), [1, 0, 3, 5], [1, 0, 1, 1]),
    ):
        running = running_distance(near, 1.0, sentence_ids)
        assert running.mean.tolist() == pytest.approx(means)
        assert running.length.tolist() == lengths


def test_running_distances_follow_the_beams():
    tracker = DistanceTracker(1.0)
    tracker.reorder(torch.tensor([0, 1]))
    assert tracker.add(some_neighbors([np.e - 1, np.e**3 - 1], [True, True])).mean.tolist() == [1, 3]
    tracker.reorder(torch.tensor([1, 1]))  # both rows continue the second
    after = tracker.add(some_neighbors([np.e**5 - 1, np.e - 1], [True, False]))
    assert after.mean.tolist() == pytest.approx([4, 3])
    assert after.length.tolist() == [2, 1]


@pytest.mark.parametrize("damping", [None, even_damping(1.0, 2.0, 4.0)])
def test_a_saved_network_keeps_its_damping(tmp_path, damping):
    from nearmt.methods.robust import Robust

    for number, network in enumerate((MetaK(4, 1.0), Robust(4))):
        network.damping = damping
        path = tmp_path / f"{number}.safetensors"
        path.write_bytes(network_bytes(network))
        again = load_network(path)
        assert again.damping == damping
        assert again.settings == network.settings


def test_the_added_log_odds_are_limited():
    running = RunningDistance(torch.tensor([1e3, 7.0, 0.0]), torch.tensor([1, 1, 1]))
    assert even_damping(4.0, 6.0, 4.0).added_log_odds(running).tolist() == [30.0, 4.0, 0.0]


@pytest.mark.parametrize("name", ["middle", "far"])
def test_damping_needs_one_value_per_stage(name):
    limits: dict[str, Any] = {"middle": (1.0,) * 8, "far": (2.0,) * 8, name: (1.0,) * 7}
    with pytest.raises(ValueError, match=f"^damping needs 8 values of {name}, one per stage, not 7$"):
        Damping(1.0, **limits, strength=1.0)
    assert getattr(Damping(1.0, **{**limits, name: [3.0] * 8}, strength=1.0), name) == (3.0,) * 8


def test_damped_rows_follow_the_formula_and_the_others_stay_bit_for_bit():
    torch.manual_seed(3)
    sizes = torch.rand(3, 4).softmax(1)
    knn = torch.rand(3, 4).softmax(1) * (1 - sizes[:, :1])
    weights = MixtureWeights(sizes[:, 0], knn, (0, 1, 2, 4), sizes)
    running = RunningDistance(torch.tensor([7.0, 2.0, 5.5]), torch.tensor([3, 3, 3]))
    after = even_damping(4.0, 6.0, 3.0).applied(weights, running)
    kept = np.exp(-np.array([3.0, 0.0, 0.75]))  # the odds of the neighbours are multiplied by this
    share = sizes[:, 0].double().numpy()
    expected = share / (share + (1 - share) * kept)
    np.testing.assert_allclose(after.nmt_share, expected, rtol=1e-5)
    factor = (1 - expected) / (1 - share)
    np.testing.assert_allclose(after.neighbor_weights, knn.numpy() * factor[:, None], rtol=1e-5)
    np.testing.assert_allclose(after.size_probabilities[:, 1:], sizes[:, 1:].numpy() * factor[:, None], rtol=1e-5)
    assert torch.equal(after.size_probabilities[:, 0], after.nmt_share)
    assert after.sizes == (0, 1, 2, 4)
    for name in ("nmt_share", "neighbor_weights", "size_probabilities"):
        assert torch.equal(getattr(after, name)[1], getattr(weights, name)[1])


def test_weights_are_damped_by_the_running_distance_if_there_is_damping():
    near = some_neighbors([np.e**7 - 1, np.e**2 - 1, np.e**9 - 1], [True, True, True])
    weights = MixtureWeights(torch.full((3,), 0.5), torch.full((3, 1), 0.5), (0, 1), torch.full((3, 2), 0.5))
    assert damped(None, weights, bare(near)) is weights
    for scale in (1.0, 2.0):
        damping = even_damping(2.0, 4.0, 3.0, scale)
        expected = damping.applied(weights, running_distance(near, scale))
        found = damped(damping, weights, bare(near))
        assert torch.equal(found.nmt_share, expected.nmt_share)
        assert torch.equal(found.neighbor_weights, expected.neighbor_weights)
        assert found.nmt_share[0] > 0.9
