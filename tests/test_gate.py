"""The gate: open it changes nothing, shut it is the model alone, and it learns where a search pays."""

import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from conftest import QUICK
from nearmt.bench import BenchSettings, run_bench
from nearmt.decoder import Decoder
from nearmt.devset import load_pairs
from nearmt.errors import SettingError, StoreDamagedError
from nearmt.evaluation import evaluate
from nearmt.evidence import explain_tokens
from nearmt.gate import Gate, Glance, LastAsked, Walk, walk_along
from nearmt.gating import GateChooser, foretold_unseen, gains, glance_at, train_gate
from nearmt.guard import STAGES, Guard
from nearmt.memory import Store
from nearmt.metak import MetaK, TrainingSettings
from nearmt.mixture import Vanilla
from nearmt.neighbors import Neighbors
from nearmt.progress import silent
from nearmt.translator import Translator
from synthetic import make_cache


class NoColumns:
    keys = probabilities = np.zeros(0)


@pytest.fixture(scope="module")
def trained(client, toy_model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("gate") / "gated.store"
    shutil.copytree(client.store, folder)
    described = Store(folder).train(client.dev, model=toy_model, settings=replace(QUICK, gate=True))
    return folder, described["gate"]


def gate_with(model, threshold):
    return Gate(model.width, threshold=threshold).eval()


def outputs(toy_model, client, gate, counts=None):
    translator = Translator(client.store, model=toy_model)
    decoder = Decoder(toy_model, translator.retriever, translator.method, translator.decoding, gate)
    sources = toy_model.tokenize_sources([source for source, _ in client.test_pairs[:24]])
    heard = counts.append if counts is not None else lambda count: None
    return [found[0].token_ids for found in decoder.decode(sources, on_asked=lambda asked, rows: heard((asked, rows)))]


def test_an_open_gate_changes_nothing_and_a_shut_one_is_the_model_alone(toy_model, client):
    sources = toy_model.tokenize_sources([source for source, _ in client.test_pairs[:24]])
    plain = [found[0].token_ids for found in Decoder(toy_model).decode(sources)]
    counts = []
    assert outputs(toy_model, client, gate_with(toy_model, -1e9), counts) == outputs(toy_model, client, None)
    assert all(asked == rows for asked, rows in counts)
    counts = []
    assert outputs(toy_model, client, gate_with(toy_model, 1e9), counts) == plain
    assert all(asked == 0 for asked, _ in counts)
    assert outputs(toy_model, client, None) != plain


def test_a_store_learns_a_gate_and_leaves_out_searches(trained, toy_model, client):
    folder, described = trained
    assert described["bleu"] >= described["bleu_without_gate"] - 0.1
    translator = Translator(folder, model=toy_model, gate="auto")
    assert translator.gate.threshold == pytest.approx(described["threshold"])
    result = translator.translate([source for source, _ in client.test_pairs[:3]])
    assert all(item.text for item in result)
    assert Store(folder).verify().is_sound
    pairs = load_pairs(client.test, Store(folder).manifest.languages).pairs[:20]
    scored = evaluate(Translator(folder, model=toy_model), pairs, ["base", "adaptive", "gated"])
    assert 0 <= scored.settings["gated"]["asked_share"] <= 1
    assert scored.settings["gated"]["gate"] == pytest.approx(described["threshold"])
    assert "asked_share" not in scored.settings["adaptive"]


def test_evidence_shows_only_what_was_asked(trained, toy_model, client):
    folder, _ = trained
    source = client.test_pairs[0][0]
    shut = Translator(folder, model=toy_model, gate=1e9).explain(source)
    assert all(not token.neighbors and token.nmt_share == 1 for token in shut.tokens)
    opened = Translator(folder, model=toy_model, gate=-1e9).explain(source)
    assert opened.tokens == Translator(folder, model=toy_model).explain(source).tokens


def test_a_gate_is_timed_beside_its_method(trained, client, tmp_path):
    text = tmp_path / "in.de"
    text.write_text("".join(f"{source}\n" for source, _ in client.test_pairs[:3]), encoding="utf-8")
    settings = BenchSettings(tables=("own",), batches=(2,), rounds=1, text=text, gate="1e9")
    found = run_bench(trained[0], tmp_path / "bench", settings, client.model)["tables"]["own"]["2"]
    assert {name: told["searched_share"] for name, told in found.items()} == {
        "base": 0, "adaptive": 1, "adaptive, gated": 0
    }  # fmt: skip


def test_what_a_gate_needs_is_said(trained, client, toy_model):
    with pytest.raises(SettingError, match=r"has no trained gate: run nearmt train .* --gate"):
        Translator(client.store, model=toy_model, gate="auto")
    with pytest.raises(SettingError, match="auto, off or a number"):
        Translator(trained[0], model=toy_model, gate="sometimes")
    with pytest.raises(SettingError, match="method adaptive"):
        Translator(trained[0], model=toy_model, gate="auto", method="vanilla")


def informative_cache(seed=1):
    """Where the model is unsure the neighbours are right; where it is sure they add nothing."""
    cache = make_cache(1500, seed=seed)
    near = cache.neighbors.squared_distances[:, 0] < 100
    top = torch.where(near, 0.3, 0.95)
    return replace(
        cache,
        gold_probability=torch.where(near, 0.1, 0.95),
        top_probabilities=top[:, None].expand(-1, 8),
        positions=torch.arange(1500) % 10,
    )


def test_it_learns_where_a_search_pays():
    method = Vanilla(8, 10.0, 0.5)
    cache, held = informative_cache(), informative_cache(2)
    gate = train_gate(cache, held, NoColumns(), method, TrainingSettings(steps=600, first_check=100))
    foretold = gate.foretell(glance_at(held, np.random.default_rng(1))).gains
    unsure = held.top_probability < 0.5
    assert foretold[unsure].min() > foretold[~unsure].max()
    wanted = gains(held, method, NoColumns())
    assert float((foretold[unsure].mean() - wanted[unsure].mean()).abs()) < 0.3


SHORT = TrainingSettings(steps=300, first_check=100)


def test_what_is_foretold_for_judging_does_not_know_its_part_of_the_dev_set():
    cache, method = informative_cache(), Vanilla(8, 10.0, 0.5)
    first = cache.sentence_ids < int(cache.sentence_ids.max() + 1) // 5
    other = replace(cache, gold_probability=torch.where(first, 0.5, cache.gold_probability))
    one, two = (foretold_unseen(part, NoColumns(), method, SHORT) for part in (cache, other))
    torch.testing.assert_close(one[first], two[first])
    assert not torch.equal(one[~first], two[~first])


@pytest.mark.parametrize(("is_foretellable", "share"), [(True, 0.3), (False, 0.0)])
def test_a_lucky_score_does_not_make_a_gate_strict_that_is_expected_to_lose(monkeypatch, is_foretellable, share):
    cache, method = informative_cache(), Vanilla(8, 10.0, 0.5)
    if not is_foretellable:
        bare = torch.full_like(cache.top_probabilities, 0.1)
        cache = replace(cache, top_probabilities=bare, states=torch.ones_like(cache.states))
    chooser = GateChooser(None, SimpleNamespace(snapshot=NoColumns()), method, None, silent)
    monkeypatch.setattr(chooser, "_judge", lambda gate, dev, judge: (40.0 if gate is not None else 10.0, 0.5))
    gate = train_gate(*cache.split(range(20)), NoColumns(), method, SHORT)
    chosen, told = chooser.choose(gate, None, [], cache, 40.0, SHORT)
    foretold = gate.foretell(glance_at(cache, np.random.default_rng(1))).gains
    assert float((foretold < chosen.threshold).float().mean()) >= share
    assert all(tried["expected_loss"] <= 0.1 for tried in told["tried"])
    if not is_foretellable:
        assert told["expected_loss"] <= 0.1
        assert float((foretold < chosen.threshold).float().mean()) < 0.3


def test_gains_are_those_of_the_mixture():
    cache = informative_cache()
    wanted = []
    for row in range(5):
        e = np.exp(-(cache.neighbors.squared_distances[row] - cache.neighbors.squared_distances[row, 0]).numpy() / 10)
        hit = (e * (cache.neighbors.token_ids[row] == cache.gold[row]).numpy()).sum() / e.sum()
        own = float(cache.gold_probability[row])
        wanted.append(np.clip(np.log(0.5 * own + 0.5 * hit) - np.log(own), -2, 4))
    np.testing.assert_allclose(gains(cache, Vanilla(8, 10.0, 0.5), NoColumns())[:5], wanted, atol=1e-5)


def test_rows_follow_their_parents():
    last = LastAsked()
    last.follow(torch.tensor([0, 1, 2]))
    last.note(torch.tensor([1]), torch.tensor([7.0]))
    last.follow(torch.tensor([1, 1, 0]))
    glance = last.glance(torch.ones(3, 4), torch.full((3, 5), 0.2).log())
    assert glance.last_distance.tolist() == [7, 7, 0]
    assert glance.gap.tolist() == [1, 1, 0]
    last.follow(torch.tensor([2, 0]))
    glance = last.glance(torch.ones(2, 4), torch.full((2, 5), 0.2).log())
    assert (glance.last_distance.tolist(), glance.gap.tolist()) == ([0, 7], [0, 2])
    assert glance.entropy.tolist() == pytest.approx([np.log(5)] * 2)


def test_the_entropy_takes_what_is_below_the_highest_for_one():
    probabilities = torch.tensor([[0.2] * 2 + [0.1] * 4 + [0.02] * 10]).sort(descending=True).values
    glance = LastAsked().glance(torch.ones(1, 4), probabilities.log())
    told = [0.2] * 2 + [0.1] * 4 + [0.02] * 2 + [0.16]
    assert glance.entropy.item() == pytest.approx(-sum(p * np.log(p) for p in told), abs=1e-5)


def gate_by(number, weight, bias, threshold=0.5):
    """It foretells a gain of 1 where an input times the weight plus the bias is high, and a distance of 6."""
    gate = Gate(4, threshold=threshold).eval()
    with torch.no_grad():
        for parameter in gate.parameters():
            parameter.zero_()
        gate.layers[0].weight[0, number] = weight
        gate.layers[0].bias[0] = bias
        gate.layers[3].weight[0, 0] = 1
        gate.layers[3].bias[1] = np.log(7)
    return gate


def test_along_a_hypothesis_the_gate_decides_as_it_did_while_decoding():
    """Open only where the memory was last asked one step ago, or never."""
    gate = gate_by(4 + 8 + 3, -100, 37.5)  # the gap, between one step and two
    glance = Glance(torch.ones(3, 4), torch.zeros(3, 8), torch.zeros(3), torch.tensor([0.0, 1.0, 2.0]))
    assert gate.foretell(glance).is_worth_it.tolist() == [True, True, False]
    states, log_probs = torch.ones(6, 4), torch.full((6, 5), 0.2).log()
    assert walk_along(gate, states, log_probs, torch.ones(6)).asked.all()
    shut = walk_along(gate.with_threshold(2.0), states, log_probs, torch.ones(6))
    assert not shut.asked.any()
    assert shut.foretold.tolist() == pytest.approx([6.0] * 6, rel=1e-5)


def test_the_trail_of_a_walk_has_what_was_found_and_what_was_foretold():
    near = Neighbors(torch.tensor([[3.0], [8.0], [1.0], [9.0]]), *(torch.zeros(4, 1, dtype=torch.int64),) * 2,
                     torch.tensor([[True], [True], [False], [True]]))  # fmt: skip
    walk = Walk(torch.tensor([True, False, True, True]), torch.full((4,), 5.0))
    trail = walk.trails(near, 2.0)
    logs = [np.log1p(6), np.log1p(10), 0.0, np.log1p(18)]  # the third was asked, and nothing was found
    assert trail.length.tolist() == [1, 2, 2, 3]
    assert trail.mean.tolist() == pytest.approx(np.cumsum(logs) / [1, 2, 2, 3], rel=1e-5)


def test_the_guard_hears_of_tokens_that_were_not_searched(toy_model, client):
    """Where each second token is left out the guard goes by what was foretold, in decoding and in evidence."""
    translator = Translator(client.store, model=toy_model)
    far = Guard(1.0, (1.0,) * len(STAGES), (2.0,) * len(STAGES), 8.0)
    method = MetaK.load(next(client.store.glob("metak-*.safetensors")))
    method.guard = far
    gate = Gate(toy_model.width, threshold=0.5).eval()
    with torch.no_grad():
        for parameter in gate.parameters():
            parameter.zero_()
        gap = toy_model.width + 8 + 3  # asked at first and wherever it was not one step ago: each second token
        gate.layers[0].weight[:2, gap], gate.layers[0].bias[:2] = torch.tensor([-100, 100]), torch.tensor([12.5, -37.5])
        gate.layers[3].weight[0, :2], gate.layers[3].bias[0] = 1, 1
    source = toy_model.tokenize_sources([client.test_pairs[0][0]])
    shares = []
    for log_distance in (0.0, 9.0):
        with torch.no_grad():
            gate.layers[3].bias[1] = log_distance
        decoder = Decoder(toy_model, translator.retriever, method, translator.decoding, gate)
        output = decoder.decode(source)[0][0]
        tokens = explain_tokens(decoder, source[0], output.token_ids)
        assert sum(np.log(token.probability) for token in tokens) == pytest.approx(output.log_probability, abs=1e-3)
        shares.append(np.mean([token.nmt_share for token in tokens if token.neighbors][1:]))
    assert shares[1] > shares[0]


def test_a_gate_comes_back_from_its_file_as_it_was(tmp_path):
    gate = Gate(4, 0.5, 0.25, 0.125).eval()
    (tmp_path / "gate").write_bytes(gate.to_bytes())
    again = Gate.load(tmp_path / "gate")
    assert (again.length_scale, again.distance_scale, again.threshold) == (0.5, 0.25, 0.125)
    inputs = torch.rand(7, 16)
    assert torch.equal(again(inputs), gate(inputs))
    (tmp_path / "gate").write_bytes(gate.to_bytes()[:-3])
    with pytest.raises(StoreDamagedError, match="missing or damaged"):
        Gate.load(tmp_path / "gate")
