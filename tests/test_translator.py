"""Translation with a tiny trained model: retrieval helps, and without it the output is the plain model's."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import toy

from nearmt.corpus import SentencePair
from nearmt.datastore import Manifest
from nearmt.decoding.beam import BeamSettings
from nearmt.decoding.decoder import Decoder, DecodingSettings
from nearmt.errors import SettingError, StoreError, StoreMismatchError
from nearmt.evaluation.evaluate import evaluate
from nearmt.evaluation.scores import bleu, compare
from nearmt.methods.mixture import Vanilla
from nearmt.store import Store, build
from nearmt.training.devset import collect_cache, dev_from_memory, dev_from_pairs
from nearmt.translator import Translator
from quick import QUICK


@pytest.fixture(scope="module")
def translator(client, toy_model):
    return Translator(client.store, model=toy_model)


@pytest.fixture(scope="module")
def test_pairs(client):
    return client.test_pairs[:40]


def test_translations_use_the_terms_of_the_memory(translator, test_pairs):
    references = [target for _, target in test_pairs]
    sources = [source for source, _ in test_pairs]
    plain = Translator(translator.snapshot.folder, model=translator.model, method="base")
    adaptive = bleu([t.text for t in translator.translate(sources)], references)
    base = bleu([t.text for t in plain.translate(sources)], references)
    assert adaptive > base + 10
    assert adaptive > 95


def test_sentences_that_are_stored_are_reproduced(toy_model, client, tmp_path):
    store = build(client.test, model=toy_model, out=tmp_path / "own.store", dev=client.memory, adaptation=QUICK)
    translator = Translator(store.folder, model=toy_model)
    pairs = client.test_pairs
    outputs = translator.translate([source for source, _ in pairs])
    same = sum(output.text == target for output, (_, target) in zip(outputs, pairs, strict=True))
    assert same / len(pairs) > 0.95


def test_a_store_with_shuffled_values_does_no_harm(store_copy, toy_model, client):
    path = next((store_copy / "data-000001").glob("values*"))
    values = np.fromfile(path, np.int32)
    np.random.default_rng(1).shuffle(values)
    values.tofile(path)
    Store(store_copy).train(client.dev, model=toy_model, settings=QUICK)
    sources = [source for source, _ in client.test_pairs[:60]]
    references = [target for _, target in client.test_pairs[:60]]
    scores = [
        bleu([t.text for t in Translator(store_copy, model=toy_model, method=m).translate(sources)], references)
        for m in ("base", "adaptive")
    ]
    assert abs(scores[0] - scores[1]) <= 0.2


def test_a_knn_share_of_zero_is_the_plain_model(translator, toy_model, test_pairs):
    sources = toy_model.tokenize_sources([source for source, _ in test_pairs])
    plain = Decoder(toy_model).decode(sources)
    texts = [source for source, _ in test_pairs]
    none = Decoder(toy_model, translator.retriever, Vanilla(4, 10.0, 0.0)).decode(sources, texts=texts)
    assert plain == none


def test_a_forced_end_has_probability_one_with_retrieval(translator, toy_model, test_pairs, monkeypatch):
    monkeypatch.setattr(toy_model.rules, "_forced_end", list(toy_model.eos_token_ids)[:1])
    decoding = DecodingSettings(length_factor=0, length_extra=1)
    decoder = Decoder(toy_model, translator.retriever, Vanilla(4, 10.0, 0.5), decoding)
    ((best,),) = decoder.decode(toy_model.tokenize_sources(test_pairs[0][:1]), texts=test_pairs[0][:1])
    assert (best.token_ids, best.log_probability) == (tuple(toy_model.eos_token_ids[:1]), 0.0)


def test_plain_decoding_equals_generate(toy_model, test_pairs):
    settings = DecodingSettings(length_factor=0, length_extra=30)
    sources = toy_model.tokenize_sources([source for source, _ in test_pairs[:8]])
    found = Decoder(toy_model, settings=settings).decode(sources)
    width = max(map(len, sources))
    pad = toy_model._pad_token_id
    ids = torch.tensor([row + [pad] * (width - len(row)) for row in sources])
    expected = toy_model._engine.model.generate(
        ids,
        attention_mask=(ids != pad).long(),
        num_beams=4,
        length_penalty=0.6,
        max_new_tokens=30,
        max_length=None,
        early_stopping=False,
        do_sample=False,
        return_dict_in_generate=True,
        output_scores=True,
    )
    for i, hypotheses in enumerate(found):
        wanted = [t for t in expected.sequences[i].tolist()[1:] if t != pad]
        assert list(hypotheses[0].token_ids) == wanted
        assert hypotheses[0].score == pytest.approx(expected.sequences_scores[i].item(), abs=1e-4)


@pytest.mark.parametrize("method", ["adaptive", "vanilla", "uniform", "base"])
def test_translating_a_batch_equals_translating_each_sentence_alone(client, toy_model, test_pairs, method):
    sources = [source for source, _ in test_pairs[:12]]
    translator = Translator(client.store, model=toy_model, method=method)
    together = translator.translate(sources)
    for source, result in zip(sources, together, strict=True):
        (alone,) = translator.translate([source])
        assert alone.text == result.text
        assert alone.score == pytest.approx(result.score, abs=1e-4)


def test_results_are_in_order_and_an_empty_text_stays_empty(translator):
    texts = ["die neue tabelle zeigt die zelle .", "", "   ", "heute zeigt die zelle die neue tabelle ."]
    results = translator.translate(texts)
    assert [result.source for result in results] == texts
    assert results[1].text == results[2].text == ""
    assert results[1].tokens == ()
    assert results[0].text.startswith("the new spreadsheet")
    assert translator.translate([]) == []
    with pytest.raises(TypeError, match="list of texts"):
        translator.translate("one string")


def test_a_text_that_is_too_long_for_the_model_is_translated_in_parts(translator):
    sentence = "die neue tabelle zeigt die zelle ."
    (result,) = translator.translate([" ".join([sentence] * 12)])
    assert result.text.count(".") == 2  # the toy model ends after one sentence: one per part
    assert len(result.tokens) == len(result.token_ids)


def test_evidence_shows_sentence_pairs_and_its_weights_sum_to_one(translator):
    (result,) = translator.translate(["heute öffnet die tabelle die große zelle ."])
    assert "spreadsheet" in result.text
    changed = [token for token in result.tokens if not token.is_models_first_choice]
    assert changed, "retrieval should have changed a word"
    for token in result.tokens:
        votes = sum(n.weight for n in token.neighbors if n.token_id == token.token_id)
        assert token.probability == pytest.approx(token.nmt_share * token.nmt_probability + votes, abs=1e-4)
        assert token.nmt_share + sum(n.weight for n in token.neighbors) == pytest.approx(1, abs=1e-4)
        assert sum(token.size_probabilities.values()) == pytest.approx(1, abs=1e-4)
        distances = [n.squared_distance for n in token.neighbors]
        assert distances == sorted(distances)
        for neighbor in token.neighbors:
            pieces = translator.model.tokenize_targets([neighbor.segment.target])[0]
            assert pieces[neighbor.position] == neighbor.token_id
    best = changed[0].neighbors[0].segment
    assert "tabelle" in best.source
    assert "spreadsheet" in best.target


def test_evidence_explains_the_score(translator):
    (result,) = translator.translate(["heute öffnet die tabelle die große zelle ."])
    total = sum(np.log(token.probability) for token in result.tokens)
    assert result.score == pytest.approx(total / len(result.tokens) ** 0.6, abs=1e-3)


def test_alternatives_are_sorted_by_score(client, toy_model):
    settings = DecodingSettings(beam=BeamSettings(num_beams=4, num_hypotheses=3))
    translator = Translator(client.store, model=toy_model, decoding=settings)
    (result,) = translator.translate(["die neue tabelle zeigt die zelle ."])
    scores = [result.score, *(score for _, score in result.alternatives)]
    assert len(scores) == 3
    assert scores == sorted(scores, reverse=True)
    assert len({result.text, *(text for text, _ in result.alternatives)}) == 3


def test_evaluation_compares_methods_and_counts_leaked_sentences(translator, client):
    pairs = [SentencePair(*pair) for pair in client.test_pairs[:30]]
    leaked = [translator.snapshot.text(0), SentencePair(translator.snapshot.text(1).source, "something else")]
    result = evaluate(translator, pairs + leaked, ["base", "vanilla", "adaptive"])
    scores = result.comparison.scores
    assert scores["adaptive"].bleu > scores["base"].bleu
    assert scores["adaptive"].p_values["base"] < 0.05
    assert set(scores["adaptive"].p_values) == {"base", "vanilla"}
    assert (result.leakage.same_pair, result.leakage.same_source) == (1, 2)
    assert result.changed_shares["adaptive"] > result.changed_shares["base"]
    assert "tok:13a" in result.comparison.bleu_signature
    own = bleu(result.outputs["adaptive"], [pair.target for pair in pairs + leaked])
    assert scores["adaptive"].bleu == pytest.approx(own)


def test_identical_outputs_are_not_significantly_different():
    outputs, references = ["a b c d e", "f g h i j"] * 5, ["a b c d x", "f g h i j"] * 5
    scores = compare({"base": outputs, "other": list(outputs)}, references, ["base"]).scores
    assert scores["other"].p_values["base"] == 1


def test_an_untrained_store_translates_only_with_an_explicit_method(toy_model, client, tmp_path):
    store = build(client.memory, model=toy_model, out=tmp_path / "s.store", train=False)
    with pytest.raises(SettingError, match="no trained Meta-k"):
        Translator(store.folder, model=toy_model)
    with pytest.raises(SettingError, match="not trained"):
        Translator(store.folder, model=toy_model, method="vanilla")
    translator = Translator(store.folder, model=toy_model, method="vanilla", k=4, temperature=10.0, knn_share=0.5)
    assert translator.translate(["die neue tabelle zeigt die zelle ."])[0].text
    with pytest.raises(SettingError, match="method must be one of"):
        Translator(store.folder, model=toy_model, method="magic")


@pytest.mark.parametrize("saw", [{"keys": "float32"}, {"index": "IVF8,PQ8", "reranked": 0}])
def test_meta_k_is_refused_with_other_distances_than_in_training(token_store_copy, toy_model, saw):
    manifest = Manifest.load(token_store_copy)
    training = manifest.adaptation
    assert training
    manifest.changed(adaptation=replace(training, retrieval=replace(training.retrieval, **saw))).save(token_store_copy)
    with pytest.raises(StoreMismatchError, match="nearmt train"):
        Translator(token_store_copy, model=toy_model)


def test_meta_k_works_with_any_index_that_is_reranked_on_the_same_keys(token_store_copy, toy_model):
    manifest = Manifest.load(token_store_copy)
    training = manifest.adaptation
    assert training
    saw = replace(training.retrieval, index="IVF8,PQ8", reranked=64)
    manifest.changed(adaptation=replace(training, retrieval=saw)).save(token_store_copy)
    assert Translator(token_store_copy, model=toy_model).method.name == "adaptive"


def test_dev_pairs_that_are_stored_do_not_retrieve_themselves(translator, toy_model):
    snapshot = translator.snapshot
    dev = dev_from_pairs(toy_model, snapshot, [snapshot.text(3), SentencePair("neu", "new")], "test")
    assert dev.excluded[0].tolist() == [3]
    assert dev.excluded[1] is None
    own = dev_from_memory(toy_model, snapshot)
    assert len(own) == len(snapshot.sentences)
    assert all(row is not None and len(row) >= 1 for row in own.excluded)


def test_the_neighbor_cache_leaves_out_excluded_sentences(translator, toy_model):
    snapshot = translator.snapshot
    dev = dev_from_pairs(toy_model, snapshot, [snapshot.text(i) for i in range(20)], "test")
    cache = collect_cache(toy_model, translator.retriever, dev, 8)
    owners = snapshot.sentence_ids_of(cache.neighbors.entry_ids.numpy())
    assert cache.neighbors.found.all()
    assert not (owners == cache.sentence_ids.numpy()[:, None]).any()
    search = translator.retriever.start([snapshot.text(i).source for i in range(20)])
    near = search.search(cache.states.float(), cache.sentence_ids, 1)
    assert (near.squared_distances < 0.01).all(), "without exclusion they are found"


def test_the_trial_with_the_best_bleu_wins_and_then_the_likelier(translator, toy_model, client):
    """One candidate uses retrieval, the other does not."""
    from nearmt.training.train_store import StoreTrainer, Trial, best_trial

    good, bad = Vanilla(4, 0.1, 0.9), Vanilla(4, 0.1, 0.0)
    pairs = [SentencePair(*pair) for pair in client.test_pairs[:30]]
    dev = dev_from_pairs(toy_model, translator.snapshot, pairs, "test")
    trainer = StoreTrainer(toy_model, translator.retriever, QUICK)
    trials = trainer.run_trials(dev.held_out(range(30)), [(bad, 0.1), (good, 9.9)])
    assert trials[1].bleu > trials[0].bleu
    assert best_trial(trials).method == good
    assert best_trial([Trial(bad, 2.0, 50.0), Trial(good, 1.0, 50.0)]).method == good


def test_settings_with_similar_scores_are_ranked_by_likelihood():
    from nearmt.training.train_store import Trial, likeliest_good_trial

    references = [f"the cat sat on the mat {i}" for i in range(10)]
    one_wrong = ("a cat sat on the mat 0", *references[1:])
    two_wrong = (
        *references[:8],
        "a cat sat on the mat 8",
        "a cat sat on the mat 9",
    )  # one more wrong sentence is not significant
    wrong = tuple(f"{i} it was not there" for i in range(10))
    lucky = Trial(Vanilla(1, 1.0, 0.1), 2.0, 97.0, one_wrong)
    likely = Trial(Vanilla(2, 1.0, 0.1), 1.5, 94.0, two_wrong)
    unlikely, bad = replace(likely, loss=2.5), Trial(Vanilla(3, 1.0, 0.1), 0.1, 5.0, wrong)
    assert likeliest_good_trial([lucky, likely, bad], references) is likely
    assert likeliest_good_trial([lucky, unlikely, bad], references) is lucky
    assert likeliest_good_trial([bad], references) is bad


def test_tuning_prefers_likely_settings_and_records_all_trials(store_copy, toy_model, client):
    settings = replace(QUICK, temperature=None, max_decoded=10, max_trials=3)
    described = Store(store_copy).train(client.dev, model=toy_model, settings=settings)
    tried = described["tried"]
    assert len(tried["vanilla"]) == len(tried["adaptive"]) == 3
    assert max(t["bleu"] for t in tried["adaptive"]) == described["held_out"]["adaptive_bleu"]
    likely = [t["loss"] for t in tried["vanilla"][:5]]
    assert max(likely) < 0.5 < described["held_out"]["base_loss"]
    assert [t["loss"] for t in tried["adaptive"][:5]] == sorted(t["loss"] for t in tried["adaptive"][:5])


def test_a_network_is_not_committed_to_a_store_that_was_rebuilt(store_copy, toy_model, client):
    from nearmt.methods.metak import MetaK
    from nearmt.training.commit import commit_training

    snapshot = Store(store_copy).snapshot()
    manifest = snapshot.manifest
    assert manifest.adaptation
    manifest.changed(created_at="2001-01-01T00:00:00Z").save(store_copy)
    with pytest.raises(StoreError, match="rebuilt during the training"):
        commit_training(snapshot, {"adaptive": MetaK(4, 1.0)}, manifest.adaptation)


def test_a_reader_of_an_older_manifest_still_finds_its_network(store_copy, toy_model, client):
    from nearmt.methods.registry import MethodRequest, make_method
    from nearmt.retrieval.modes import open_retriever

    before = Store(store_copy).snapshot()
    Store(store_copy).train(client.dev, model=toy_model, settings=QUICK)
    assert make_method(MethodRequest(), before, open_retriever(before), "torch") is not None


def test_training_on_the_memory_itself_works(toy_model, client, tmp_path, test_pairs):
    store = build(client.memory, model=toy_model, out=tmp_path / "s.store", adaptation=QUICK)
    assert "memory itself" in store.info()["adaptation"]["trained_on"]["origin"]
    outputs = Translator(store.folder, model=toy_model).translate([source for source, _ in test_pairs])
    assert bleu([output.text for output in outputs], [target for _, target in test_pairs]) > 95


def test_training_can_follow_the_paper(store_copy, toy_model, client):
    described = Store(store_copy).train(
        client.dev, model=toy_model, settings=replace(QUICK, paper=True, temperature=None)
    )
    assert described["metak"]["temperature"] == 10
    assert described["metak"]["distance_scale"] == 1
    assert described["trained_on"]["tokens"] == described["held_out"]["tokens"]


def test_two_threads_can_translate_at_once(translator, test_pairs):
    from concurrent.futures import ThreadPoolExecutor

    sources = [source for source, _ in test_pairs[:8]]
    alone = [translator.translate([source])[0].text for source in sources]
    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(lambda source: translator.translate([source])[0].text, sources * 3))
    assert together == alone * 3


def test_the_toy_files_have_no_sentences_in_common(client):
    files = [path.read_text(encoding="utf-8").splitlines() for path in (client.memory, client.dev, client.test)]
    assert sum(map(len, files)) == len({line for lines in files for line in lines}) == 900
    assert toy.sentences(5, 1) == toy.sentences(5, 1)
