"""The guard: sentences that are far from the memory are left to the model, and the memory's own kind loses nothing."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from conftest import QUICK
from nearmt.decoding.decoder import Decoder
from nearmt.decoding.evidence import explain_tokens
from nearmt.methods.damping import STAGES, Damping, RunningDistances, stages
from nearmt.methods.metak import MetaK
from nearmt.methods.mixture import Vanilla
from nearmt.methods.retrieved import Retrieved, RunningDistance, running_distances_of
from nearmt.methods.variants import load_variant
from nearmt.retrieval.neighbors import Neighbors
from nearmt.store import Store
from nearmt.training.cache import NeighborCache
from nearmt.training.devset import collect_cache, dev_from_pairs, load_pairs
from nearmt.training.fit_damping import MAX_LOST_GAIN, fit_damping
from nearmt.training.schedule import TrainingSettings
from nearmt.training.train_metak import train_metak
from nearmt.translator import Translator
from synthetic import VOCABULARY, make_cache

SCHEDULE = TrainingSettings(steps=1000, first_check=100, learning_rate=3e-3)


class NoColumns:
    keys = probabilities = np.zeros(0)


def even_damping(middle: float, far: float, strength: float) -> Damping:
    """One that expects the same all along a sentence."""
    return Damping(1.0, (middle,) * len(STAGES), (far,) * len(STAGES), strength)


def moved(cache: NeighborCache, factor: float, wrong: bool = False) -> NeighborCache:
    """The same tokens with farther neighbours, perhaps with tokens that are never right."""
    near = cache.neighbors
    tokens = near.token_ids + 1000 if wrong else near.token_ids
    return replace(cache, neighbors=replace(near, squared_distances=near.squared_distances * factor, token_ids=tokens))


def lively_cache() -> NeighborCache:
    """Sentences that the memory knows and sentences that it hardly knows: there far neighbours are mostly wrong."""
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
    train, held = lively_cache().split(range(60))
    (trained,) = train_metak(train, held, max_k=8, temperatures=[10.0], settings=SCHEDULE)
    return train, held, trained


def loss(network: MetaK, cache: NeighborCache) -> float:
    weights = network.weigh(cache.retrieved(NoColumns()))
    hits = (weights.neighbor_weights * (cache.neighbors.token_ids == cache.gold[:, None])).sum(1)
    return float(-(weights.nmt_share * cache.gold_probability + hits).clamp_min(1e-30).log().mean())


def test_text_of_another_kind_is_left_to_the_model_and_ones_own_keeps_its_gain(learned):
    train, held, trained = learned
    network = trained.network
    far = moved(held, 1000.0, wrong=True)
    network.damping = None
    harm = loss(network, far) - far.base_loss
    assert harm > 0.3, "without a guard the memory harms"
    fitted = fit_damping(train, held, network, NoColumns())
    network.damping = fitted.damping
    assert fitted.damping.strength >= 1
    assert network.weigh(far.retrieved(NoColumns())).nmt_share.mean() > 0.95
    assert loss(network, far) - far.base_loss < harm / 5
    gain = held.base_loss - trained.loss
    assert fitted.loss == pytest.approx(loss(network, held), abs=1e-5)
    assert fitted.loss <= trained.loss + MAX_LOST_GAIN * gain + 1e-6
    network.damping = None


def test_a_guard_that_costs_too_much_is_not_taken(learned):
    train, held, trained = learned
    right = replace(held, neighbors=replace(held.neighbors, token_ids=held.gold.unsqueeze(1).expand(-1, 8)))
    assert fit_damping(train, moved(right, 20.0), trained.network, NoColumns()).guard is None


def test_dev_sentences_that_are_all_alike_do_not_make_every_other_one_strange(learned):
    cache = learned[0]
    alike = replace(cache, neighbors=replace(cache.neighbors, squared_distances=torch.full((len(cache), 8), 99.0)))
    guard = fit_damping(alike, alike, Vanilla(4, 10.0, 0.5), NoColumns()).guard
    assert guard.far == pytest.approx([middle + 0.5 for middle in guard.middle])
    assert guard.caution(RunningDistance(torch.tensor([np.log(120.0)]), torch.tensor([3]))).item() == 0


def test_what_is_far_for_a_first_token_may_be_usual_for_a_tenth(learned):
    cache = learned[0]
    distances = torch.where(cache.positions == 0, 1.0, 99.0).unsqueeze(1) + torch.rand(len(cache), 8).cumsum(1)
    near_at_first = replace(cache, neighbors=replace(cache.neighbors, squared_distances=distances))
    guard = fit_damping(near_at_first, near_at_first, Vanilla(4, 10.0, 0.5), NoColumns()).guard
    assert guard.middle[0] < guard.middle[1] < guard.middle[5]
    caution = guard.caution(RunningDistance(torch.tensor([guard.middle[5]] * 2), torch.tensor([1, 8])))
    assert caution[0] > 1
    assert caution[1] == 0


def test_stages_follow_the_length_of_a_trail():
    lengths = torch.tensor([0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 20, 21, 500])
    assert stages(lengths).tolist() == [0, 0, 1, 2, 3, 4, 4, 5, 5, 6, 6, 7, 7]


def test_a_stage_with_few_tokens_takes_what_is_usual_at_all(learned):
    guard = fit_damping(*learned[:2], learned[2].network, NoColumns()).guard  # sentences of ten tokens
    assert guard.middle[6] == guard.middle[7] != guard.middle[5]


def test_no_caution_changes_nothing_and_all_parts_still_sum_to_one(learned):
    _, held, trained = learned
    weights = trained.network.weigh(held.retrieved(NoColumns()))
    lengths = torch.arange(len(held)) % 30
    running = RunningDistance(torch.linspace(0, 12, len(held)), lengths)
    guarded = even_damping(4.0, 6.0, 3.0).applied(weights, running)
    calm = running.mean <= 5
    assert torch.equal(guarded.nmt_share[calm], weights.nmt_share[calm])
    assert torch.equal(guarded.neighbor_weights[calm], weights.neighbor_weights[calm])
    total = guarded.nmt_share + guarded.neighbor_weights.sum(1)
    assert total.allclose(torch.ones(len(held)), atol=1e-5)
    assert guarded.size_probabilities.sum(1).allclose(torch.ones(len(held)), atol=1e-5)
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


def test_a_trail_is_the_mean_so_far_and_leaves_out_what_found_nothing():
    near = some_neighbors([np.e - 1, 99.0, np.e**3 - 1, np.e**5 - 1], [True, False, True, True])
    for sentence_ids, means, lengths in (
        (None, [1, 1, 2, 3], [1, 1, 2, 3]),
        (torch.tensor([0, 0, 4, 4]), [1, 1, 3, 4], [1, 1, 1, 2]),
        (torch.tensor([1, 2, 3, 4]), [1, 0, 3, 5], [1, 0, 1, 1]),
    ):
        trail = running_distances_of(near, 1.0, sentence_ids)
        assert trail.mean.tolist() == pytest.approx(means)
        assert trail.length.tolist() == lengths


def test_trails_follow_the_beams():
    running = RunningDistances(1.0)
    running.follow(torch.tensor([0, 1]))
    assert running.note(some_neighbors([np.e - 1, np.e**3 - 1], [True, True])).mean.tolist() == [1, 3]
    running.follow(torch.tensor([1, 1]))  # both go on from the second
    second = running.note(some_neighbors([np.e - 1], [True]), torch.tensor([1]))
    assert (second.mean.tolist(), second.length.tolist()) == (pytest.approx([2]), [2])
    running.follow(torch.tensor([0, 1]))
    after = running.note(some_neighbors([np.e**5 - 1, np.e**2 - 1], [True, True]))
    assert after.mean.tolist() == pytest.approx([4, 2])
    assert after.length.tolist() == [2, 3]


def test_training_decoding_and_evidence_see_the_same_trails(client, toy_model):
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


def test_what_is_decoded_is_what_evidence_says(client, toy_model):
    """The score of a translation is the sum of the probabilities that evidence finds for its tokens."""
    translator = Translator(client.store, model=toy_model)
    network = translator.method
    sources = toy_model.tokenize_sources([source for source, _ in client.test_pairs[:6]])
    network.damping = even_damping(-1.0, 0.0, 16.0)  # every sentence counts as far
    decoder = Decoder(toy_model, translator.retriever, network, translator.decoding)
    found_with_guard, with_guard = decoder.decode(sources), []
    for source, found in zip(sources, found_with_guard, strict=True):
        tokens = explain_tokens(decoder, source, found[0].token_ids)
        score = sum(np.log(token.probability) for token in tokens) / len(tokens) ** 0.6
        assert found[0].score == pytest.approx(score, abs=2e-3)
        with_guard.append([token.nmt_share for token in tokens])
    network.damping = None
    without = [
        [token.nmt_share for token in explain_tokens(decoder, source, found[0].token_ids)]
        for source, found in zip(sources, found_with_guard, strict=True)
    ]
    assert sum(map(sum, with_guard)) > 5 * sum(map(sum, without)), "the guard was at work"


def test_a_store_learns_a_guard_unless_told_not_to_and_never_the_papers_way(store_copy, toy_model, client):
    settings = replace(QUICK, methods=("adaptive", "robust"))
    described = Store(store_copy).train(client.dev, model=toy_model, settings=settings)
    for content in (described["metak"], described["relatives"]["robust"]):
        assert content["guard"] is None or set(content["guard"]) == {"scale", "middle", "far", "strength"}
    assert described["settings"]["guard"] is True
    for changed in (replace(QUICK, guard=False), replace(QUICK, paper=True)):
        assert Store(store_copy).train(client.dev, model=toy_model, settings=changed)["metak"]["guard"] is None


@pytest.mark.parametrize("guard", [None, even_damping(1.0, 2.0, 4.0)])
def test_a_saved_network_keeps_its_guard(tmp_path, guard):
    from nearmt.methods.robust import Robust

    for number, network in enumerate((MetaK(4, 1.0), Robust(4))):
        network.damping = guard
        path = tmp_path / f"{number}.safetensors"
        path.write_bytes(network.to_bytes())
        again = MetaK.load(path) if number == 0 else load_variant(path)
        assert again.damping == guard
        assert again.settings == network.settings
