"""The gate: open it changes nothing, shut it is the model alone, and it learns where a search pays."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from conftest import QUICK
from nearmt.decoder import Decoder
from nearmt.errors import SettingError, StoreDamagedError
from nearmt.evaluation import evaluate
from nearmt.gate import Gate, Glance, LastAsked, asked_along, gains, glance_at, train_gate
from nearmt.memory import Store, load_pairs
from nearmt.metak import TrainingSettings
from nearmt.mixture import Vanilla
from nearmt.translator import Translator
from synthetic import make_cache

OPEN, SHUT = Gate(threshold=-1e9), Gate(threshold=1e9)


class NoColumns:
    keys = probabilities = np.zeros(0)


@pytest.fixture(scope="module")
def trained(client, toy_model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("gate") / "gated.store"
    shutil.copytree(client.store, folder)
    described = Store(folder).train(client.dev, model=toy_model, settings=replace(QUICK, gate=True))
    return folder, described["gate"]


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
    assert outputs(toy_model, client, OPEN, counts) == outputs(toy_model, client, None)
    assert all(asked == rows for asked, rows in counts)
    counts = []
    assert outputs(toy_model, client, SHUT, counts) == plain
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
        entropy=torch.where(near, 2.0, 0.1),
        positions=torch.arange(1500) % 10,
    )


def test_it_learns_where_a_search_pays():
    method = Vanilla(8, 10.0, 0.5)
    cache, held = informative_cache(), informative_cache(2)
    gate = train_gate(cache, held, NoColumns(), method, TrainingSettings(steps=600, first_check=100))
    foretold = gate(gate.inputs(glance_at(held, np.random.default_rng(1)))).detach()
    unsure = held.entropy > 1
    assert foretold[unsure].min() > foretold[~unsure].max()
    wanted = gains(held, method, NoColumns())
    assert float((foretold[unsure].mean() - wanted[unsure].mean()).abs()) < 0.3


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


def test_along_a_hypothesis_the_gate_decides_as_it_did_while_decoding():
    """Open only where the last search was long ago or never: every second token."""
    gate = Gate(threshold=0.5)
    with torch.no_grad():
        for parameter in gate.parameters():
            parameter.zero_()
        gate.layers[0].weight[0, 5] = -100  # the gap
        gate.layers[0].bias[0] = 37.5  # between a gap of one step and of two
        gate.layers[2].weight[0, 0] = -1
    glance = Glance(*(torch.zeros(3) for _ in range(1)), torch.zeros(3, 2), torch.zeros(3), torch.zeros(3),
                    torch.tensor([0.0, 1.0, 2.0]))  # fmt: skip
    assert gate.is_worth_it(glance).tolist() == [False, False, True]
    asked = asked_along(gate, torch.ones(6, 4), torch.full((6, 5), 0.2).log(), torch.ones(6))
    assert not asked.any()  # never asked means a gap of 0


def test_a_gate_comes_back_from_its_file_as_it_was(tmp_path):
    gate = Gate(0.5, 0.25, 0.125)
    (tmp_path / "gate").write_bytes(gate.to_bytes())
    again = Gate.load(tmp_path / "gate")
    assert (again.length_scale, again.distance_scale, again.threshold) == (0.5, 0.25, 0.125)
    inputs = torch.rand(7, 6)
    assert torch.equal(again(inputs), gate(inputs))
    (tmp_path / "gate").write_bytes(gate.to_bytes()[:-3])
    with pytest.raises(StoreDamagedError, match="missing or damaged"):
        Gate.load(tmp_path / "gate")
