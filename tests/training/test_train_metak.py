"""What the Meta-k network learns, and how training several at once compares with training one."""

import pytest
import torch

from nearmt.methods.mixture import mix
from nearmt.training.schedule import TrainingSettings
from nearmt.training.train_metak import train_metak
from synthetic import VOCABULARY, bare, make_cache

QUICK = TrainingSettings(steps=1500, first_check=100, learning_rate=3e-3)


def test_metak_learns_to_use_near_neighbors_and_not_far_ones():
    train, held = make_cache().split(range(30))
    trained = train_metak(train, held, max_k=8, temperatures=[10.0], settings=QUICK)[0]
    assert trained.loss < trained.base_loss - 0.3
    shares = trained.network.weigh(bare(held.neighbors)).nmt_share
    is_near = held.neighbors.squared_distances[:, 0] < 50
    assert shares[is_near].mean() < 0.1
    assert shares[~is_near].mean() > 0.8


def test_metak_learns_to_ignore_noise():
    train, held = make_cache(trust="noise").split(range(30))
    trained = train_metak(train, held, max_k=8, temperatures=[10.0], settings=QUICK)[0]
    assert trained.loss == pytest.approx(trained.base_loss, abs=0.02)
    assert trained.network.weigh(bare(held.neighbors)).nmt_share.mean() > 0.9


def test_the_loss_is_the_negative_log_likelihood_of_the_mixture():
    train, held = make_cache().split(range(30))
    trained = train_metak(train, held, max_k=8, temperatures=[10.0], settings=QUICK)[0]
    rows = len(held)
    own = torch.full((rows, VOCABULARY), 0.7 / (VOCABULARY - 1))
    own[torch.arange(rows), held.gold] = 0.3
    mixed = mix(own.log(), trained.network.weigh(bare(held.neighbors)), held.neighbors.token_ids)
    loss = -mixed[torch.arange(rows), held.gold].mean().item()
    assert loss == pytest.approx(trained.loss, abs=1e-5)
    assert mixed.exp().sum(1).allclose(torch.ones(rows), atol=1e-5)


def test_networks_trained_together_equal_networks_trained_alone():
    train, held = make_cache().split(range(30))
    together = train_metak(train, held, max_k=8, temperatures=[1.0, 10.0, 100.0], settings=QUICK)
    for trained, temperature in zip(together, (1.0, 10.0, 100.0), strict=True):
        (alone,) = train_metak(train, held, max_k=8, temperatures=[temperature], settings=QUICK)
        assert trained.network.temperature == temperature
        assert trained.steps == alone.steps
        assert trained.loss == pytest.approx(alone.loss, abs=1e-5)


def test_the_same_seed_gives_the_same_network():
    train, held = make_cache().split(range(30))
    one, two = (train_metak(train, held, max_k=8, temperatures=[10.0], settings=QUICK)[0] for _ in range(2))
    for first, second in zip(one.network.parameters(), two.network.parameters(), strict=True):
        assert torch.equal(first, second)
