"""The index of lists: against brute force, in batches and threads, with additions, removals and filters."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nearmt.building import compaction
from nearmt.datastore import Filter, IndexRecord, Manifest, Snapshot, verify
from nearmt.datastore.columns import CommitData, append_commit
from nearmt.errors import SettingError, StoreDamagedError
from nearmt.retrieval import nearest, threads
from nearmt.retrieval.index.exact import StreamedIndex
from nearmt.retrieval.indexing import IndexSettings, index_snapshot
from nearmt.retrieval.lists import building, clusters, index
from nearmt.retrieval.lists.clusters import Clusters
from nearmt.retrieval.lists.index import ListIndex, Part
from nearmt.retrieval.lists.retriever import ListRetriever
from nearmt.retrieval.merged import MergedRetriever
from nearmt.retrieval.modes import CombinedRetriever, StoreRetriever, following_retriever, open_retriever
from nearmt.retrieval.neighbors import Neighbors, UnfilledArrays
from nearmt.retrieval.reader import Reader
from nearmt.retrieval.search import Retriever
from properties import examples
from synthetic_stores import clustered, extended, make_store

ENTRIES, PER_SENTENCE, WIDTH, DIMS = 1200, 4, 20, 7
EVERY_LIST = 1 << 40
REDUCED: dict[str, Any] = {"key_type": "int8", "dims": DIMS}
ALL = np.s_[:]


def made(folder: Path, factory: str | None = "lists:20", count: int = ENTRIES, **settings) -> Snapshot:
    """A store with an index of lists."""
    snapshot = make_store(folder, clustered(count, WIDTH), PER_SENTENCE, **REDUCED)
    return indexed(snapshot, factory, **settings)


def indexed(snapshot: Snapshot, factory: str | None, **settings) -> Snapshot:
    chosen = IndexSettings(factory, **{"retrieval": "tokens", **settings})
    index_snapshot(snapshot, chosen).added_to(snapshot.manifest).save(snapshot.folder)
    return Snapshot.open(snapshot.folder)


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory) -> Snapshot:
    return made(tmp_path_factory.mktemp("lists") / "s")


@pytest.fixture(scope="module")
def two_levels(tmp_path_factory) -> Snapshot:
    return made(tmp_path_factory.mktemp("levels") / "s", "lists:300", 3000)


@pytest.fixture(scope="module")
def queries() -> torch.Tensor:
    return torch.from_numpy(clustered(50, WIDTH, 3)).float()


def exact(snapshot: Snapshot, queries: torch.Tensor, k: int, excluded=None) -> Neighbors:
    return Retriever(snapshot, StreamedIndex(snapshot)).search(queries, k, excluded)


def check_exact(retriever: StoreRetriever, queries: torch.Tensor, k: int, excluded=None, is_allowed=None) -> None:
    """Check that a search finds what brute force finds among the live entries that are allowed."""
    assert isinstance(retriever, ListRetriever)
    snapshot = retriever.snapshot
    found = retriever.search(queries, k, excluded)
    keys, points = snapshot.float_keys(ALL), snapshot.project(queries).numpy()
    may_find = snapshot.entry_mask(snapshot.live_sentences)
    if is_allowed is not None:
        may_find &= is_allowed
    sentences = snapshot.sentence_ids_of(np.arange(len(snapshot)))
    for row, point in enumerate(points):
        mask = may_find.copy()
        if excluded is not None and excluded[row] is not None:
            mask &= ~np.isin(sentences, excluded[row])
        expected = np.sort(((keys[mask] - point) ** 2).sum(1))[:k]
        count = int(found.found[row].sum())
        assert count == len(expected)
        assert found.found[row, :count].all(), "missing ones come last"
        np.testing.assert_allclose(found.squared_distances[row, :count], expected, rtol=2e-3, atol=2e-3)
        ids = found.entry_ids[row, :count].numpy()
        assert mask[ids].all()
        assert len(set(ids.tolist())) == count
        assert (found.entry_ids[row, count:] == -1).all()
        assert (found.squared_distances[row, count:] == (found.squared_distances[row, count - 1] if count else 0)).all()
        assert found.token_ids[row, :count].tolist() == snapshot.values[ids].tolist()


def assert_same(found: Neighbors, other: Neighbors) -> None:
    for part in ("squared_distances", "entry_ids", "found"):
        assert torch.equal(getattr(found, part), getattr(other, part)), part
    assert torch.equal(found.token_ids[found.found], other.token_ids[other.found])


def index_of(keys: np.ndarray, num_lists: int, num_stored: int, num_probes: int) -> ListIndex:
    """The index of the first entries, as if it came from files."""
    found = Clusters.trained(keys[:num_stored], num_lists)
    stored = Part.of(keys[:num_stored], found.assign(keys[:num_stored]), len(found), 0)
    entries = stored.entries._replace(ids=stored.entries.ids.astype(np.uint32))
    return ListIndex.starting_with(found, Part(stored.begins, entries), num_stored, num_probes)


def searched(lists: index.Lists, queries: np.ndarray, k: int, border: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Distances and ids that the compiled search finds, in two parts."""
    dims = 2 * lists.clusters[0].shape[1]
    padded = np.zeros((len(queries), dims), np.float32)
    padded[:, : queries.shape[1]] = queries
    distances, ids = np.full((len(queries), k), np.inf, np.float32), np.full((len(queries), k), -1, np.int64)
    probes = np.array([max(clusters.PROBED_GROUPS, lists.num_probes), lists.num_probes])
    for first, last in ((0, border), (border, len(queries))):
        nearest.nearest_in_lists(padded, first, last, probes, lists.clusters, lists.parts, distances, ids)
    return distances, ids


@examples(60)
@given(st.data())
def test_a_search_of_all_lists_equals_brute_force(data):
    """Whole numbers, so that sums are exact and there are many ties, which are sorted by entry id."""
    rng = np.random.default_rng(data.draw(st.integers(0, 1 << 20)))
    dims = data.draw(st.integers(1, 40))
    num_stored = data.draw(st.sampled_from([0, 1, 15, 16, 17, 300, 900]))
    num_lists = data.draw(st.sampled_from([1, 2, 7, 40, 257, 300]))
    added = data.draw(st.integers(0, 90))
    low, high = data.draw(st.sampled_from([(0, 3), (254, 256), (0, 256), (100, 110)]))
    keys = rng.integers(low, high, (num_stored + added, dims)).astype(np.uint8)
    queries = rng.integers(low, high, (data.draw(st.integers(1, 11)), dims)).astype(np.float32)
    k = data.draw(st.sampled_from([1, 2, 8, 64, 1000]))
    share = data.draw(st.sampled_from([None, 0.0, 0.1, 0.9]))
    allowed = None if share is None else rng.random(len(keys)) < share
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index, "_AT_ONCE", 32)
        patch.setattr(index, "_FEW", data.draw(st.sampled_from([0, 8192])))
        patch.setattr(index, "_MAX_PROBES", EVERY_LIST)
        whole = index_of(keys, num_lists, num_stored, EVERY_LIST).following(keys)
        lists = whole.search_parameters(keys, allowed)
    distances, ids = searched(lists, queries, k, data.draw(st.integers(0, len(queries))))
    may_find = np.arange(len(keys)) if allowed is None else np.flatnonzero(allowed)
    for row, query in enumerate(queries):
        expected = ((keys[may_find].astype(np.float64) - query) ** 2).sum(1)
        order = np.argsort(expected, kind="stable")[:k]
        assert ids[row, : len(order)].tolist() == may_find[order].tolist()
        assert distances[row, : len(order)].tolist() == expected[order].tolist()
        assert (ids[row, len(order) :] == -1).all()


@examples(30)
@given(st.data())
def test_an_index_that_follows_is_the_same_as_one_opened_afresh(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 1 << 20)))
    keys = rng.integers(0, 256, (400, 5)).astype(np.uint8)
    num_stored = data.draw(st.sampled_from([0, 1, 100]))
    sizes = data.draw(st.lists(st.integers(num_stored, 400), min_size=1, max_size=6))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index, "_AT_ONCE", 32)
        first = following = index_of(keys, 9, num_stored, 2)
        for size in sizes:  # grows and shrinks: an older snapshot may be opened with the newest index
            following = following.following(keys[:size])
            afresh = first.following(keys[:size])
            assert following.recent_lists.tolist() == afresh.recent_lists.tolist()
            for one, other in ((following.recent, afresh.recent), (following.newest, afresh.newest)):
                assert all((a == b).all() for a, b in zip(one.arrays, other.arrays, strict=True))
            assert len(following.recent_lists) == (size - num_stored) // 32 * 32


@examples(20)
@given(st.data())
def test_every_entry_is_in_one_list(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 1 << 20)))
    count, num_lists = data.draw(st.integers(0, 700)), data.draw(st.sampled_from([1, 5, 300, 10_000]))
    is_same = data.draw(st.booleans())  # equal keys leave most lists empty
    keys = np.zeros((count, 3), np.uint8) if is_same else rng.integers(0, 256, (count, 3)).astype(np.uint8)
    found = index_of(keys, num_lists, count, 1)
    entries, begins = found.stored.entries, found.stored.begins
    is_full = np.isfinite(entries.norms)
    assert sorted(entries.ids[is_full].tolist()) == list(range(count))
    assert begins[-1] == len(entries.keys)
    assert 1 <= len(found.clusters) == len(begins) - 1 == found.clusters.lists_per_group.sum()
    allowed = rng.random(count) < 0.5
    narrow, sizes = found.stored.only(allowed)
    assert sizes.sum() == allowed.sum()
    assert (sizes <= 16 * np.diff(begins)).all()
    assert sorted(entries.ids[np.isfinite(narrow.entries.norms)].tolist()) == np.flatnonzero(allowed).tolist()


@pytest.mark.parametrize("k", [1, 8, ENTRIES + 5])
def test_a_store_whose_lists_are_all_probed_is_searched_exactly(tmp_path, queries, k):
    retriever = open_retriever(made(tmp_path / "s", num_probes=1 << 40))
    assert isinstance(retriever, ListRetriever)
    check_exact(retriever, queries[:10], k)


@pytest.mark.parametrize("levels", ["snapshot", "two_levels"])
def test_the_few_probed_lists_hold_nearly_all_neighbors(levels, request, queries):
    found = request.getfixturevalue(levels)
    recall = found.manifest.index.recall
    assert recall.mass > 0.95
    near = open_retriever(found).search(queries, 8)
    true = exact(found, queries, 8)
    assert (near.entry_ids.unsqueeze(1) == true.entry_ids.unsqueeze(2)).any(dim=2).float().mean() > 0.7
    same = near.entry_ids == true.entry_ids
    torch.testing.assert_close(near.squared_distances[same], true.squared_distances[same], rtol=2e-3, atol=2e-3)


def test_arrays_for_compiled_mixtures_hold_what_a_search_finds(snapshot, queries):
    search, rows = open_retriever(snapshot).start(None), torch.zeros(50).long()
    near = search.search(queries, rows, 16)
    for number in (50, 20, 50):
        arrays = search.search_arrays(queries[:number], rows[:number], 16).filled().arrays
        assert arrays.counts.tolist() == [16] * number
        assert (arrays.squared_distances == near.squared_distances[:number].numpy()).all()
        assert (arrays.token_ids == near.token_ids[:number].numpy()).all()
        assert (arrays.probabilities == snapshot.probabilities_of(near.entry_ids[:number]).numpy()).all()


@pytest.mark.parametrize("levels", ["snapshot", "two_levels"])
def test_a_row_finds_the_same_alone_in_another_order_and_in_several_threads(levels, request, queries, monkeypatch):
    retriever = open_retriever(request.getfixturevalue(levels))
    together = retriever.search(queries, 6)
    order = torch.from_numpy(np.random.default_rng(1).permutation(50))
    assert_same(retriever.search(queries[order], 6), together.rows(order))
    for row in (0, 7, 49):
        assert_same(retriever.search(queries[row : row + 1], 6), together.rows(slice(row, row + 1)))
    monkeypatch.setattr(threads, "_ROWS_PER_THREAD", 3)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 5)
    assert_same(retriever.search(queries, 6), together)
    assert len(retriever.search(queries[:0], 6)) == 0


def test_a_row_does_not_depend_on_what_other_rows_exclude(snapshot, queries):
    retriever = open_retriever(snapshot)
    excluded = [np.arange(40) if row % 2 else None for row in range(50)]
    some, plain = retriever.search(queries, 6, excluded), retriever.search(queries, 6)
    rows = torch.arange(0, 50, 2)
    assert_same(some.rows(rows), plain.rows(rows))


# Changes


def test_additions_are_found_by_the_next_refresh(tmp_path, queries):
    made(tmp_path / "s", num_probes=1 << 40)
    reader = Reader(tmp_path / "s")
    old = reader.retriever
    late = clustered(3, WIDTH, 8)
    extended(tmp_path / "s", late, [])
    assert reader.refresh()
    new = reader.retriever
    assert isinstance(new, ListRetriever)
    assert new.index.stored is old.index.stored, "the files are not read again"
    near = new.search(torch.from_numpy(late).float(), 1)
    assert near.entry_ids[:, 0].tolist() == [ENTRIES, ENTRIES + 1, ENTRIES + 2]
    check_exact(new, queries[:10], 8)
    assert int(old.search(torch.from_numpy(late).float(), 8).entry_ids.max()) < ENTRIES, "its own snapshot"


def test_additions_across_the_borders_of_batches_are_the_same_at_once_and_one_by_one(tmp_path, queries, monkeypatch):
    snapshot = made(tmp_path / "s", num_probes=4)
    late, following = clustered(1100, WIDTH, 1), open_retriever(snapshot)
    for first, last in ((0, 1), (1, 511), (511, 512), (512, 513), (513, 1100)):
        snapshot = extended(tmp_path / "s", late[first:last], [])
        following = following_retriever(following, snapshot)
        afresh = open_retriever(snapshot)
        assert isinstance(following, ListRetriever)
        assert len(following.index.recent_lists) == last // 512 * 512
        assert_same(following.search(queries, 8), afresh.search(queries, 8))
        near = following.search(torch.from_numpy(late[first:last]).float(), 1)
        is_itself = near.entry_ids[:, 0] == torch.arange(first, last) + ENTRIES
        assert is_itself.float().mean() > 0.95, "or another entry with the same key"


def test_an_addition_does_not_arrange_earlier_ones_again(tmp_path):
    retriever = open_retriever(made(tmp_path / "s"))
    retriever = following_retriever(retriever, extended(tmp_path / "s", clustered(600, WIDTH, 2), []))
    later = following_retriever(retriever, extended(tmp_path / "s", clustered(1, WIDTH, 3), []))
    assert isinstance(retriever, ListRetriever)
    assert isinstance(later, ListRetriever)
    assert later.index.recent is retriever.index.recent
    assert len(later.index.newest.entries.keys) == 6  # blocks of 16 for 89 entries


@pytest.mark.parametrize("few", [0, 8192])  # by the lists that have such entries, or one by one
def test_removed_entries_are_never_found(tmp_path, queries, few, monkeypatch):
    monkeypatch.setattr(index, "_FEW", few)
    made(tmp_path / "s", num_probes=1 << 40)
    reader = Reader(tmp_path / "s")
    removed = list(range(0, 300, 3))
    snapshot = extended(tmp_path / "s", clustered(700, WIDTH, 8), removed)
    assert reader.refresh()
    check_exact(reader.retriever, queries[:10], 8)
    check_exact(reader.retriever, queries[:3], 3000)
    extended(tmp_path / "s", clustered(2, WIDTH, 9), [1, 301, 999, snapshot.manifest.num_sentences])
    assert reader.refresh()
    check_exact(reader.retriever, queries[:10], 8)
    check_exact(reader.retriever, queries[:3], 3000)
    assert_same(reader.retriever.search(queries, 8), open_retriever(reader.snapshot).search(queries, 8))


def test_one_removal_does_not_reduce_the_number_of_probed_lists(tmp_path, monkeypatch):
    monkeypatch.setattr(index, "_FEW", 10)
    monkeypatch.setattr(index, "_MAX_PROBES", 5)
    snapshot = made(tmp_path / "s", num_probes=9)
    before = open_retriever(snapshot)
    after = following_retriever(before, extended(tmp_path / "s", clustered(1, WIDTH), [3]))
    assert isinstance(before, ListRetriever)
    assert isinstance(after, ListRetriever)
    assert before.lists.num_probes == after.lists.num_probes == 9


def test_a_store_of_removed_sentences_finds_nothing(tmp_path):
    snapshot = made(tmp_path / "s")
    data = CommitData.without_entries(WIDTH, removed_units=list(range(ENTRIES // PER_SENTENCE)))
    append_commit(snapshot.folder, snapshot.manifest, data).changed().save(snapshot.folder)
    near = open_retriever(Snapshot.open(snapshot.folder)).search(torch.zeros(2, WIDTH), 3)
    assert near.entry_ids.tolist() == [[-1] * 3] * 2
    assert near.squared_distances.tolist() == [[0] * 3] * 2


def test_a_store_without_entries_can_be_indexed_and_extended(tmp_path, queries):
    """As a compaction leaves it when everything was removed."""
    snapshot = made(tmp_path / "s", "lists")
    data = CommitData.without_entries(WIDTH, removed_units=list(range(ENTRIES // PER_SENTENCE)))
    append_commit(snapshot.folder, snapshot.manifest, data).changed().save(snapshot.folder)
    compaction.compact(snapshot.folder)
    snapshot = Snapshot.open(snapshot.folder)
    assert (len(snapshot), snapshot.manifest.index.factory) == (0, "lists")
    retriever = open_retriever(snapshot)
    assert not retriever.search(queries, 3).found.any()
    late = clustered(600, WIDTH, 8)
    retriever = following_retriever(retriever, extended(tmp_path / "s", late, []))
    assert isinstance(retriever, ListRetriever)
    check_exact(retriever, queries[:10], 8)


# Parts of a store


def only(monkeypatch, mask: np.ndarray) -> Filter:
    """A filter that leaves the sentences of a mask."""
    monkeypatch.setattr(Filter, "sentences", lambda self, snapshot: mask & snapshot.live_sentences)
    return Filter(only=("x",))


@pytest.mark.parametrize("few", [0, 8192])
@pytest.mark.parametrize("every", [2, 30, 10_000])
def test_a_filter_finds_the_nearest_entries_of_its_part(tmp_path, queries, few, every, monkeypatch):
    monkeypatch.setattr(index, "_FEW", few)
    made(tmp_path / "s", num_probes=1 << 40)
    whole = open_retriever(extended(tmp_path / "s", clustered(700, WIDTH, 8), [6, 7]))
    assert isinstance(whole, ListRetriever)
    mask = np.arange(whole.snapshot.manifest.num_sentences) % every == 0
    part = whole.filtered(only(monkeypatch, mask))
    check_exact(part, queries[:10], 8, is_allowed=whole.snapshot.entry_mask(mask))
    check_exact(whole, queries[:10], 8)
    assert whole.filtered(Filter()) is whole


def test_a_small_part_is_searched_exactly_with_one_probed_list(tmp_path, queries, monkeypatch):
    snapshot = made(tmp_path / "s", num_probes=1)
    retriever = open_retriever(snapshot)
    assert isinstance(retriever, ListRetriever)
    mask = np.arange(snapshot.manifest.num_sentences) % 7 == 0
    check_exact(retriever.filtered(only(monkeypatch, mask)), queries, 8, is_allowed=snapshot.entry_mask(mask))


def test_more_lists_are_probed_in_a_part(two_levels, queries, monkeypatch):
    """As many as it takes to compare about the same number of entries."""
    monkeypatch.setattr(index, "_FEW", 10)
    retriever = open_retriever(two_levels)
    assert isinstance(retriever, ListRetriever)
    mask = np.arange(two_levels.manifest.num_sentences) % 5 == 0
    part = retriever.filtered(only(monkeypatch, mask))
    assert part.lists.num_probes == 5 * retriever.lists.num_probes
    found = part.search(queries, 8)
    allowed = two_levels.entry_mask(mask)
    assert found.found.all()
    assert allowed[found.entry_ids.numpy()].all()
    ids = np.flatnonzero(allowed)
    keys, points = two_levels.float_keys(ids), two_levels.project(queries).numpy()
    hits = 0
    for row, point in enumerate(points):
        true = ids[np.argsort(((keys - point) ** 2).sum(1))[:8]]
        hits += len(set(true) & set(found.entry_ids[row].tolist()))
    assert hits > 0.85 * 400


def test_excluded_sentences_are_not_found_and_others_take_their_place(tmp_path, queries):
    retriever = open_retriever(made(tmp_path / "s", num_probes=1 << 40))
    assert isinstance(retriever, ListRetriever)
    near = retriever.search(queries, 8)
    own = [retriever.snapshot.sentence_ids_of(near.entry_ids[row].numpy()) for row in range(50)]
    excluded = [[own[row], None, np.zeros(0, np.int64), own[row][:1]][row % 4] for row in range(50)]
    check_exact(retriever, queries, 8, excluded)
    assert_same(retriever.search(queries, 8, [None] * 50), near)
    search = retriever.start(None, [np.arange(300), own[0]])
    sources = torch.tensor([1, 0, 1])
    found = search.search(queries[:3], sources, 8)
    assert found.found.sum(dim=1).tolist() == [8, 0, 8]
    arrays = search.search_arrays(queries[:3], sources, 8)
    assert isinstance(arrays, Neighbors)
    assert_same(arrays, found)
    assert isinstance(retriever.start(None, [None]).search_arrays(queries[:1], sources[1:2], 8), UnfilledArrays)


def test_several_stores_are_searched_together(tmp_path):
    spread = np.random.default_rng(1).standard_normal((5, WIDTH))
    kinds = {"lists": "lists:20", "other lists": "lists:300", "faiss": "IVF4,Flat"}
    snapshots = [
        indexed(
            make_store(
                tmp_path / name, clustered(1200, 5, seed) @ spread, 4, [f"{name} {n}" for n in range(300)], **REDUCED
            ),
            factory,
            num_probes=1000,
        )
        for seed, (name, factory) in enumerate(kinds.items(), 1)
    ]
    retrievers = [open_retriever(snapshot) for snapshot in snapshots]
    queries = torch.from_numpy(clustered(30, 5, 9) @ spread).float()
    rows = torch.zeros(30).long()
    near = MergedRetriever(retrievers).start(None).search(queries, rows, 8)
    own = [retriever.start(None).search(queries, rows, 8).squared_distances for retriever in retrievers]
    torch.testing.assert_close(near.squared_distances, torch.hstack(own).sort(dim=1).values[:, :8])
    assert set((near.entry_ids >> 44).flatten().tolist()) == {0, 1, 2}


def test_both_ways_together_find_the_nearest_of_either(tmp_path, queries):
    texts = [f"alle gruppe{'abcd'[n % 4]}" for n in range(300)]
    snapshot = make_store(tmp_path / "s", clustered(ENTRIES, WIDTH), PER_SENTENCE, texts, **REDUCED)
    index_snapshot(snapshot, IndexSettings("lists:30", 1, retrieval="both")).added_to(snapshot.manifest).save(
        snapshot.folder
    )
    reader = Reader(tmp_path / "s")
    extended(tmp_path / "s", clustered(3, WIDTH, 8), [], ["gruppeb neu"] * 3)
    assert reader.refresh()
    retriever = reader.retriever
    assert isinstance(retriever, CombinedRetriever)
    assert isinstance(retriever.by_tokens, ListRetriever)
    both = retriever.start(["gruppeb"]).search(queries, torch.zeros(50).long(), 6)
    ways = [
        retriever.by_tokens.search(queries, 6),
        retriever.by_sentences.start(["gruppeb"]).search(queries, torch.zeros(50).long(), 6),
    ]
    gained = 0
    for row in range(50):
        distances = {
            entry: distance
            for near in ways
            for entry, distance in zip(near.entry_ids[row].tolist(), near.squared_distances[row].tolist(), strict=True)
            if entry >= 0
        }
        best = sorted(distances, key=lambda entry: (distances[entry], entry))[:6]
        assert both.entry_ids[row].tolist() == best
        gained += best != ways[0].entry_ids[row].tolist()
    assert gained, "the sentences added something"


# Settings


def test_lists_are_the_default_of_reduced_bytes_unless_there_are_few(snapshot, tmp_path, monkeypatch):
    default = IndexSettings(retrieval="tokens")
    assert not default.uses_lists(snapshot)
    monkeypatch.setattr(building, "_FEWEST_ENTRIES", 1000)
    assert default.uses_lists(snapshot)
    assert not IndexSettings(memory=1 << 30).uses_lists(snapshot)
    assert not IndexSettings("IVF64,Flat").uses_lists(snapshot)
    assert not replace(default, reranked=200).uses_lists(snapshot), "only other indexes propose candidates"
    assert replace(default, reranked=0).uses_lists(snapshot)
    kinds: list[dict[str, Any]] = [{"key_type": "int8"}, {"key_type": "float16", "dims": DIMS}]
    for number, kind in enumerate(kinds):
        assert not default.uses_lists(make_store(tmp_path / f"{number}", clustered(1200, WIDTH), **kind))
    chosen = indexed(make_store(tmp_path / "s", clustered(1200, WIDTH), **REDUCED), None)
    record = chosen.manifest.index
    assert (record.factory, record.is_chosen, record.num_probes, record.reranked) == ("lists:6", True, 4, 0)
    assert IndexSettings.of(chosen.manifest) == default


@pytest.mark.parametrize("factory", ["lists", "lists:5", "lists:300", "lists:5000"])
@pytest.mark.parametrize("num_probes", [None, 3])
def test_a_store_tells_the_settings_of_its_index(tmp_path, factory, num_probes):
    settings = IndexSettings(factory, num_probes)
    assert settings.retrieval == "tokens"
    snapshot = indexed(make_store(tmp_path / "s", clustered(1200, WIDTH), **REDUCED), factory, num_probes=num_probes)
    record = snapshot.manifest.index
    assert IndexSettings.of(snapshot.manifest) == settings
    assert settings.has_made(record, snapshot)
    others = [
        IndexSettings("lists:7", num_probes),
        IndexSettings(factory, 9),
        IndexSettings("IVF4,Flat", num_probes),
        IndexSettings(retrieval="tokens"),
    ]
    assert not any(other.has_made(record, snapshot) for other in others)
    assert not settings.has_made(None, snapshot)
    compaction.compact(snapshot.folder)
    assert Manifest.load(snapshot.folder).index.factory == factory, "however many lists there are"


def test_a_number_of_lists_may_begin_with_zeros():
    assert IndexSettings("lists:007") == IndexSettings("lists:7")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"factory": "lists:0"}, "must be lists or lists:NUMBER.*not lists:0"),
        ({"factory": "lists:x"}, "must be lists or lists:NUMBER.*not lists:x"),
        ({"factory": "lists:"}, "must be lists or lists:NUMBER"),
        ({"factory": "lists:-4"}, "must be lists or lists:NUMBER"),
        ({"factory": "lists", "reranked": 96}, "`reranked` is not for lists"),
        ({"factory": "lists:9", "memory": 1 << 30}, "`memory` is not for lists"),
        ({"factory": "lists", "retrieval": "sentences"}, "for an index of tokens"),
        ({"factory": "lists", "uri": "http://host:19530"}, "`uri` is the address of Milvus"),
    ],
)
def test_impossible_settings_are_refused(settings, message):
    with pytest.raises(SettingError, match=message):
        IndexSettings(**settings)
    assert IndexSettings("lists", reranked=0).reranked == 0, "that is what lists do"


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ({"key_type": "float16"}, "needs keys of type int8 with reduced dimensions, not float16"),
        ({"key_type": "float32", "dims": DIMS}, "int8 with reduced dimensions, not float32"),
        ({"key_type": "int8"}, "int8 with reduced dimensions, not whole states"),
    ],
)
def test_other_keys_are_refused_before_any_file_is_written(tmp_path, kind, message):
    snapshot = make_store(tmp_path / "s", clustered(100, WIDTH), **kind)
    before = sorted(path.name for path in snapshot.folder.iterdir())
    with pytest.raises(SettingError, match=message):
        index_snapshot(snapshot, IndexSettings("lists"))
    assert sorted(path.name for path in snapshot.folder.iterdir()) == before


# Files


def test_the_record_tells_the_size_and_the_checksums_of_all_files(snapshot):
    record = snapshot.manifest.index
    assert record.bytes == sum((snapshot.folder / name).stat().st_size for name in record.files)
    assert {name.partition("lists-")[2] for name in record.files} == {
        f"{part}.npy" for part in ("groups", "per-group", "centroids", "sizes", "keys", "norms", "ids")
    }
    assert (record.num_entries, record.kind) == (ENTRIES, "lists")
    assert verify(snapshot.folder).is_sound


def test_progress_is_reported_up_to_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr(building, "_READ", 500)
    reported: list[tuple[str, int, int | None]] = []
    snapshot = make_store(tmp_path / "s", clustered(1200, WIDTH), PER_SENTENCE, **REDUCED)
    index_snapshot(snapshot, IndexSettings("lists"), lambda *args: reported.append(args))
    assert [done for stage, done, total in reported if (stage, total) == ("indexing", 1200)] == [0, 500, 1000, 1200]


def test_an_index_is_the_same_however_many_entries_are_read_at_a_time(tmp_path, monkeypatch):
    stores = [make_store(tmp_path / name, clustered(1200, WIDTH), **REDUCED) for name in ("a", "b")]
    one = indexed(stores[0], "lists:300").manifest.index
    for name, value in (("_READ", 100), ("_WRITTEN", 7)):
        monkeypatch.setattr(building, name, value)
    monkeypatch.setattr(clusters, "_ASSIGNED", 64)
    other = indexed(stores[1], "lists:300").manifest.index
    assert list(one.files.values()) == list(other.files.values())


@pytest.mark.parametrize("part", ["groups", "per-group", "centroids", "sizes", "keys", "norms", "ids"])
@pytest.mark.parametrize("how", ["cut", "changed", "missing"])
def test_a_damaged_file_is_noticed(tmp_path, part, how):
    snapshot = made(tmp_path / "s")
    path = snapshot.folder / next(name for name in snapshot.manifest.index.files if name.endswith(f"-{part}.npy"))
    content = path.read_bytes()
    if how == "missing":
        path.unlink()
    else:
        path.write_bytes(content[:-1] if how == "cut" else content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(StoreDamagedError, match=path.name):
        open_retriever(Snapshot.open(snapshot.folder))
    (problem,) = verify(snapshot.folder).problems
    assert problem == f"{path.name} {'is missing' if how == 'missing' else 'was changed'}"


def test_an_index_of_another_store_is_refused(tmp_path):
    """Its checksums match, but compiled code would read beyond the end of its arrays."""
    snapshot = made(tmp_path / "s")
    other = indexed(make_store(tmp_path / "t", clustered(1200, 30), key_type="int8", dims=20), "lists:20")
    assert other.manifest.index is not None
    with pytest.raises(StoreDamagedError, match="does not match the store"):
        building.load_lists(snapshot, other.manifest.index, other.folder)


def test_a_store_that_can_no_longer_have_lists_gets_an_index_by_size(tmp_path):
    """A repair may leave too few entries for reduced keys."""
    whole = make_store(tmp_path / "s", clustered(100, WIDTH), key_type="int8")
    record = IndexRecord("lists", "lists:5", 4, 100, is_chosen=False, reranked=0)
    settings = compaction.index_settings_for(whole, whole.manifest.changed(index=record))
    assert (settings.factory, settings.retrieval) == (None, "tokens")
    assert index_snapshot(whole, settings).index.factory == "Flat"


def test_another_kind_of_index_can_follow_and_files_are_replaced(tmp_path, queries):
    snapshot = made(tmp_path / "s")
    retriever = open_retriever(snapshot)
    lists_files = set(snapshot.manifest.index.files)
    for factory, kind in (("IVF4,Flat", Retriever), ("lists:9", ListRetriever)):
        compaction.reindex(snapshot.folder, IndexSettings(factory, retrieval="tokens"))
        assert {path.name for path in snapshot.folder.glob("index-*")} == set(
            Manifest.load(snapshot.folder).index_files
        )
        assert not any((snapshot.folder / name).exists() for name in lists_files)
        retriever = following_retriever(retriever, Snapshot.open(snapshot.folder))
        assert type(retriever) is kind
        assert retriever.search(queries, 4).found.all()


def test_files_of_a_killed_indexing_are_deleted_by_the_next_change(tmp_path):
    snapshot = made(tmp_path / "s")
    left = snapshot.folder / "index-000001-000009-lists-keys.npy"
    left.write_bytes(b"half of a file")
    compaction.reindex(snapshot.folder, IndexSettings.of(snapshot.manifest))
    assert not left.exists()
    assert verify(snapshot.folder).is_sound
