"""Searching the entries of chosen sentences: against brute force, in batches and threads, and as a part of a store."""

import multiprocessing
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nearmt.compiled.dots import LANES
from nearmt.datastore import Filter, Manifest, Snapshot
from nearmt.datastore.columns import CommitData, append_commit
from nearmt.errors import SettingError
from nearmt.retrieval import arranging, nearest, threads
from nearmt.retrieval.index.exact import StreamedIndex
from nearmt.retrieval.indexing import IndexSettings, index_snapshot
from nearmt.retrieval.merged import MergedRetriever
from nearmt.retrieval.modes import CombinedRetriever, StoreRetriever, following_retriever, open_retriever
from nearmt.retrieval.reader import Reader
from nearmt.retrieval.search import Retriever
from nearmt.retrieval.sentences.retriever import SentenceRetriever
from properties import examples
from synthetic_stores import clustered, extended, make_store

SENTENCES, PER_SENTENCE = 60, 4
KINDS: dict[str, dict[str, Any]] = {
    "reduced to 7 bytes": {"key_type": "int8", "dims": 7},
    "whole bytes": {"key_type": "int8"},
    "float16": {"key_type": "float16"},
    "reduced float32": {"key_type": "float32", "dims": 9},
}


def word(number: int) -> str:
    """A word of one sentence: without digits, which are a term of their own."""
    return f"wort{chr(97 + number // 26)}{chr(97 + number % 26)}"


def group(number: int) -> str:
    return f"gruppe{'abcd'[number]}"


def some_store(folder: Path, width: int = 20, retrieval: str = "sentences", **kind) -> Snapshot:
    """Sentences of four groups; all have one word in common."""
    texts = [f"alle {group(number % 4)} {word(number)}" for number in range(SENTENCES)]
    keys = clustered(SENTENCES * PER_SENTENCE, width)
    return make_store(folder, keys, PER_SENTENCE, texts, retrieval=retrieval, **kind)


@pytest.fixture(scope="module", params=KINDS)
def snapshot(request, tmp_path_factory) -> Snapshot:
    return some_store(tmp_path_factory.mktemp("kind") / "s", **KINDS[request.param])


@pytest.fixture(scope="module")
def queries() -> torch.Tensor:
    return torch.from_numpy(clustered(50, 20, 3)).float()


def reference(query, keys, k):
    """Squared distances and places, nearest first; of equals the first."""
    distances = ((query[None] - keys.astype(np.float64)) ** 2).sum(axis=1)
    order = np.argsort(distances, kind="stable")[:k]
    return distances[order], order


@examples(80)
@given(st.data())
def test_the_compiled_search_equals_brute_force(data):
    """Whole numbers, so that sums are exact and there are many ties."""
    rng = np.random.default_rng(data.draw(st.integers(0, 1 << 20)))
    dims = 2 * data.draw(st.integers(1, 70))
    is_coded = data.draw(st.booleans())
    sizes = data.draw(st.lists(st.sampled_from([0, 1, 3, 16, 40, 300, 600]), min_size=1, max_size=5))
    unit = LANES if is_coded else 1
    begins = unit * np.concatenate([[0], np.cumsum([-(-size // unit) for size in sizes])]).astype(np.int64)
    low, high = data.draw(st.sampled_from([(0, 3), (254, 256), (0, 256), (127, 130)]))
    used = data.draw(st.integers(1, dims))  # the others are padding
    entries = np.zeros((sum(sizes), dims), np.uint8)
    entries[:, :used] = rng.integers(low, high, (len(entries), used))
    subsets = np.sort(rng.integers(0, len(sizes), data.draw(st.integers(1, 13))))
    queries = np.zeros((len(subsets), dims), np.float32)
    outside = data.draw(st.sampled_from([0, 0, 300, 20_000]))  # a query may be far from all keys
    queries[:, :used] = rng.integers(low - outside, high + outside, (len(subsets), used))
    k = data.draw(st.sampled_from([1, 2, 8, 64]))
    first = data.draw(st.integers(0, len(subsets)))
    distances = np.full((len(subsets), k), np.inf, np.float32)
    places = np.full((len(subsets), k), -1, np.int64)
    firsts = np.concatenate([[0], np.cumsum(sizes)])  # of each subset, in `entries`
    if is_coded:
        keys = np.zeros((begins[-1] // LANES, dims // 2, 2 * LANES), np.uint8)
        norms = np.full(begins[-1], np.inf, np.float32)
        for subset, slot in enumerate(begins[:-1]):
            ends = firsts[subset : subset + 2]
            slots = np.zeros(begins[-1], np.int64), np.zeros(begins[-1], np.int64)
            arranging.gather(entries, np.arange(len(entries)), ends[:1], ends[1:], slot, keys, norms, *slots)
        arrays: tuple[np.ndarray, ...] = (keys, norms)
    else:
        arrays = (entries.astype(np.float32),)
    search: Any = nearest.nearest_codes if is_coded else nearest.nearest_floats
    for start, end in ((0, first), (first, len(subsets))):
        search(queries, start, end, subsets, begins, *arrays, distances, places)
    for row, subset in enumerate(subsets.tolist()):
        expected, order = reference(queries[row], entries[firsts[subset] : firsts[subset + 1]], k)
        if outside <= 300:  # all sums are exact
            assert places[row, : len(order)].tolist() == (begins[subset] + order).tolist()
        np.testing.assert_allclose(distances[row, : len(order)], expected, rtol=1e-6)
        assert (places[row, len(order) :] == -1).all()


@examples(30)
@given(st.data())
def test_rounding_the_query_hardly_changes_distances(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 1 << 20)))
    dims = 2 * data.draw(st.integers(20, 600))
    entries = rng.integers(0, 256, (32, dims)).astype(np.uint8)
    queries = (entries[:4] + rng.normal(0, 20, (4, dims))).astype(np.float32)
    keys, norms = np.zeros((2, dims // 2, 2 * LANES), np.uint8), np.full(32, np.inf, np.float32)
    arranging.gather(
        entries, np.arange(32), np.array([0]), np.array([32]), 0, keys, norms, *np.zeros((2, 32), np.int64)
    )
    distances, places = np.full((4, 8), np.inf, np.float32), np.full((4, 8), -1, np.int64)
    nearest.nearest_codes(queries, 0, 4, np.zeros(4, np.int64), np.array([0, 32]), keys, norms, distances, places)
    for row in range(4):
        expected, order = reference(queries[row], entries, 8)
        np.testing.assert_allclose(distances[row], expected, rtol=1e-3)
        assert places[row, 0] == order[0] == row


def test_a_search_of_all_sentences_is_an_exact_search(snapshot, queries):
    everything = SentenceRetriever(snapshot, max_entries=10**9).start(["alle"])
    near = everything.search(queries, torch.zeros(len(queries)).long(), 8)
    exact = Retriever(snapshot, StreamedIndex(snapshot)).search(queries, 8)
    torch.testing.assert_close(near.squared_distances, exact.squared_distances, rtol=1e-3, atol=1e-3)
    assert (near.entry_ids == exact.entry_ids).float().mean() > 0.98  # bytes are compared without rounding to float32
    same = near.entry_ids == exact.entry_ids
    assert torch.equal(near.token_ids[same], exact.token_ids[same])


def test_arrays_for_compiled_mixtures_hold_what_a_search_finds(snapshot, queries):
    search = SentenceRetriever(snapshot).start(["gruppeb", "wortah", "unbekannt"])
    rows = (torch.arange(50) // 20).clamp(max=2)
    near, arrays = search.search(queries, rows, 16), search.search_arrays(queries, rows, 16).filled().arrays
    assert arrays.counts.tolist() == near.found.sum(dim=1).tolist()
    assert set(arrays.counts.tolist()) == {16, 4, 0}
    found = near.found.numpy()
    assert (arrays.squared_distances[found] == near.squared_distances.numpy()[found]).all()
    assert (arrays.token_ids[found] == near.token_ids.numpy()[found]).all()
    assert (arrays.probabilities[found] == snapshot.probabilities_of(near.entry_ids).numpy()[found]).all()


def test_only_entries_of_chosen_sentences_are_found(snapshot, queries):
    texts = ["gruppeb", "wortah", "grupped wortai", "unbekannt"]
    rows = torch.arange(50) % 4
    order = rows.argsort(stable=True)
    near = SentenceRetriever(snapshot).start(texts).search(queries, rows[order], 16)
    for row, source in enumerate(rows[order].tolist()):
        ids = near.entry_ids[row][near.found[row]]
        sentences = set(snapshot.sentence_ids_of(ids.numpy()).tolist())
        allowed = [set(range(1, 60, 4)), {7}, {8, *range(3, 60, 4)}, set()][source]
        assert sentences <= allowed
        assert len(ids) == min(16, 4 * len(allowed))
        keys = snapshot.float_keys(ids.numpy())
        point = snapshot.project(queries[row : row + 1]).numpy()
        np.testing.assert_allclose(
            near.squared_distances[row][near.found[row]], ((keys - point) ** 2).sum(1), rtol=1e-3
        )
        assert (near.entry_ids[row][~near.found[row]] == -1).all()
        assert near.squared_distances[row].isfinite().all()


def test_a_batch_finds_what_single_sources_find(snapshot, queries):
    retriever = SentenceRetriever(snapshot)
    texts = ["gruppeb wortaf", "unbekannt", "alle", "gruppec", "wortaj wortak"]
    rows = torch.arange(5).repeat_interleave(torch.tensor([7, 5, 4, 9, 25]))
    together = retriever.start(texts).search(queries, rows, 6)
    for source, text in enumerate(texts):
        mine = rows == source
        alone = retriever.start([text]).search(queries[mine], torch.zeros(int(mine.sum())).long(), 6)
        for part in ("squared_distances", "entry_ids", "found"):
            assert torch.equal(getattr(together, part)[mine], getattr(alone, part))
        assert torch.equal(together.token_ids[mine][alone.found], alone.token_ids[alone.found])


def test_several_threads_find_the_same(snapshot, queries, monkeypatch):
    retriever = SentenceRetriever(snapshot)
    texts, rows = ["gruppeb wortaf", "alle"], torch.arange(2).repeat_interleave(25)
    alone = retriever.start(texts).search(queries, rows, 6)
    with monkeypatch.context() as patch:
        patch.setattr(threads, "_ROWS_PER_THREAD", 3)
        patch.setattr(torch, "get_num_threads", lambda: 5)
        threaded = retriever.start(texts).search(queries, rows, 6)
    with ThreadPoolExecutor(4) as pool:
        shared = list(pool.map(lambda _: retriever.start(texts).search(queries, rows, 6), range(16)))
    for other in (threaded, *shared):
        assert torch.equal(alone.entry_ids, other.entry_ids)
        assert torch.equal(alone.squared_distances, other.squared_distances)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_can_search(tmp_path, queries):
    """The threads of the parent do not exist in the child."""
    retriever = SentenceRetriever(some_store(tmp_path / "s"))
    texts, rows = ["gruppea", "alle"], torch.arange(2).repeat_interleave(25)
    expected = retriever.start(texts).search(queries, rows, 6).entry_ids.tolist()
    here, there = multiprocessing.Pipe()

    def search() -> None:
        there.send(retriever.start(texts).search(queries, rows, 6).entry_ids.tolist())

    child = multiprocessing.get_context("fork").Process(target=search)
    child.start()
    try:
        assert here.poll(60), "the child waits for a thread"
        assert here.recv() == expected
    finally:
        child.kill()
        child.join()


def test_texts_are_needed(snapshot):
    with pytest.raises(SettingError, match="texts of the sources are needed"):
        SentenceRetriever(snapshot).start(None)
    assert len(SentenceRetriever(snapshot).start([]).subsets.values) == 0


def found_sentences(retriever, text: str, excluded=None) -> set[int]:
    """The sentences whose entries a search finds with any number of neighbours."""
    state = torch.zeros(1, retriever.snapshot.manifest.width)
    near = retriever.start([text], excluded).search(state, torch.zeros(1).long(), 400)
    return set(retriever.snapshot.sentence_ids_of(near.entry_ids[near.found].numpy()).tolist())


@pytest.mark.parametrize("retrieval", ["sentences", "both", "tokens"])
def test_excluded_removed_and_filtered_sentences_are_not_found(tmp_path, retrieval, monkeypatch):
    some_store(tmp_path / "s", retrieval=retrieval)
    snapshot = extended(tmp_path / "s", clustered(2, 20), [5, 9], ["alle gruppeb neu", "alle gruppec neu"])
    retriever = open_retriever(snapshot)
    everything = set(range(SENTENCES + 2)) - {5, 9}
    assert found_sentences(retriever, "alle") == everything
    assert found_sentences(retriever, "alle", [np.array([1, 60])]) == everything - {1, 60}
    mask = np.arange(SENTENCES + 2) % 2 == 0
    monkeypatch.setattr(Filter, "sentences", lambda self, snapshot: mask & snapshot.live_sentences)
    monkeypatch.setattr(Filter, "origin_hashes", lambda self, snapshot: None)
    narrower = retriever.filtered(Filter(only=("x",)))
    assert found_sentences(narrower, "alle") == {number for number in everything if number % 2 == 0}
    assert found_sentences(retriever, "alle") == everything, "the other retriever is not changed"
    assert retriever.filtered(Filter()) is retriever


def by_sentences(retriever: StoreRetriever) -> SentenceRetriever:
    """The part of a retriever that searches by sentences."""
    if isinstance(retriever, CombinedRetriever):
        return retriever.by_sentences
    assert isinstance(retriever, SentenceRetriever)
    return retriever


@pytest.mark.parametrize("retrieval", ["sentences", "both"])
def test_additions_and_removals_are_seen_by_the_next_refresh(tmp_path, retrieval):
    snapshot = some_store(tmp_path / "s", retrieval=retrieval, key_type="int8", dims=7)
    index_snapshot(snapshot, IndexSettings(retrieval=retrieval)).added_to(snapshot.manifest).save(tmp_path / "s")
    reader = Reader(tmp_path / "s")
    old = reader.retriever
    assert type(old) is (SentenceRetriever if retrieval == "sentences" else CombinedRetriever)
    chosen = by_sentences(old)
    assert found_sentences(chosen, "ganzneu") == set()
    extended(tmp_path / "s", clustered(3, 20, 8), [7], ["ganzneu eins", "ganzneu zwei", "wortah"])
    assert reader.refresh()
    new = by_sentences(reader.retriever)
    assert found_sentences(new, "ganzneu") == {60, 61}
    assert found_sentences(new, "wortah") == {62}
    assert found_sentences(chosen, "wortah") == {7}, "an older retriever sees its own snapshot"
    assert not reader.refresh()


def test_a_reader_follows_a_change_of_the_retrieval(tmp_path):
    snapshot = some_store(tmp_path / "s", retrieval="sentences")
    retriever = open_retriever(snapshot)
    for retrieval, kind in (("tokens", Retriever), ("both", CombinedRetriever), ("sentences", SentenceRetriever)):
        changed = Snapshot(tmp_path / "s", snapshot.manifest.changed(retrieval=retrieval))
        retriever = following_retriever(retriever, changed)
        assert type(retriever) is kind
        assert retriever.retrieval == retrieval


def test_both_ways_together_find_the_nearest_of_either(tmp_path, queries):
    snapshot = some_store(tmp_path / "s", key_type="int8", dims=7)
    settings = IndexSettings("IVF16,PQ7x4", num_probes=1, retrieval="both")
    index_snapshot(snapshot, settings).added_to(snapshot.manifest).save(tmp_path / "s")
    retriever = open_retriever(Snapshot.open(tmp_path / "s"))
    assert isinstance(retriever, CombinedRetriever)
    texts, rows = ["gruppeb", "unbekannt"], torch.arange(2).repeat_interleave(25)
    both = retriever.start(texts).search(queries, rows, 6)
    ways = [retriever.by_tokens.search(queries, 6), retriever.by_sentences.start(texts).search(queries, rows, 6)]
    gained = 0
    for row in range(50):
        distances: dict[int, float] = {}
        for near in ways:
            for entry, distance in zip(near.entry_ids[row].tolist(), near.squared_distances[row].tolist(), strict=True):
                if entry >= 0:
                    distances.setdefault(entry, distance)
        best = sorted(distances, key=distances.__getitem__)[:6]
        assert both.entry_ids[row][both.found[row]].tolist() == best
        assert len(set(best)) == len(best)
        gained += best != ways[0].entry_ids[row][ways[0].found[row]].tolist()
    assert gained, "the sentences added something"
    assert torch.equal(both.entry_ids[25:], ways[0].entry_ids[25:])


def test_stores_with_different_retrievals_are_searched_together(tmp_path):
    spread = np.random.default_rng(1).standard_normal((5, 20))  # keys of five dimensions: no projection leaves any out
    kinds: list[tuple[str, dict[str, Any]]] = [
        ("sentences", KINDS["reduced to 7 bytes"]),
        ("tokens", {}),
        ("both", KINDS["reduced float32"]),
    ]
    snapshots = [
        make_store(
            tmp_path / retrieval,
            clustered(240, 5, seed) @ spread,
            4,
            [f"alle {retrieval} {number}" for number in range(60)],
            retrieval=retrieval,
            **kind,
        )
        for seed, (retrieval, kind) in enumerate(kinds, 1)
    ]
    retrievers = [open_retriever(snapshot) for snapshot in snapshots]
    merged = MergedRetriever(retrievers)
    rows = torch.zeros(50).long()
    queries = torch.from_numpy(clustered(50, 5, 9) @ spread).float()
    near = merged.start(["alle"]).search(queries, rows, 8)
    assert near.found.all()
    assert set((near.entry_ids >> 44).flatten().tolist()) == {0, 1, 2}
    own = [retriever.start(["alle"]).search(queries, rows, 8).squared_distances for retriever in retrievers]
    torch.testing.assert_close(near.squared_distances, torch.hstack(own).sort(dim=1).values[:, :8])
    assert merged.keys_of(near.entry_ids).shape == (50, 8, 7)
    unknown = merged.start(["unbekannt"]).search(queries, rows, 8)
    assert set((unknown.entry_ids >> 44).flatten().tolist()) == {1, 2}
    with pytest.raises(SettingError, match="texts of the sources"):
        merged.start(None)


def test_a_pair_that_the_first_store_did_not_find_is_found_in_the_second(tmp_path):
    """Both stores hold the same pair, as their first; the first store does not choose it for this source."""
    keys = clustered(2, 20)
    stores = [
        make_store(tmp_path / name, keys, sources=["gleich", "anders"], retrieval=name)
        for name in ("sentences", "tokens")
    ]
    merged = MergedRetriever([open_retriever(store) for store in stores])
    queries = torch.from_numpy(keys).float()
    near = merged.start(["unbekannt"]).search(queries, torch.zeros(2).long(), 2)
    assert sorted((near.entry_ids[0] % (1 << 44)).tolist()) == [0, 1]
    near = merged.start(["gleich"]).search(queries[:1], torch.zeros(1).long(), 4)
    assert near.entry_ids[0][near.found[0]].tolist() == [0, (1 << 44) + 1], "found once"


def test_a_store_of_removed_sentences_finds_nothing(tmp_path):
    some_store(tmp_path / "s")
    manifest = Manifest.load(tmp_path / "s")
    data = CommitData.without_entries(20, removed_units=list(range(SENTENCES)))
    append_commit(tmp_path / "s", manifest, data).changed().save(tmp_path / "s")
    retriever = SentenceRetriever(Snapshot.open(tmp_path / "s"))
    near = retriever.start(["alle"]).search(torch.zeros(2, 20), torch.zeros(2).long(), 3)
    assert not near.found.any()
    assert near.entry_ids.tolist() == [[-1] * 3] * 2
    assert near.squared_distances.isfinite().all()
