"""The variants of Meta-k on the toy client's store: trained, saved, verified and chosen by name."""

import shutil
from dataclasses import replace

import pytest
import torch

import nearmt.datastore.snapshot
import nearmt.methods.retrieved
from nearmt.datastore import Manifest, Snapshot
from nearmt.datastore.snapshot import entries_of
from nearmt.decoding.evidence import explain_tokens
from nearmt.errors import SettingError, StoreMismatchError
from nearmt.evaluation.evaluate import evaluate
from nearmt.evaluation.scores import bleu
from nearmt.methods.registry import METHODS, VARIANTS, MethodRequest, make_method
from nearmt.methods.retrieved import Retrieved, top_probabilities
from nearmt.retrieval.modes import open_retriever
from nearmt.retrieval.search import Retriever
from nearmt.store import Store
from nearmt.training.devset import collect_cache, dev_from_pairs
from nearmt.training.train_store import AdaptationSettings
from nearmt.translator import Translator
from quick import QUICK

ALL = replace(QUICK, methods=("adaptive", *VARIANTS))


@pytest.fixture(scope="module")
def trained(client, toy_model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("variants") / "client.store"
    shutil.copytree(client.store, folder)
    Store(folder).train(client.dev, model=toy_model, settings=ALL)
    return folder


def test_the_store_knows_its_networks_and_their_losses(trained):
    described = Store(trained).info()["adaptation"]
    assert list(described["networks"]) == ["adaptive", "kernel", "robust"]
    assert sorted(described["networks"].values()) == sorted(described["files"])
    held = described["held_out"]
    for name in VARIANTS:
        assert held[f"{name}_loss"] < held["base_loss"] - 0.1
        assert described["relatives"][name]["max_k"] == 8
    assert Store(trained).verify().is_sound


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_uses_the_clients_terms_and_gives_evidence(trained, toy_model, client, name):
    translator = Translator(trained, model=toy_model, method=name)
    plain = Translator(trained, model=toy_model, method="base")
    sources, references = zip(*client.test_pairs[:40], strict=True)
    helped = bleu([t.text for t in translator.translate(sources)], references)
    assert helped > bleu([t.text for t in plain.translate(sources)], references) + 10
    assert helped > 90
    for token in translator.explain(sources[0]).tokens:
        assert set(token.size_probabilities) == {0, 8}
        assert token.size_probabilities[0] == pytest.approx(token.nmt_share)
        assert token.nmt_share + sum(n.weight for n in token.neighbors) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("name", VARIANTS)
def test_evidence_agrees_with_what_decoding_saw(trained, toy_model, client, name):
    """The same weights whether tokens are decoded one by one or forced all at once."""
    translator = Translator(trained, model=toy_model, method=name)
    text = client.test_pairs[0][0]
    (source,) = toy_model.tokenize_sources([text])
    decoder = translator.decoder(translator.method)
    (hypotheses,) = decoder.decode([source], texts=[text])
    evidence = explain_tokens(decoder, source, hypotheses[0].token_ids, text=text)
    product = torch.tensor([token.probability for token in evidence]).log().sum().item()
    assert hypotheses[0].score == pytest.approx(product / len(evidence) ** 0.6, abs=1e-3)


def test_the_default_method_is_the_network_with_the_lowest_held_out_loss(trained, toy_model, client, tmp_path):
    described = Store(trained).info()["adaptation"]
    losses = {name: described["held_out"][f"{name}_loss"] for name in described["networks"]}
    assert described["method"] == min(losses, key=losses.__getitem__)
    shutil.copytree(trained, tmp_path / "copy.store")
    for name in losses:
        manifest = Manifest.load(tmp_path / "copy.store")
        assert manifest.adaptation
        manifest.changed(adaptation=replace(manifest.adaptation, method=name)).save(tmp_path / "copy.store")
        assert Translator(tmp_path / "copy.store", model=toy_model).method.name == name
    assert AdaptationSettings().methods == ("adaptive", "robust")
    paper = Store(tmp_path / "copy.store").train(client.dev, model=toy_model, settings=replace(ALL, paper=True))
    assert paper["method"] == "adaptive"


def test_an_evaluation_compares_all_methods(trained, toy_model, client):
    translator = Translator(trained, model=toy_model, method="base")
    pairs = [nearmt.SentencePair(*pair) for pair in client.test_pairs[:10]]
    result = evaluate(translator, pairs, METHODS)
    assert set(result.comparison.scores) == set(METHODS)
    assert result.settings["robust"]["hidden"] == 32
    assert result.settings["kernel"]["width"] == toy_model.width


def test_an_untrained_method_is_refused_with_the_command_that_trains_it(client, toy_model, trained, tmp_path):
    with pytest.raises(SettingError, match=r"no trained kernel network: .* `methods` adaptive,kernel"):
        Translator(client.store, model=toy_model, method="kernel")
    with pytest.raises(SettingError, match=r"no trained robust network: run nearmt train \S+$"):
        Translator(client.store, model=toy_model, method="robust")
    with pytest.raises(SettingError, match="kernel does not take `k`"):
        Translator(trained, model=toy_model, method="kernel", k=4)
    with pytest.raises(SettingError, match="vanilla cannot be trained: choose from adaptive, kernel, robust"):
        replace(QUICK, methods=("adaptive", "vanilla"))


def test_a_variant_is_refused_if_retrieval_changed_since_its_training(trained, toy_model, tmp_path):
    shutil.copytree(trained, tmp_path / "copy.store")
    manifest = Manifest.load(tmp_path / "copy.store")
    learned = manifest.adaptation
    assert learned
    saw = replace(learned.retrieval, keys="float32")
    manifest.changed(adaptation=replace(learned, retrieval=saw)).save(tmp_path / "copy.store")
    with pytest.raises(StoreMismatchError, match=r"robust was trained with .* `methods` adaptive,kernel,robust"):
        Translator(tmp_path / "copy.store", model=toy_model, method="robust")


def test_damage_is_found_and_the_second_training_deletes_old_networks(trained, toy_model, client, tmp_path):
    folder = tmp_path / "copy.store"
    shutil.copytree(trained, folder)
    before = Store(folder).snapshot()
    old = folder / before.manifest.adaptation.networks["robust"]
    Store(folder).train(client.dev, model=toy_model, settings=QUICK)
    assert make_method(MethodRequest("robust"), before, open_retriever(before), "torch") is not None, (
        "an open reader can still load it"
    )
    Store(folder).train(client.dev, model=toy_model, settings=replace(QUICK, methods=("robust",)))
    assert not old.exists()
    now = Manifest.load(folder).adaptation.networks
    assert list(now) == ["adaptive", "robust"], "adaptive is always trained"
    path = folder / now["robust"]
    path.write_bytes(path.read_bytes()[:-1] + b"\0")
    assert Store(folder).verify().problems == (f"{path.name} was changed",)


def test_columns_are_only_fetched_by_the_methods_that_use_them(trained, toy_model, client, monkeypatch):
    seen = []
    fetch, keys_of, top = entries_of, Snapshot.keys_of, top_probabilities

    def counting_fetch(column, entry_ids):
        seen.append("stored")
        return fetch(column, entry_ids)

    def counting_keys(snapshot, entry_ids):
        seen.append("keys")
        return keys_of(snapshot, entry_ids)

    def counting_top(log_probs):
        seen.append("top")
        return top(log_probs)

    monkeypatch.setattr("nearmt.datastore.snapshot.entries_of", counting_fetch)
    monkeypatch.setattr(Snapshot, "keys_of", counting_keys)
    monkeypatch.setattr("nearmt.methods.retrieved.top_probabilities", counting_top)
    expected = {"adaptive": set(), "vanilla": set(), "uniform": set(), "kernel": {"keys"}, "robust": {"stored", "top"}}
    for name, parts in expected.items():
        seen.clear()
        Translator(trained, model=toy_model, method=name).explain(client.test_pairs[0][0])
        assert set(seen) == parts, name


def test_training_and_decoding_pass_the_same_values_to_a_method(trained, toy_model, client):
    snapshot = Store(trained).snapshot()
    retriever = Retriever(snapshot)
    pairs = [nearmt.SentencePair(*pair) for pair in client.test_pairs[:5]]
    dev = dev_from_pairs(toy_model, snapshot, pairs, "test")
    cached = collect_cache(toy_model, retriever, dev, 8)
    states = cached.states.float()
    log_probs = toy_model.project(states).log_softmax(1)
    decoding, training = Retrieved.at(states, log_probs, cached.neighbors, snapshot), cached.retrieved(snapshot)
    for part in ("states", "keys", "stored_probabilities", "neighbor_probabilities", "top_probabilities"):
        torch.testing.assert_close(getattr(decoding, part), getattr(training, part), atol=0.01, rtol=0.01)
    distances = (decoding.keys - states[:, None]).square().sum(2)
    torch.testing.assert_close(distances, cached.neighbors.squared_distances, atol=0.01, rtol=0.05)
