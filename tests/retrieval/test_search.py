"""The retriever against brute force: filters, exclusions, removals, and entries newer than the index."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from nearmt.corpus import SentencePair
from nearmt.datastore import CommitData, Filter, Languages, Manifest, Snapshot
from nearmt.datastore.hashing import name_hash
from nearmt.datastore.records import IndexRecord
from nearmt.retrieval.index import Allowed
from nearmt.retrieval.search import RERANKED, Retriever, _reach, _short
from synthetic_stores import appended, make_store

WIDTH = 5
PER_SENTENCE = 2


class PlainIndex:
    """Brute force over the keys it was given, with a record of its searches."""

    def __init__(self, keys: np.ndarray, *, is_exact: bool = True) -> None:
        self.keys, self.is_exact = keys.astype(np.float32), is_exact
        self.searches: list[tuple[int, int, bool]] = []  # rows, k, whether only allowed entries were searched

    @property
    def num_entries(self) -> int:
        return len(self.keys)

    def search(self, queries: np.ndarray, k: int, allowed: Allowed | None = None) -> tuple[np.ndarray, np.ndarray]:
        self.searches.append((len(queries), k, allowed is not None))
        distances = ((queries[:, None] - self.keys[None]) ** 2).sum(axis=2)
        if not self.is_exact:
            distances += 0.25  # approximate, but in the right order
        if allowed is not None:
            distances[:, ~np.pad(allowed.mask, (0, self.num_entries))[: self.num_entries]] = np.inf
        entry_ids = distances.argsort(axis=1, kind="stable")[:, :k]
        distances = np.take_along_axis(distances, entry_ids, 1)
        return distances, np.where(distances < np.inf, entry_ids, -1)


class GrowingPlainIndex(PlainIndex):
    def add(self, keys: np.ndarray) -> None:
        self.keys = np.concatenate([self.keys, keys])


def store_with_origins(folder: Path, num_sentences: int, removed: tuple[int, ...] = ()) -> Snapshot:
    """Two random entries per sentence; sentence i comes from file i % 4."""
    rng = np.random.default_rng(4)
    count = num_sentences * PER_SENTENCE
    data = CommitData(
        [SentencePair(f"s{i}", f"t{i}", origin=f"file-{i % 4}") for i in range(num_sentences)],
        np.full(num_sentences, PER_SENTENCE),
        rng.standard_normal((count, WIDTH)).astype(np.float16),
        rng.permutation(count).astype(np.int32),
        rng.random(count).astype(np.float16),
        np.zeros(count, np.uint16),
        removed_units=removed,
    )
    folder.mkdir(exist_ok=True)
    appended(folder, Manifest(model={}, languages=Languages("de", "en"), width=WIDTH), data)
    return Snapshot.open(folder)


def some_queries(count: int = 6) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(9).standard_normal((count, WIDTH))).float()


def check_against_brute_force(retriever, queries, k, excluded=None, may_find=lambda sentence: True):
    """The neighbours are the nearest entries of those sentences that `may_find` accepts and that are not excluded."""
    found, snapshot = retriever.search(queries, k, excluded), retriever.snapshot
    keys = snapshot.keys.astype(np.float64)
    for row, query in enumerate(queries.double().numpy()):
        barred = set() if excluded is None or excluded[row] is None else set(excluded[row].tolist())
        possible = [
            entry
            for entry in range(len(keys))
            if may_find(entry // PER_SENTENCE) and entry // PER_SENTENCE not in barred
        ]
        distances = {entry: ((keys[entry] - query) ** 2).sum() for entry in possible}
        nearest = sorted(possible, key=lambda entry: (distances[entry], entry))[:k]
        assert found.entry_ids[row].tolist() == nearest + [-1] * (k - len(nearest))
        assert found.found[row].tolist() == [True] * len(nearest) + [False] * (k - len(nearest))
        expected = [distances[entry] for entry in nearest]
        assert found.squared_distances[row, : len(nearest)].tolist() == pytest.approx(expected, rel=1e-4, abs=1e-5)
        assert found.token_ids[row, : len(nearest)].tolist() == snapshot.values[nearest].tolist()


SOME_EXCLUDED = [None, np.arange(0, 30, 2), np.arange(25), np.array([], int), np.arange(30), np.array([3, 29])]


@pytest.mark.parametrize("excluded", [None, SOME_EXCLUDED])
@pytest.mark.parametrize("num_indexed", [0, 1, 20, 59, 60])
@pytest.mark.parametrize("k", [1, 7, 70])
@pytest.mark.parametrize("is_exact", [True, False])
def test_entries_newer_than_the_index_are_found_like_the_others(tmp_path, num_indexed, k, excluded, is_exact):
    snapshot = store_with_origins(tmp_path / "s", 30)
    retriever = Retriever(snapshot, PlainIndex(snapshot.keys[:num_indexed], is_exact=is_exact), reranked=12)
    check_against_brute_force(retriever, some_queries(), k, excluded)


@pytest.mark.parametrize(
    ("wanted", "may_find"),
    [
        (Filter(only=("file-1",)), lambda sentence: sentence % 4 == 1),
        (Filter(only=("file-1", "file-2")), lambda sentence: sentence % 4 in (1, 2)),
        (Filter(exclude=("file-0",)), lambda sentence: sentence % 4 != 0),
        (Filter(only=("file-9",)), lambda sentence: False),
        (Filter(), lambda sentence: True),
    ],
)
@pytest.mark.parametrize("num_indexed", [0, 30, 80])
@pytest.mark.parametrize("is_exact", [True, False])
def test_a_filtered_search_finds_the_nearest_entries_of_its_part(tmp_path, wanted, may_find, num_indexed, is_exact):
    snapshot = store_with_origins(tmp_path / "s", 40)
    index = PlainIndex(snapshot.keys[:num_indexed], is_exact=is_exact)
    whole = Retriever(snapshot, index, reranked=8)
    part = whole.filtered(wanted)
    for k in (1, 5, 30):
        check_against_brute_force(part, some_queries(), k, may_find=may_find)
        check_against_brute_force(part, some_queries(), k, SOME_EXCLUDED, may_find)
    check_against_brute_force(whole, some_queries(), 5)


def test_the_index_is_told_the_origins_of_a_filter(tmp_path):
    retriever = Retriever(store_with_origins(tmp_path / "s", 8))
    for wanted, names in ((Filter(only=("file-1",)), ["file-1"]), (Filter(exclude=("file-[012]",)), ["file-3"])):
        assert retriever.filtered(wanted)._allowed.origin_hashes.tolist() == [name_hash(name) for name in names]
    assert retriever.filtered(Filter(since="2020-01-01"))._allowed.origin_hashes is None


def test_an_empty_filter_changes_nothing(tmp_path):
    retriever = Retriever(store_with_origins(tmp_path / "s", 4))
    assert retriever.filtered(Filter()) is retriever
    assert retriever.filtered(Filter(only=("file-1",))) is not retriever


@pytest.mark.parametrize("num_indexed", [0, 20, 60])
@pytest.mark.parametrize("removed", [(0, 7, 29), tuple(range(3, 30))])
def test_removed_sentences_are_not_found(tmp_path, removed, num_indexed):
    snapshot = store_with_origins(tmp_path / "s", 30, removed)
    retriever = Retriever(snapshot, PlainIndex(snapshot.keys[:num_indexed]))
    for k in (1, 4, 40):
        check_against_brute_force(retriever, some_queries(), k, may_find=lambda sentence: sentence not in removed)


@pytest.mark.parametrize("is_exact", [True, False])
@pytest.mark.parametrize("origins", [("file-0",), ("file-0", "file-1", "file-2", "file-3")])
def test_entries_of_the_index_beyond_the_snapshot_are_not_found(tmp_path, is_exact, origins):
    snapshot = store_with_origins(tmp_path / "s", 20)
    later = some_queries().numpy()  # nearer than any entry of the snapshot
    index = PlainIndex(np.concatenate([snapshot.keys.astype(np.float32), later]), is_exact=is_exact)
    retriever = Retriever(snapshot, index, reranked=40)
    check_against_brute_force(retriever, some_queries(), 3)
    part = retriever.filtered(Filter(only=origins))
    check_against_brute_force(part, some_queries(), 3, may_find=lambda sentence: f"file-{sentence % 4}" in origins)


def test_only_allowed_entries_are_kept(tmp_path):
    retriever = Retriever(make_store(tmp_path / "s", np.zeros((4, WIDTH))))
    for forbidden in range(4):
        retriever._allow(Allowed(np.arange(4) != forbidden))
        found = retriever._only_allowed(torch.tensor([[0, 1, 2], [3, -1, 0]]))
        assert found.tolist() == [[-1 if i == forbidden else i for i in row] for row in ([0, 1, 2], [3, -1, 0])]


# How many candidates are searched for


def test_an_exact_index_is_searched_for_eight_more_candidates_than_needed(tmp_path):
    snapshot = store_with_origins(tmp_path / "s", 30)
    index = PlainIndex(snapshot.keys)
    retriever = Retriever(snapshot, index)
    retriever.search(some_queries(), 5)
    retriever.search(some_queries(2), 59)
    assert index.searches == [(6, 13, False), (2, 60, False)]


def test_other_indexes_are_searched_for_as_many_candidates_as_are_reranked(tmp_path):
    snapshot = store_with_origins(tmp_path / "s", 30)
    index = PlainIndex(snapshot.keys, is_exact=False)
    retriever = Retriever(snapshot, index, reranked=20)
    retriever.search(some_queries(), 5)
    retriever.search(some_queries(), 25)
    assert index.searches == [(6, 20, False), (6, 25, False)]


def test_a_search_in_most_of_the_store_asks_for_more_candidates_and_one_in_a_small_part_selects(tmp_path):
    snapshot = store_with_origins(tmp_path / "s", 40)
    index = PlainIndex(snapshot.keys)
    retriever = Retriever(snapshot, index)
    retriever.filtered(Filter(exclude=("file-0",))).search(some_queries(1), 2)  # 75 % are allowed
    retriever.filtered(Filter(only=("file-0", "file-1"))).search(some_queries(1), 2)  # 50 %
    retriever.filtered(Filter(only=("file-0",))).search(some_queries(1), 2)  # 25 %
    assert index.searches == [(1, math.ceil(10 / 0.75), False), (1, 20, False), (1, 10, True)]


def test_rows_with_too_few_allowed_candidates_are_searched_again_among_the_allowed_entries(tmp_path):
    snapshot = store_with_origins(tmp_path / "s", 40)
    index = PlainIndex(snapshot.keys, is_exact=False)
    part = Retriever(snapshot, index, reranked=4).filtered(Filter(exclude=("file-0", "file-1")))  # 50 % are allowed
    queries = torch.from_numpy(snapshot.keys[[0, 4, 70]].astype(np.float32))  # two begin next to a forbidden entry
    first = index.search(queries.numpy(), 4)[1]
    num_short = sum(np.isin(row // PER_SENTENCE % 4, (2, 3)).sum() < 3 for row in first)
    assert 0 < num_short < 3
    index.searches.clear()
    check_against_brute_force(part, queries, 3, may_find=lambda sentence: sentence % 4 > 1)
    assert index.searches == [(3, 4, False), (num_short, 4, True)]


def test_rows_with_too_few_candidates_after_exclusion_are_searched_four_times_as_deep(tmp_path):
    snapshot = store_with_origins(tmp_path / "s", 100)
    index = PlainIndex(snapshot.keys)
    excluded = [np.arange(1, 100), None, np.array([0]), np.arange(100)]
    check_against_brute_force(Retriever(snapshot, index), some_queries(4), 2, excluded)
    assert index.searches == [(4, 10, False), (2, 40, False), (2, 160, False), (2, 200, False)]


def test_a_deeper_search_is_not_repeated_when_every_entry_was_a_candidate(tmp_path):
    snapshot = store_with_origins(tmp_path / "s", 5)
    index = PlainIndex(snapshot.keys)
    check_against_brute_force(Retriever(snapshot, index), some_queries(1), 4, [np.arange(5)])
    assert index.searches == [(1, 10, False)]


@pytest.mark.parametrize(("limit", "rows"), [(1, 1), (39, 1), (80, 2), (119, 2), (120, 3)])
def test_a_deeper_search_holds_a_limited_number_of_candidates(tmp_path, monkeypatch, limit, rows):
    monkeypatch.setattr("nearmt.retrieval.search._MAX_CANDIDATES", limit)
    snapshot = store_with_origins(tmp_path / "s", 20)
    index = PlainIndex(snapshot.keys)
    excluded = [np.arange(20)] * 6
    check_against_brute_force(Retriever(snapshot, index), some_queries(), 2, excluded)
    assert index.searches == [(6, 10, False), *[(rows, 40, False)] * (6 // rows)]


@pytest.mark.parametrize(("limit", "rows"), [(1, 1), (2 * 7 * WIDTH - 1, 1), (2 * 7 * WIDTH, 2), (1000, 6)])
def test_keys_are_fetched_a_few_rows_at_a_time(tmp_path, monkeypatch, limit, rows):
    monkeypatch.setattr("nearmt.retrieval.search._GATHERED_NUMBERS", limit)
    snapshot = store_with_origins(tmp_path / "s", 20)
    retriever = Retriever(snapshot, PlainIndex(snapshot.keys))
    entry_ids, queries = torch.arange(42).view(6, 7) % 40, some_queries()
    expected = ((snapshot.keys[entry_ids.numpy()].astype(np.float64) - queries.numpy()[:, None]) ** 2).sum(axis=2)
    fetched: list[int] = []
    keys_of = snapshot.keys_of

    def counting(ids: torch.Tensor) -> torch.Tensor:
        fetched.append(len(ids))
        return keys_of(ids)

    monkeypatch.setattr(snapshot, "keys_of", counting)
    np.testing.assert_allclose(retriever._distances(queries, entry_ids), expected, rtol=1e-4)
    assert fetched == [rows] * (6 // rows)


# Entries that are newer than the index


@pytest.mark.parametrize(
    ("num_indexed", "num_entries", "added"),
    [(10, 300, [64, 64, 54]), (0, 192, [64, 64]), (0, 191, [64]), (64, 190, []), (5, 127, []), (0, 0, []), (1, 63, [])],
)
def test_newer_entries_join_a_growing_index_in_batches(tmp_path, monkeypatch, num_indexed, num_entries, added):
    keys = np.random.default_rng(2).standard_normal((num_entries, WIDTH))
    snapshot = make_store(tmp_path / "s", keys)
    index = GrowingPlainIndex(snapshot.keys[:num_indexed])
    sizes: list[int] = []
    add = index.add

    def counting(new: np.ndarray) -> None:
        sizes.append(len(new))
        add(new)

    monkeypatch.setattr(index, "add", counting)
    retriever = Retriever(snapshot, index)
    assert sizes == added
    np.testing.assert_array_equal(index.keys, snapshot.keys[: num_indexed + sum(added)].astype(np.float32))
    found = retriever.search(some_queries(), 4)
    exact = ((some_queries().numpy()[:, None] - snapshot.keys[None].astype(np.float64)) ** 2).sum(axis=2)
    np.testing.assert_array_equal(found.entry_ids[:, :num_entries], exact.argsort(axis=1)[:, :4])


def line_of_keys(tmp_path: Path, num_indexed: int) -> Retriever:
    """Entries at 0, 1, 2, … on a line, of which the first are indexed."""
    keys = np.zeros((20, WIDTH))
    keys[:, 0] = np.arange(20)
    snapshot = make_store(tmp_path / "s", keys)
    return Retriever(snapshot, PlainIndex(snapshot.keys[:num_indexed]))


def at(*places: float) -> torch.Tensor:
    queries = torch.zeros(len(places), WIDTH)
    queries[:, 0] = torch.tensor(places)
    return queries


def test_newer_entries_are_compared_only_within_reach(tmp_path):
    retriever = line_of_keys(tmp_path, 10)
    distances, entry_ids = retriever._not_indexed(at(8.0), 5, None, torch.tensor([9.0]))  # a limit of 3 is included
    assert entry_ids.tolist() == [[10, 11]]
    assert distances.tolist() == [[4.0, 9.0]]
    for reach in (1.0, 3.9):
        distances, entry_ids = retriever._not_indexed(at(8.0), 5, None, torch.tensor([reach]))
        assert distances.shape == entry_ids.shape == (1, 0)
        assert (distances.dtype, entry_ids.dtype) == (torch.float32, torch.int64)


def test_the_row_with_most_entries_within_reach_decides_how_many_are_compared(tmp_path):
    reach = torch.tensor([0.5, 2.5, 0.5])
    distances, entry_ids = line_of_keys(tmp_path, 10)._not_indexed(at(10.0, 15.0, 3.0), 5, None, reach)
    assert entry_ids[0].tolist() == [10, 11, 12]
    assert sorted(entry_ids[1].tolist()) == [14, 15, 16]
    assert distances[1].sort().values.tolist() == [0, 1, 1]
    assert entry_ids[2].tolist() == [10, 11, 12]


def test_at_most_eight_more_newer_entries_than_needed_are_compared(tmp_path):
    unlimited = torch.tensor([torch.inf])
    assert line_of_keys(tmp_path, 3)._not_indexed(at(0.0), 1, None, unlimited)[1].tolist() == [list(range(3, 12))]


def test_with_exclusions_all_newer_entries_are_compared(tmp_path):
    retriever = line_of_keys(tmp_path, 15)
    _, entry_ids = retriever._not_indexed(at(0.0), 1, [np.array([16])], torch.tensor([0.0]))
    assert entry_ids.tolist() == [[15, -1, 17, 18, 19]]


def test_rounding_does_not_hide_an_entry_at_the_limit(tmp_path):
    retriever = line_of_keys(tmp_path, 10)
    for distance in (1e-5, 0.4):
        query, reach = at(12.0 - distance), torch.tensor([distance**2])
        assert retriever._not_indexed(query, 1, None, reach)[1].tolist() == [[12]]


def test_reach_is_the_distance_of_the_kth_candidate():
    distances, entry_ids = torch.tensor([[4.0, 1.0, 9.0], [2.0, 3.0, 1.0]]), torch.tensor([[0, 5, 2], [-1, 0, 3]])
    assert _reach(distances, entry_ids, 1).tolist() == [1, 1]
    assert _reach(distances, entry_ids, 2).tolist() == [4, 3]
    assert _reach(distances, entry_ids, 3).tolist() == [9, torch.inf]
    assert _reach(distances, entry_ids, 4).tolist() == [torch.inf, torch.inf]


def test_rows_with_fewer_than_k_valid_candidates_are_short():
    entry_ids = torch.tensor([[0, 1, 2], [0, -1, 5], [-1, -1, 0], [1, 2, 3]])
    assert _short(entry_ids, 3) == [1, 2]
    assert _short(entry_ids, 2) == [2]
    assert _short(entry_ids, 1) == []
    assert _short(entry_ids[:1], 3) == []


# Settings, other columns, later snapshots


def with_record(snapshot: Snapshot, reranked: int | None) -> Snapshot:
    record = IndexRecord("faiss", "Flat", 1, len(snapshot), reranked=reranked)
    return Snapshot(snapshot.folder, snapshot.manifest.changed(index=record))


def test_the_number_of_reranked_candidates_is_an_argument_or_recorded_or_the_default(tmp_path):
    plain = store_with_origins(tmp_path / "s", 4)
    index = PlainIndex(plain.keys, is_exact=False)
    assert Retriever(plain, index).reranked == RERANKED
    assert Retriever(with_record(plain, None), index).reranked == RERANKED
    assert Retriever(with_record(plain, 7), index).reranked == 7
    assert Retriever(with_record(plain, 0), index).reranked == 0
    assert Retriever(with_record(plain, 7), index, reranked=5).reranked == 5
    assert Retriever(with_record(plain, 7), index, reranked=0).reranked == 0


def test_without_reranking_the_distances_of_the_index_are_kept(tmp_path):
    snapshot = store_with_origins(tmp_path / "s", 20)
    index, queries = PlainIndex(snapshot.keys, is_exact=False), some_queries()
    raw = Retriever(snapshot, index, reranked=0).search(queries, 3)
    exact = Retriever(snapshot, index, reranked=9).search(queries, 3)
    assert torch.equal(raw.entry_ids, exact.entry_ids)
    torch.testing.assert_close(raw.squared_distances, exact.squared_distances + 0.25)


def test_stored_columns_are_read_by_entry_id(tmp_path):
    snapshot = store_with_origins(tmp_path / "s", 4)
    retriever = Retriever(snapshot)
    ids = torch.tensor([[3, -1], [0, 7]])
    np.testing.assert_array_equal(retriever.keys_of(ids)[1], snapshot.keys[[0, 7]].astype(np.float32))
    np.testing.assert_array_equal(retriever.probabilities_of(ids)[1], snapshot.probabilities[[0, 7]].astype(np.float32))
    assert not retriever.keys_of(ids)[0, 1].any()
    assert retriever.stored_at(5) == (snapshot, 5)


def test_a_later_snapshot_keeps_the_index_unless_it_was_made_again(tmp_path):
    snapshot = store_with_origins(tmp_path / "s", 4)
    retriever = Retriever(snapshot)
    same = Snapshot(snapshot.folder, snapshot.manifest.changed())
    followed = retriever.following(same)
    assert followed.index is retriever.index
    assert followed.snapshot is same
    reindexed = Snapshot(snapshot.folder, snapshot.manifest.changed(build=snapshot.manifest.build))
    object.__setattr__(reindexed.manifest, "generation", 2)
    with pytest.MonkeyPatch.context() as patch:
        loaded = PlainIndex(snapshot.keys)
        patch.setattr("nearmt.retrieval.search.load_index", lambda of: loaded if of is reindexed else None)
        assert retriever.following(reindexed).index is loaded


@pytest.mark.parametrize(("num_sentences", "num_queries"), [(0, 3), (4, 0)])
def test_a_search_of_nothing_or_for_nothing_finds_nothing(tmp_path, num_sentences, num_queries):
    snapshot = store_with_origins(tmp_path / "s", num_sentences)
    found = Retriever(snapshot, PlainIndex(snapshot.keys)).search(some_queries(num_queries), 4)
    assert found.squared_distances.shape == (num_queries, 4)
    assert not found.found.any()
    assert (found.token_ids.dtype, found.entry_ids.dtype) == (torch.int64, torch.int64)
    assert (found.entry_ids == -1).all()


def test_queries_may_need_gradients_or_have_another_type(tmp_path):
    snapshot = store_with_origins(tmp_path / "s", 10)
    retriever, queries = Retriever(snapshot, PlainIndex(snapshot.keys)), some_queries()
    expected = retriever.search(queries, 3)
    for other in (queries.clone().requires_grad_(), queries.double()):
        assert torch.equal(retriever.search(other, 3).entry_ids, expected.entry_ids)
