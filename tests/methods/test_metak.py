"""Meta-k: the network as in the paper, and what it learns."""

from dataclasses import replace

import pytest
import torch

from nearmt.errors import SettingError, StoreDamagedError
from nearmt.methods.metak import MetaK
from nearmt.methods.mixture import Vanilla
from nearmt.methods.network_file import load_network, network_bytes
from nearmt.training.schedule import Batches, TrainingSettings
from nearmt.training.train_metak import distance_scale, likelihood_table, train_metak
from nearmt.training.tune_vanilla import rank_vanilla, temperatures, vanilla_loss
from synthetic import bare, make_cache


def test_the_network_has_the_papers_number_of_parameters():
    assert sum(p.numel() for p in MetaK(32, 10.0).parameters()) == 2311


def test_the_first_layer_is_initialised_block_by_block():
    torch.manual_seed(1)
    weight = MetaK(32, 10.0, hidden=512).layers[0].weight
    assert isinstance(weight, torch.Tensor)
    by_hand = (2 / (32 + 512)) ** 0.5  # xavier-normal of one block; of both together it would be 3 % less
    assert weight[:, :32].std().item() == pytest.approx(0.01 * by_hand, rel=0.015)
    assert weight[:, 32:].std().item() == pytest.approx(0.1 * by_hand, rel=0.015)


def test_whole_sentences_are_held_out():
    train, held = make_cache().split([3, 7])
    assert set(held.sentence_ids.tolist()) == {3, 7}
    assert not {3, 7} & set(train.sentence_ids.tolist())
    assert len(train) + len(held) == 1500


def test_a_training_step_equals_torchs_adam_with_clipping():
    train, held = make_cache().split(range(30))
    settings = TrainingSettings(steps=20, first_check=20, check_every=20)
    (trained,) = train_metak(train, held, max_k=8, temperatures=[10.0], settings=settings)
    torch.manual_seed(settings.seed)
    network = MetaK(8, 10.0, distance_scale=distance_scale(train))
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-4, betas=(0.9, 0.98))
    inputs, table = network.inputs(train.neighbors), likelihood_table(train, network.sizes, 10.0)
    batches = Batches(train.sentence_ids, 32, settings.seed)
    for _ in range(20):
        rows = batches.next()
        optimizer.zero_grad()
        (-torch.logsumexp(network(inputs[rows]) + table[rows], dim=1).mean()).backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
    for mine, theirs in zip(trained.network.parameters(), network.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-4)


def test_distance_features_are_scaled_to_a_median_of_100_unless_raw():
    cache = make_cache()
    scale = distance_scale(cache)
    assert (cache.neighbors.squared_distances[:, -1] * scale).median().item() == pytest.approx(100)
    assert distance_scale(cache, raw=True) == 1


@pytest.mark.parametrize("features", [("distances",), ("counts",), ("distances", "counts")])
def test_a_saved_network_gives_the_same_weights(tmp_path, features):
    network = MetaK(8, 7.5, hidden=4, distance_scale=0.25, features=features)
    (tmp_path / "metak.safetensors").write_bytes(network_bytes(network))
    again = load_network(tmp_path / "metak.safetensors")
    assert again.settings == network.settings
    neighbors = make_cache().neighbors
    assert torch.equal(again.weigh(bare(neighbors)).neighbor_weights, network.weigh(bare(neighbors)).neighbor_weights)


def test_a_damaged_network_file_is_named(tmp_path):
    for content in (b"", b"12345678", network_bytes(MetaK(4, 1.0))[:-3]):
        (tmp_path / "metak.safetensors").write_bytes(content)
        with pytest.raises(StoreDamagedError, match="metak"):
            load_network(tmp_path / "metak.safetensors")


def test_training_uses_the_model_alone_where_no_neighbor_was_found():
    cache = make_cache()
    neighbors = replace(cache.neighbors, found=torch.zeros_like(cache.neighbors.found))
    table = likelihood_table(replace(cache, neighbors=neighbors), (0, 1, 8), 10.0)
    assert table.exp().allclose(torch.full_like(table, 0.3))


def test_vanilla_is_ranked_by_likelihood():
    cache = make_cache()
    ranked = rank_vanilla(cache, 8)
    losses = [candidate.loss for candidate in ranked]
    assert losses == sorted(losses)
    assert {10.0, 100.0} <= {candidate.method.temperature for candidate in ranked}
    assert {candidate.method.k for candidate in ranked} == {1, 2, 4, 8}
    best = ranked[0]
    assert vanilla_loss(cache, best.method) == pytest.approx(best.loss, abs=1e-6)
    assert best.loss < vanilla_loss(cache, Vanilla(1, 10.0, 0.1))


def test_temperatures_to_try_follow_the_scale_of_the_states():
    cache = make_cache()
    median = cache.neighbors.squared_distances[:, 0].median().item()
    tried = temperatures(cache)
    assert {10.0, 100.0} <= set(tried)
    assert any(abs(t - 2 * median) < 0.01 * median for t in tried)
    assert len(tried) == 8


def test_invalid_settings_are_refused():
    with pytest.raises(SettingError):
        MetaK(8, 0.0)
    with pytest.raises(SettingError):
        MetaK(8, 1.0, features=("colour",))
    cache = make_cache(20)
    with pytest.raises(SettingError, match="at least two sentences"):
        train_metak(cache, cache.split([])[1], max_k=8, temperatures=[1.0])


def test_distances_are_not_scaled_unless_a_scale_is_given():
    neighbors = make_cache(30).neighbors
    for network, scale in ((MetaK(8, 1.0), 1.0), (MetaK(8, 1.0, distance_scale=0.5), 0.5)):
        assert torch.equal(network.inputs(neighbors)[:, :8], neighbors.squared_distances * scale)


@pytest.mark.parametrize("features", [("colour", "counts"), ()])
def test_a_refusal_names_the_features(features):
    with pytest.raises(SettingError) as refused:
        MetaK(8, 1.0, features=features)
    assert str(refused.value) == f"`features` must be chosen from distances, counts, not {', '.join(features)}"
