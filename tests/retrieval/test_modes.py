"""Stores that are searched by tokens, by sentences or both: built, trained, changed and used together."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nearmt.building import builder, compaction
from nearmt.building.builder import BuildSettings
from nearmt.building.repair import repair_with
from nearmt.corpus import SentencePair
from nearmt.datastore import IndexRecord, Languages, Manifest, Snapshot, partial_folder, verify
from nearmt.datastore.snapshot import open_latest
from nearmt.errors import SettingError, StoreMismatchError
from nearmt.evaluation.scores import bleu
from nearmt.retrieval.indexing import IndexSettings
from nearmt.retrieval.modes import CombinedRetriever
from nearmt.retrieval.search import Retriever
from nearmt.retrieval.sentences.retriever import SentenceRetriever
from nearmt.store import Store, build
from nearmt.training.train_store import AdaptationSettings
from nearmt.translator import Translator
from quick import QUICK

VANILLA: dict[str, Any] = {"method": "vanilla", "k": 4, "temperature": 0.1, "knn_share": 0.9}
QUICKER = replace(QUICK, training=replace(QUICK.training, steps=120), max_decoded=8, max_trials=1)
KINDS = {"tokens": Retriever, "sentences": SentenceRetriever, "both": CombinedRetriever}


@pytest.fixture(scope="module")
def reduced(client, toy_model, tmp_path_factory) -> Path:
    """The client's memory with keys of 16 bytes and both indexes."""
    settings = BuildSettings(dims=16, retrieval="both", segment_entries=1000)
    out = tmp_path_factory.mktemp("reduced") / "client.store"
    return build(client.memory, model=toy_model, out=out, dev=client.dev, settings=settings, adaptation=QUICKER).folder


@pytest.fixture
def reduced_copy(reduced, tmp_path) -> Path:
    return Path(shutil.copytree(reduced, tmp_path / "reduced.store"))


def files_of(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("index-*")}


def test_a_store_is_searched_by_sentences_unless_an_index_of_tokens_is_wanted(client, token_store):
    manifest = Manifest.load(client.store)
    assert (manifest.retrieval, manifest.index, manifest.key_type, manifest.dims) == ("sentences", None, "int8", 96)
    assert manifest.sentence_index is not None
    assert manifest.adaptation is not None
    assert manifest.adaptation.retrieval.retrieval == "sentences"
    manifest = Manifest.load(token_store)
    assert manifest.retrieval == "tokens"
    assert manifest.index is not None
    assert manifest.sentence_index is not None, "always built"
    assert IndexSettings("IVF64,Flat").retrieval == IndexSettings(memory=1000).retrieval == "tokens"
    assert IndexSettings().retrieval == "sentences"


def test_keys_are_reduced_and_training_chooses_one_of_three_retrievals(reduced, toy_model, client):
    manifest = Manifest.load(reduced)
    assert (manifest.key_dims, manifest.width) == (16, 64)
    assert manifest.index is not None
    assert manifest.sentence_index is not None
    assert manifest.adaptation is not None
    assert manifest.retrieval == manifest.adaptation.retrieval.retrieval
    assert manifest.retrieval in KINDS
    assert manifest.adaptation.retrieval.keys == "int8 of 16 dimensions"
    translator = Translator(reduced, model=toy_model)
    assert type(translator.retriever) is KINDS[manifest.retrieval]
    sources, references = zip(*client.test_pairs[:40], strict=True)
    assert bleu([result.text for result in translator.translate(sources)], references) > 90
    assert (reduced / "data-000001" / "keys.int8").stat().st_size == 16 * manifest.num_entries


@pytest.mark.parametrize("retrieval", KINDS)
def test_training_can_be_told_where_to_search(reduced_copy, toy_model, client, retrieval):
    settings = replace(QUICKER, retrieval=retrieval)
    described = Store(reduced_copy).train(client.dev, model=toy_model, settings=settings)
    assert described["retrieval"]["retrieval"] == retrieval
    manifest = Manifest.load(reduced_copy)
    assert manifest.retrieval == retrieval
    translator = Translator(reduced_copy, model=toy_model)
    assert type(translator.retriever) is KINDS[retrieval]
    assert "spreadsheet" in translator.translate(["die neue tabelle zeigt die zelle ."])[0].text
    Store(reduced_copy).compact()
    compacted = Manifest.load(reduced_copy)
    assert compacted.retrieval == retrieval, "compaction keeps it"
    assert compacted.key_range == manifest.key_range
    assert compacted.index is not None
    assert Translator(reduced_copy, model=toy_model).method.name == "adaptive"
    with pytest.raises(SettingError, match="`retrieval` must be one of tokens, sentences, both, not words"):
        AdaptationSettings(retrieval="words")


def test_networks_are_refused_with_another_retrieval_than_in_training(store_copy, toy_model, client):
    Store(store_copy).index(IndexSettings(retrieval="tokens"))
    assert Manifest.load(store_copy).retrieval == "tokens"
    sentence = r"trained with .*retrieval sentences.*now searches with .*retrieval tokens: run nearmt train"
    with pytest.raises(StoreMismatchError, match=sentence):
        Translator(store_copy, model=toy_model)
    assert Translator(store_copy, model=toy_model, **VANILLA).translate(["die zelle ."])[0].text
    Store(store_copy).train(client.dev, model=toy_model, settings=QUICKER)
    assert Translator(store_copy, model=toy_model).method.name == "adaptive"


def test_a_text_of_unknown_words_is_translated_by_the_model_alone(client, toy_model):
    texts = ["qqq xxyz", "unbekanntes"]
    plain = Translator(client.store, model=toy_model, method="base").translate(texts)
    for method in ({}, VANILLA):
        found = Translator(client.store, model=toy_model, **method).translate(texts)
        assert [result.text for result in found] == [result.text for result in plain]
        assert [result.score for result in found] == pytest.approx([result.score for result in plain], abs=1e-5)
        assert not any(token.neighbors for result in found for token in result.tokens)


def test_the_evidence_comes_from_sentences_that_resemble_the_source(client, toy_model):
    translator = Translator(client.store, model=toy_model)
    text = client.test_pairs[0][0]
    words = set(text.split())
    near = [neighbor for token in translator.explain(text).tokens for neighbor in token.neighbors]
    assert near
    assert all(words & set(neighbor.segment.source.split()) for neighbor in near)


def test_stores_with_other_keys_and_retrievals_translate_together(client, token_store, reduced, toy_model):
    sources, references = zip(*client.test_pairs[:20], strict=True)
    for stores in ([client.store, token_store, reduced], [reduced, client.store], [token_store, reduced]):
        translator = Translator(stores, model=toy_model)
        assert bleu([result.text for result in translator.translate(sources)], references) > 90
        assert translator.explain(sources[0]).tokens[0].neighbors


@pytest.mark.parametrize("retrieval", KINDS)
def test_indexing_again_replaces_all_files_of_the_indexes(reduced_copy, retrieval):
    before = files_of(reduced_copy)
    (reduced_copy / "index-000001-000000-sentences-terms.npy").write_bytes(b"left by a killed indexing")
    Store(reduced_copy).index(IndexSettings(retrieval=retrieval))
    manifest = Manifest.load(reduced_copy)
    assert files_of(reduced_copy) == set(manifest.index_files)
    assert not before & files_of(reduced_copy)
    assert (manifest.index is None) == (retrieval == "sentences")
    assert verify(reduced_copy).is_sound


def test_sentences_that_are_added_count_as_not_indexed_until_a_compaction(store_copy, toy_model):
    store = Store(store_copy, model=toy_model)
    assert store.info()["health"]["new_share"] == 0
    store.add([SentencePair(f"die zelle nummer {n} .", f"the cell number {n} .", f"n{n}") for n in range(100)])
    assert store.info()["health"]["new_share"] == pytest.approx(100 / 600)
    store.compact()
    assert store.info()["health"]["new_share"] == 0
    assert store.manifest.sentence_index.num_sentences == 600


def reindexed_meanwhile(folder: Path) -> None:
    Store(folder).remove(unit_id="none")  # a new version gives the files other names
    compaction.reindex(folder, IndexSettings(retrieval="sentences"))


def test_a_reader_that_loses_its_index_files_opens_the_newer_ones(store_copy):
    old = Manifest.load(store_copy)
    tries = []

    def open_with(folder, manifest):
        tries.append(manifest.version)
        if len(tries) == 1:
            reindexed_meanwhile(folder)
        return SentenceRetriever(Snapshot(folder, manifest))

    assert open_latest(store_copy, open_with).snapshot.manifest.version > old.version
    assert len(tries) == 2


def test_verification_does_not_report_files_that_a_reindexing_has_replaced(store_copy):
    reindexed: list[int] = []

    def on_commit(number: int) -> None:
        if not reindexed:
            reindexed.append(number)
            reindexed_meanwhile(store_copy)

    assert verify(store_copy, on_commit).problems == ()
    assert reindexed


def test_a_resumed_build_makes_the_indexes_that_are_wanted_now(client, toy_model, tmp_path, monkeypatch):
    out = tmp_path / "s.store"
    built: list[str | None] = []
    index = builder.index_snapshot

    def counted(snapshot, settings, *args):
        built.append(settings.retrieval)
        return index(snapshot, settings, *args)

    def interrupted(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(builder, "index_snapshot", counted)
    for retrieval in ("sentences", "tokens", "tokens", "both", "sentences"):
        with monkeypatch.context() as patch:
            patch.setattr("nearmt.store._train", interrupted)
            with pytest.raises(KeyboardInterrupt):
                build(
                    client.memory,
                    model=toy_model,
                    out=out,
                    settings=BuildSettings(retrieval=retrieval),
                    resume=partial_folder(out).exists(),
                )
        assert Manifest.load(partial_folder(out)).retrieval == retrieval
    assert built == ["sentences", "tokens", "both", "sentences"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dims": 0}, "`dims` must be at least 1, not 0"),
        ({"retrieval": "words"}, "`retrieval` must be one of tokens, sentences, both, not words"),
        ({"key_type": "int4"}, "`key_type` must be one of float16, float32, int8, not int4"),
        ({"retrieval": "sentences", "index": "IVF64,Flat"}, "set `retrieval` to tokens or both"),
        ({"retrieval": "sentences", "memory": 1000}, "set `retrieval` to tokens or both"),
    ],
)
def test_impossible_settings_are_refused(settings, message):
    with pytest.raises(SettingError, match=message):
        BuildSettings(**settings)


def test_a_lost_projection_is_repaired_with_the_model(reduced_copy, toy_model, client):
    path = reduced_copy / "data-000001" / "projection.float32"
    content = path.read_bytes()
    path.write_bytes(content[:100] + b"\x42" + content[101:])
    sources, references = zip(*client.test_pairs[:20], strict=True)
    repaired = repair_with(reduced_copy, lambda manifest: toy_model)
    assert repaired.is_whole
    assert repaired.recomputed_sentences == 500
    assert verify(reduced_copy).is_sound
    new = reduced_copy / "data-000002" / "projection.float32"
    assert new.exists()
    np.testing.assert_allclose(
        np.abs(np.frombuffer(new.read_bytes(), "<f4")), np.abs(np.frombuffer(content, "<f4")), atol=1e-3
    )
    assert bleu([r.text for r in Translator(reduced_copy, model=toy_model).translate(sources)], references) > 90


def test_every_training_of_a_store_with_both_indexes_chooses():
    index = IndexRecord("faiss", "Flat", 1, 0)
    chosen = Manifest({}, Languages("de", "en"), 4, retrieval="tokens", is_retrieval_chosen=True, index=index)
    assert IndexSettings.of(chosen).retrieval == "both"
    assert IndexSettings.of(replace(chosen, is_retrieval_chosen=False)).retrieval == "tokens"
