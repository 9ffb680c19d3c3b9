"""Fitting out-of-domain damping: the model alone translates far sentences; others keep their gain."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from nearmt.methods.metak import MetaK
from nearmt.methods.mixture import Vanilla
from nearmt.methods.retrieved import RunningDistance
from nearmt.store import Store
from nearmt.training.cache import NeighborCache
from nearmt.training.fit_damping import MAX_LOST_GAIN, fit_damping
from nearmt.training.likelihood import base_loss
from nearmt.training.schedule import TrainingSettings
from nearmt.training.train_metak import train_metak
from quick import QUICK
from synthetic import VOCABULARY, even_damping, make_cache

SCHEDULE = TrainingSettings(steps=1000, first_check=100, learning_rate=3e-3)


class NoColumns:
    """The methods tested here read neither keys nor stored probabilities."""

    def project(self, states: torch.Tensor) -> torch.Tensor:
        return states

    def keys_of(self, entry_ids: torch.Tensor) -> torch.Tensor:
        raise AssertionError("the method read keys")

    def probabilities_of(self, entry_ids: torch.Tensor) -> torch.Tensor:
        raise AssertionError("the method read stored probabilities")


def moved(cache: NeighborCache, factor: float, wrong: bool = False) -> NeighborCache:
    """The same tokens with neighbours `factor` times as far away; with `wrong`, their tokens are never right."""
    near = cache.neighbors
    tokens = near.token_ids + 1000 if wrong else near.token_ids
    return replace(cache, neighbors=replace(near, squared_distances=near.squared_distances * factor, token_ids=tokens))


def mixed_cache() -> NeighborCache:
    """In-domain sentences, and some out-of-domain ones whose far neighbours are mostly wrong."""
    cache = make_cache(3000)
    torch.manual_seed(2)
    is_known = (torch.rand(300) < 0.8)[cache.sentence_ids]
    is_near = torch.rand(len(cache)) < torch.where(is_known, 0.8, 0.2)
    is_right = torch.rand(len(cache)) < torch.where(is_near, 0.95, torch.where(is_known, 0.6, 0.2))
    distances = torch.where(is_near, 5.0, 200.0).unsqueeze(1) + torch.rand(len(cache), 8).cumsum(1)
    tokens = torch.where(is_right, cache.gold, (cache.gold + 7) % VOCABULARY).unsqueeze(1).expand(-1, 8)
    neighbors = replace(cache.neighbors, squared_distances=distances, token_ids=tokens)
    return replace(cache, neighbors=neighbors, positions=torch.arange(len(cache)) % 10)


@pytest.fixture(scope="module")
def learned():
    train, held = mixed_cache().split(range(60))
    (trained,) = train_metak(train, held, max_k=8, temperatures=[10.0], settings=SCHEDULE)
    return train, held, trained


def loss(network: MetaK, cache: NeighborCache) -> float:
    weights = network.weigh(cache.retrieved(NoColumns()))
    hits = (weights.neighbor_weights * (cache.neighbors.token_ids == cache.gold[:, None])).sum(1)
    return float(-(weights.nmt_share * cache.gold_probability + hits).clamp_min(1e-30).log().mean())


def test_out_of_domain_text_is_left_to_the_model_and_in_domain_text_keeps_its_gain(learned):
    train, held, trained = learned
    network = trained.network
    far = moved(held, 1000.0, wrong=True)
    network.damping = None
    harm = loss(network, far) - base_loss(far)
    assert harm > 0.3, "without damping the memory does harm"
    fitted = fit_damping(train, held, network, NoColumns())
    network.damping = fitted.damping
    assert fitted.damping.strength >= 1
    assert network.weigh(far.retrieved(NoColumns())).nmt_share.mean() > 0.95
    assert loss(network, far) - base_loss(far) < harm / 5
    gain = base_loss(held) - trained.loss
    assert fitted.loss == pytest.approx(loss(network, held), abs=1e-5)
    assert fitted.loss <= trained.loss + MAX_LOST_GAIN * gain + 1e-6
    network.damping = None


def test_damping_that_costs_too_much_is_rejected(learned):
    train, held, trained = learned
    right = replace(held, neighbors=replace(held.neighbors, token_ids=held.gold.unsqueeze(1).expand(-1, 8)))
    assert fit_damping(train, moved(right, 20.0), trained.network, NoColumns()).damping is None


def test_a_uniform_dev_set_does_not_make_every_other_sentence_out_of_domain(learned):
    cache = learned[0]
    uniform = replace(cache, neighbors=replace(cache.neighbors, squared_distances=torch.full((len(cache), 8), 99.0)))
    damping = fit_damping(uniform, uniform, Vanilla(4, 10.0, 0.5), NoColumns()).damping
    assert damping.far == pytest.approx([middle + 0.5 for middle in damping.middle])
    assert damping.added_log_odds(RunningDistance(torch.tensor([np.log(120.0)]), torch.tensor([3]))).item() == 0


def test_a_distance_can_be_far_for_a_first_token_and_typical_of_a_tenth(learned):
    cache = learned[0]
    distances = torch.where(cache.positions == 0, 1.0, 99.0).unsqueeze(1) + torch.rand(len(cache), 8).cumsum(1)
    near_at_first = replace(cache, neighbors=replace(cache.neighbors, squared_distances=distances))
    damping = fit_damping(near_at_first, near_at_first, Vanilla(4, 10.0, 0.5), NoColumns()).damping
    assert damping.middle[0] < damping.middle[1] < damping.middle[5]
    caution = damping.added_log_odds(RunningDistance(torch.tensor([damping.middle[5]] * 2), torch.tensor([1, 8])))
    assert caution[0] > 1
    assert caution[1] == 0


def test_a_stage_with_few_tokens_uses_the_limits_of_all_tokens(learned):
    train, held, trained = learned  # sentences of ten tokens
    damping = fit_damping(train, held, trained.network, NoColumns()).damping
    assert damping.middle[6] == damping.middle[7] != damping.middle[5]


def test_without_caution_nothing_changes_and_parts_always_sum_to_one(learned):
    _, held, trained = learned
    weights = trained.network.weigh(held.retrieved(NoColumns()))
    lengths = torch.arange(len(held)) % 30
    running = RunningDistance(torch.linspace(0, 12, len(held)), lengths)
    damped = even_damping(4.0, 6.0, 3.0).applied(weights, running)
    near = running.mean <= 5
    assert torch.equal(damped.nmt_share[near], weights.nmt_share[near])
    assert torch.equal(damped.neighbor_weights[near], weights.neighbor_weights[near])
    total = damped.nmt_share + damped.neighbor_weights.sum(1)
    assert total.allclose(torch.ones(len(held)), atol=1e-5)
    assert damped.size_probabilities.sum(1).allclose(torch.ones(len(held)), atol=1e-5)
    shares = [
        even_damping(4.0, 6.0, s).applied(weights, RunningDistance(torch.full((len(held),), 7.0), lengths)).nmt_share
        for s in (0.0, 1.0, 8.0)
    ]
    assert (shares[0] <= shares[1] + 1e-6).all()
    assert (shares[1] <= shares[2] + 1e-6).all()
    odds = (shares[1] / (1 - shares[1])).log() - (shares[0] / (1 - shares[0])).log()
    sure = (shares[0] > 0.01) & (shares[0] < 0.9)
    assert odds[sure].allclose(torch.ones(int(sure.sum())), atol=1e-3), "log-odds rise by strength · (1.5 - 0.5)"


def test_training_fits_damping_unless_switched_off_or_the_papers_protocol(store_copy, toy_model, client):
    settings = replace(QUICK, methods=("adaptive", "robust"))
    described = Store(store_copy).train(client.dev, model=toy_model, settings=settings)
    for content in (described["metak"], described["relatives"]["robust"]):
        assert content["guard"] is None or set(content["guard"]) == {"scale", "middle", "far", "strength"}
    assert described["settings"]["guard"] is True
    for changed in (replace(QUICK, guard=False), replace(QUICK, paper=True)):
        assert Store(store_copy).train(client.dev, model=toy_model, settings=changed)["metak"]["guard"] is None
