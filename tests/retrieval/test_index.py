"""Search: exact search equals brute force, the recall of compressed indexes is measured, exclusions are respected."""

from dataclasses import replace
from typing import Any

import faiss
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nearmt.corpus import SentencePair
from nearmt.datastore import CommitData, KeyCode, Languages, Manifest, Snapshot, append_commit
from nearmt.errors import SettingError, StoreDamagedError
from nearmt.retrieval.index import build_index, choose_factory, load_index
from nearmt.retrieval.index.exact import StreamedIndex
from nearmt.retrieval.index.faiss_index import load_faiss_index, save_index
from nearmt.retrieval.recall import held_out_states, measure_recall
from nearmt.retrieval.search import Retriever
from properties import examples
from synthetic_stores import brute_force, clustered, make_store


@examples(25)
@given(st.integers(1, 60), st.integers(1, 40), st.integers(0, 1000))
def test_exact_search_equals_brute_force(tmp_path_factory, count, k, seed):
    snapshot = make_store(tmp_path_factory.mktemp("store"), clustered(count, 8, seed))
    queries = clustered(7, 8, seed + 1).astype(np.float32)
    queries[0] = snapshot.keys[0].astype(np.float32)  # an exact repeat: distance 0
    for index in (None, StreamedIndex(snapshot)):
        found = Retriever(snapshot, index).search(torch.from_numpy(queries), k)
        expected = brute_force(snapshot, queries, k)
        real = min(k, count)
        assert found.found[:, :real].all()
        assert not found.found[:, real:].any()
        np.testing.assert_allclose(found.squared_distances[:, :real], expected[:, :real], rtol=1e-4, atol=1e-4)
        assert found.squared_distances[0, 0] == 0
        values = snapshot.values[found.entry_ids[:, :real].numpy()]
        np.testing.assert_array_equal(found.token_ids[:, :real], values)


@pytest.mark.parametrize("key_type", ["float16", "float32"])
def test_reranking_by_faiss_equals_reranking_by_torch(tmp_path, key_type):
    keys = clustered(4000, 32).astype(key_type)
    snapshot = make_store(tmp_path / "s", keys)
    snapshot.keys, snapshot.key_code = keys, KeyCode(key_type, 32)
    index = build_index(snapshot, "PCA16,IVF16,PQ16x4fs", 4)
    queries = torch.from_numpy(clustered(20, 32, 2)).float()
    retriever, plain = Retriever(snapshot, index), Retriever(snapshot, index)
    assert retriever._reranking is not None
    plain._reranking = None
    one, two = retriever.search(queries, 8), plain.search(queries, 8)
    assert torch.equal(one.entry_ids, two.entry_ids)
    torch.testing.assert_close(one.squared_distances, two.squared_distances, rtol=1e-5, atol=1e-4)


def test_search_works_with_a_faiss_that_cannot_use_external_memory(tmp_path, monkeypatch):
    monkeypatch.delattr("faiss.MaybeOwnedVectorUInt8")
    snapshot = make_store(tmp_path / "s", clustered(300, 8))
    retriever = Retriever(snapshot)
    assert retriever._reranking is None
    queries = clustered(3, 8, 5).astype(np.float32)
    found = retriever.search(torch.from_numpy(queries), 4)
    np.testing.assert_allclose(found.squared_distances, brute_force(snapshot, queries, 4), rtol=1e-4, atol=1e-4)


def test_a_row_does_not_depend_on_the_other_rows(tmp_path):
    snapshot = make_store(tmp_path / "s", clustered(3000, 16))
    queries = torch.from_numpy(clustered(64, 16, 2)).float()
    retriever = Retriever(snapshot)
    together = retriever.search(queries, 8)
    for i in (0, 17, 63):
        alone = retriever.search(queries[i : i + 1], 8)
        assert torch.equal(alone.entry_ids[0], together.entry_ids[i])
        assert torch.equal(alone.squared_distances[0], together.squared_distances[i])


def test_compressed_search_is_reranked_exactly_and_its_recall_measured(tmp_path):
    snapshot = make_store(tmp_path / "s", clustered(4000, 32), per_sentence=4)
    index = build_index(snapshot, "IVF64,PQ16x4fs", 16)
    retriever = Retriever(snapshot, index, 128)
    queries = torch.from_numpy(clustered(50, 32, 2)).float()
    found = retriever.search(queries, 8)
    keys = snapshot.keys[found.entry_ids.numpy()].astype(np.float32)
    expected = ((keys - queries.numpy()[:, None]) ** 2).sum(2)
    np.testing.assert_allclose(found.squared_distances, expected, rtol=1e-4)
    states, excluded = held_out_states(snapshot, 100)
    recall = measure_recall(retriever, states, excluded, 8)
    worse = measure_recall(Retriever(snapshot, build_index(snapshot, "IVF64,PQ16x4fs", 1), 8), states, excluded, 8)
    assert 0.8 < recall.mass <= 1
    assert worse.mass < recall.mass
    assert measure_recall(Retriever(snapshot), states, excluded, 8).mass == 1
    with pytest.MonkeyPatch.context() as patch:  # the same in smaller batches
        patch.setattr("nearmt.retrieval.recall._ROWS", 7)
        assert measure_recall(retriever, states, excluded, 8) == recall


def test_without_reranking_the_distances_are_those_of_the_index(tmp_path):
    snapshot = make_store(tmp_path / "s", clustered(2000, 32))
    index = build_index(snapshot, "IVF16,PQ8x4fs", 16)
    queries = torch.from_numpy(clustered(5, 32, 2)).float()
    raw = Retriever(snapshot, index, 0).search(queries, 4)
    exact = Retriever(snapshot, index, 64).search(queries, 4)
    assert not torch.allclose(raw.squared_distances, exact.squared_distances)


def test_excluded_sentences_are_not_found_and_k_others_are(tmp_path):
    snapshot = make_store(tmp_path / "s", clustered(900, 8), per_sentence=3)
    queries = torch.from_numpy(snapshot.keys[[0, 300]].astype(np.float32))
    excluded = [np.array([0, 5]), None]
    for index in (None, build_index(snapshot, "IVF8,PQ8x4fs", 8)):
        found = Retriever(snapshot, index).search(queries, 16, excluded)
        sentences = snapshot.sentence_ids_of(found.entry_ids.numpy())
        assert not np.isin(sentences[0], [0, 5]).any()
        assert found.found.all()
        assert sentences[1][0] == 100


def test_many_excluded_sentences_still_leave_k_neighbors(tmp_path):
    snapshot = make_store(tmp_path / "s", clustered(3000, 8), per_sentence=3)
    queries = torch.from_numpy(snapshot.keys[[0, 3]].astype(np.float32))
    allowed = np.arange(980, 1000)
    excluded = [np.setdiff1d(np.arange(1000), allowed), None]
    found = Retriever(snapshot).search(queries, 32, excluded)
    assert found.found.all()
    assert np.isin(snapshot.sentence_ids_of(found.entry_ids[0].numpy()), allowed).all()
    keys = snapshot.keys[980 * 3 :].astype(np.float32)
    expected = np.sort(((keys - queries[0].numpy()) ** 2).sum(1))[:32]
    np.testing.assert_allclose(found.squared_distances[0], expected, rtol=1e-4)
    assert found.entry_ids[1, 0] == 3


@pytest.mark.parametrize("factory", [None, "IVF16,PQ8x4fs"])
def test_a_deeper_search_of_some_rows_in_bounded_memory_finds_the_same(tmp_path, monkeypatch, factory):
    snapshot = make_store(tmp_path / "s", clustered(1000, 16))
    queries = torch.from_numpy(clustered(20, 16, 3).astype(np.float32))
    allowed = np.arange(0, 1000, 29)
    excluded = [np.setdiff1d(np.arange(1000), allowed) if row % 3 else None for row in range(20)]
    retriever = Retriever(snapshot, build_index(snapshot, factory, 16) if factory else None)
    expected = retriever.search(queries, 32, excluded)
    shapes = []
    candidates = Retriever._candidates

    def recorded(self, rows, *others):
        found = candidates(self, rows, *others)
        shapes.append(tuple(found[1].shape))
        return found

    monkeypatch.setattr(Retriever, "_candidates", recorded)
    monkeypatch.setattr("nearmt.retrieval.search._MAX_CANDIDATES", 2500)
    found = retriever.search(queries, 32, excluded)
    assert max(rows * columns for rows, columns in shapes[1:]) <= 2500
    for name in ("squared_distances", "token_ids", "entry_ids", "found"):
        assert torch.equal(getattr(found, name), getattr(expected, name)), name


def test_held_out_states_exclude_the_sentence_and_its_duplicates(tmp_path):
    sources = ["same", "same", *(f"s{i}" for i in range(98))]
    snapshot = make_store(tmp_path / "s", clustered(100, 8), sources=sources)
    _, excluded = held_out_states(snapshot, 100)
    assert excluded[0].tolist() == [0, 1]
    assert excluded[50].tolist() == [50]


def test_a_saved_index_gives_the_same_neighbors(tmp_path):
    snapshot = make_store(tmp_path / "s", clustered(2000, 16))
    index = build_index(snapshot, "IVF32,PQ8x4fs", 4)
    described = save_index(index, snapshot.folder / "index-1.faiss")
    manifest = snapshot.manifest.changed(index=described)
    manifest.save(snapshot.folder)
    again = load_index(Snapshot.open(snapshot.folder))
    queries = clustered(9, 16, 3).astype(np.float32)
    np.testing.assert_array_equal(index.search(queries, 5)[1], again.search(queries, 5)[1])
    (snapshot.folder / "index-1.faiss").write_bytes(b"broken")
    with pytest.raises(StoreDamagedError, match=r"index-1\.faiss"):
        load_index(Snapshot.open(snapshot.folder))


def test_small_stores_are_searched_exactly_and_large_ones_are_compressed():
    assert choose_factory(30_000, 512) == "Flat"
    assert choose_factory(30_001, 512).startswith("PCA96,IVF")
    assert choose_factory(31_000, 512) == "PCA96,IVF512,PQ96x4fs"
    assert choose_factory(100_000, 256) == "PCA96,IVF1024(PQ48x4fs,RFlat),PQ96x4fs"
    assert choose_factory(10**6, 512) == "PCA96,IVF4096(PQ48x4fs,RFlat),PQ96x4fs"
    assert choose_factory(10**6, 1024) == "PCA128,IVF4096(PQ64x4fs,RFlat),PQ128x4fs"
    assert "PQ50x4fs" in choose_factory(10**6, 50)


def test_an_index_unknown_to_faiss_is_refused(tmp_path):
    snapshot = make_store(tmp_path / "s", clustered(100, 8))
    for factory in ("Nonsense", "IVF1000,Flat", "IVF4,PQ7"):
        with pytest.raises(SettingError):
            build_index(snapshot, factory, 1)


def test_a_search_without_queries_is_empty(tmp_path):
    snapshot = make_store(tmp_path / "s", clustered(10, 8))
    assert len(Retriever(snapshot).search(torch.zeros(0, 8), 4)) == 0


@pytest.mark.parametrize("factory", ["Flat", "IVF16,Flat"])
def test_int8_keys_are_close_to_the_original_keys(tmp_path, factory):
    keys = clustered(2000, 32)
    exact = make_store(tmp_path / "exact", keys)
    manifest = Manifest(model={}, languages=Languages("de", "en"), width=32, key_type="int8")
    (tmp_path / "small").mkdir()
    for start in (0, 1000):  # the first commit sets the range
        part = keys[start : start + 1000]
        data = CommitData(
            [SentencePair(f"source {start + i}", "x") for i in range(1000)],
            np.ones(1000, np.int64),
            part,
            np.zeros(1000, np.int32),
            np.ones(1000, np.float16),
            np.zeros(1000, np.uint16),
        )
        manifest = append_commit(tmp_path / "small", manifest, data).changed()
    manifest.save(tmp_path / "small")
    small = Snapshot.open(tmp_path / "small")
    assert small.keys.nbytes == 2000 * 32
    near_to = exact.float_keys(slice(None))
    errors = np.abs(small.float_keys(slice(None)) - near_to)
    assert errors[:1000].max() < 0.1
    assert np.quantile(errors, 0.999) < 0.1
    queries = torch.from_numpy(near_to[:50] + 0.1)
    index = build_index(small, factory, 16)
    found, expected = Retriever(small, index).search(queries, 8), Retriever(exact).search(queries, 8)
    hits = [np.isin(a, b).mean() for a, b in zip(expected.entry_ids.numpy(), found.entry_ids.numpy(), strict=True)]
    assert np.mean(hits) > 0.9
    # The distances of faiss are those of the decoded keys.
    measured = small.keys_of(found.entry_ids).sub(queries.unsqueeze(1)).square().sum(2)
    torch.testing.assert_close(found.squared_distances, measured, rtol=1e-3, atol=1e-3)
    assert small.keys_of(torch.tensor([[-1, 3]]))[0, 0].abs().sum() == 0


def test_with_coded_centroids_every_entry_is_in_the_list_of_its_nearest_centroid(tmp_path):
    keys = clustered(4000, 16)
    snapshot = make_store(tmp_path / "s", keys)
    index = build_index(snapshot, "IVF64(PQ8x4fs,RFlat),PQ16x4fs", 8)
    index.add(clustered(500, 16, 5).astype(np.float32))
    inverted = faiss.extract_index_ivf(index.handle)
    coarse: Any = faiss.downcast_index(inverted.quantizer)
    assert coarse.k_factor == 2, "reset after adding"
    centroids = faiss.downcast_index(coarse.refine_index).reconstruct_n(0, 64)
    stored = np.concatenate([keys, clustered(500, 16, 5)]).astype(np.float32)
    nearest = ((stored[:, None] - centroids[None]) ** 2).sum(axis=2).argmin(axis=1)
    sizes = [inverted.invlists.list_size(number) for number in range(64)]
    assert np.abs(np.bincount(nearest, minlength=64) - sizes).sum() <= 0.01 * len(stored)
    described = save_index(index, snapshot.folder / "index-1.faiss")
    again = load_faiss_index(snapshot, replace(described, num_entries=4500))
    queries = clustered(40, 16, 3).astype(np.float32)
    np.testing.assert_array_equal(index.search(queries, 5)[1], again.search(queries, 5)[1])
    exact = ((queries[:, None] - stored[None]) ** 2).sum(axis=2).argsort(axis=1)[:, :5]
    found = index.search(queries, 50)[1]
    assert np.mean([np.isin(exact[row], found[row]).mean() for row in range(40)]) > 0.9
