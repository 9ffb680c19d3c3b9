"""Out-of-domain damping: the model alone translates sentences far from the memory; others keep their gain."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from nearmt.decoding.decoder import Decoder
from nearmt.decoding.evidence import explain_tokens
from nearmt.methods.damping import STAGES, Damping, DistanceTracker, stages
from nearmt.methods.metak import MetaK
from nearmt.methods.mixture import MixtureWeights, Vanilla
from nearmt.methods.network_file import load_network, network_bytes
from nearmt.methods.retrieved import Retrieved, RunningDistance, running_distance
from nearmt.retrieval.neighbors import Neighbors
from nearmt.store import Store
from nearmt.training.cache import NeighborCache
from nearmt.training.devset import collect_cache, dev_from_pairs, load_pairs
from nearmt.training.fit_damping import MAX_LOST_GAIN, fit_damping
from nearmt.training.likelihood import base_loss
from nearmt.training.schedule import TrainingSettings
from nearmt.training.train_metak import train_metak
from nearmt.translator import Translator
from quick import QUICK
from synthetic import VOCABULARY, make_cache

SCHEDULE = TrainingSettings(steps=1000, first_check=100, learning_rate=3e-3)


class NoColumns:
    keys = probabilities = np.zeros(0)


def even_damping(middle: float, far: float, strength: float, scale: float = 1.0) -> Damping:
    """Damping with the same limits at every stage of a sentence."""
    return Damping(scale, (middle,) * len(STAGES), (far,) * len(STAGES), strength)


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


def test_stages_follow_the_number_of_tokens():
    lengths = torch.tensor([0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 20, 21, 500])
    assert stages(lengths).tolist() == [0, 0, 1, 2, 3, 4, 4, 5, 5, 6, 6, 7, 7]


def test_a_stage_with_few_tokens_uses_the_limits_of_all_tokens(learned):
    damping = fit_damping(*learned[:2], learned[2].network, NoColumns()).damping  # sentences of ten tokens
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


def test_training_and_evidence_compute_the_same_running_distances(client, toy_model):
    translator = Translator(client.store, model=toy_model)
    pairs = load_pairs(client.test, translator.snapshot.manifest.languages).pairs[:6]
    dev = dev_from_pairs(toy_model, translator.snapshot, pairs, "test")
    cache = collect_cache(toy_model, translator.retriever, dev, 8)
    for sentence in range(6):
        rows = (cache.sentence_ids == sentence).nonzero().flatten()
        rows = rows[cache.positions[rows].argsort()]
        near = cache.neighbors.rows(rows)
        alone = Retrieved.at(cache.states[rows].float(), torch.zeros(len(rows), 9), near, translator.snapshot)
        both = cache.running_distance(3.0)
        torch.testing.assert_close(RunningDistance(both.mean[rows], both.length[rows]), alone.running_distance(3.0))


@pytest.mark.parametrize("scale", [1.0, 1e6])
def test_decoding_and_evidence_damp_alike(client, toy_model, scale):
    """The score of a translation is the product of the probabilities that evidence gives for its tokens."""
    translator = Translator(client.store, model=toy_model)
    network = translator.method
    sources = toy_model.tokenize_sources([source for source, _ in client.test_pairs[:6]])
    network.damping = even_damping(-1.0, 0.0, 16.0, scale)  # every sentence is out of domain
    decoder = Decoder(toy_model, translator.retriever, network, translator.decoding)
    hypotheses, with_damping = decoder.decode(sources), []
    for source, found in zip(sources, hypotheses, strict=True):
        tokens = explain_tokens(decoder, source, found[0].token_ids)
        score = sum(np.log(token.probability) for token in tokens) / len(tokens) ** 0.6
        assert found[0].score == pytest.approx(score, abs=2e-3)
        with_damping.append([token.nmt_share for token in tokens])
    network.damping = None
    without = [
        [token.nmt_share for token in explain_tokens(decoder, source, found[0].token_ids)]
        for source, found in zip(sources, hypotheses, strict=True)
    ]
    assert sum(map(sum, with_damping)) > 5 * sum(map(sum, without)), "damping had an effect"


def test_training_fits_damping_unless_switched_off_or_the_papers_protocol(store_copy, toy_model, client):
    settings = replace(QUICK, methods=("adaptive", "robust"))
    described = Store(store_copy).train(client.dev, model=toy_model, settings=settings)
    for content in (described["metak"], described["relatives"]["robust"]):
        assert content["guard"] is None or set(content["guard"]) == {"scale", "middle", "far", "strength"}
    assert described["settings"]["guard"] is True
    for changed in (replace(QUICK, guard=False), replace(QUICK, paper=True)):
        assert Store(store_copy).train(client.dev, model=toy_model, settings=changed)["metak"]["guard"] is None


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
    limits = {"middle": (1.0,) * 8, "far": (2.0,) * 8, name: (1.0,) * 7}
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
