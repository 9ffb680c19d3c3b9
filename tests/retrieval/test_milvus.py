"""Searching in Milvus: the same neighbours and evidence as with faiss, and clear errors when it is unavailable.

The tests use Milvus Lite, in the process and behind a port, and a real server if there is one
(`make milvus-server` installs one; NEARMT_MILVUS_URI is the address of a running one).
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import faiss
import numpy as np
import pytest
import torch

pytest.importorskip("pymilvus", reason="nearmt[milvus] is not installed")
pytest.importorskip("milvus_lite", reason="nearmt[milvus] is not installed")

from milvus_servers import VENV, LiteServer, RealServer
from nearmt.corpus import SentencePair
from nearmt.datastore import Filter, IndexRecord, Manifest, Snapshot
from nearmt.errors import IndexUnavailableError, MissingExtraError, SettingError
from nearmt.experiments.bench.indexes import as_table, compare_indexes
from nearmt.retrieval import indexing
from nearmt.retrieval.index import load_index
from nearmt.retrieval.index.milvus import Connection, MilvusChoice, MilvusIndex, checked_uri, collection, search
from nearmt.retrieval.index.milvus.tags import SEVERAL, origin_tags
from nearmt.retrieval.indexing import IndexSettings, index_snapshot
from nearmt.retrieval.reader import Reader
from nearmt.retrieval.search import Retriever
from nearmt.store import Store, build
from nearmt.translator import Translator
from serving import running, settings_for
from synthetic_stores import brute_force, clustered, make_store

WIDTH = 16
REAL = pytest.param("real", marks=pytest.mark.part("milvus"))
TEXT = "heute öffnet die tabelle die große zelle ."
NEW = SentencePair("die neue tabelle ist hier .", "the new sheet is here .", "n1", "client-x")


@pytest.fixture(autouse=True)
def _patient(monkeypatch):
    monkeypatch.setenv("NEARMT_MILVUS_TIMEOUT", "120")  # tests run in parallel
    monkeypatch.setattr(indexing, "_RECALL_QUERIES", 24)
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    yield
    faiss.omp_set_num_threads(threads)


@pytest.fixture(scope="module")
def lite(tmp_path_factory) -> Iterator[str]:
    from milvus_lite import server_manager_instance

    uri = str(tmp_path_factory.mktemp("lite") / "milvus.db")
    yield uri
    server_manager_instance.release_server(uri)


@pytest.fixture(scope="module")
def real_server(tmp_path_factory) -> Iterator[RealServer]:
    """One server for all tests: a machine can only run one."""
    if not VENV:
        pytest.skip("no Milvus server: make milvus-server installs one")
    server = RealServer(tmp_path_factory.mktemp("milvus"))
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="module")
def real(request) -> str:
    return os.environ.get("NEARMT_MILVUS_URI") or request.getfixturevalue("real_server").uri


@pytest.fixture(params=["lite", REAL])
def uri(request) -> str:
    return request.getfixturevalue(request.param)


def indexed(snapshot: Snapshot, uri: str, factory: str = "milvus", **options: int) -> Snapshot:
    """The store with a committed index in Milvus."""
    manifest = index_snapshot(snapshot, IndexSettings(factory, uri=uri, **options)).added_to(snapshot.manifest)
    manifest.save(snapshot.folder)
    return Snapshot(snapshot.folder, manifest)


def in_milvus(store: Store, uri: str, factory: str = "milvus") -> Store:
    store.index(IndexSettings(factory, uri=uri))
    return store


@pytest.fixture
def calls(monkeypatch) -> list[tuple[str, dict[str, Any]]]:
    """The calls to Milvus, in order."""
    recorded: list[tuple[str, dict[str, Any]]] = []
    call = Connection.call

    def record(self, name, *args, **options):
        recorded.append((name, {"args": args, **options}))
        return call(self, name, *args, **options)

    monkeypatch.setattr(Connection, "call", record)
    return recorded


@pytest.mark.parametrize("factory", ["milvus:FLAT", "milvus:IVF_FLAT", "milvus:HNSW", "milvus:DISKANN"])
def test_milvus_finds_what_exact_search_finds(tmp_path, uri, factory, calls):
    snapshot = make_store(tmp_path / "s", clustered(600, WIDTH), per_sentence=3)
    queries = torch.from_numpy(clustered(12, WIDTH, 2)).float()
    if factory == "milvus:DISKANN" and uri.endswith(".db"):
        with pytest.raises(SettingError, match="Lite has no DISKANN"):
            indexed(snapshot, uri, factory)
        return
    exact = Retriever(snapshot).search(queries, 8)
    in_collection = indexed(snapshot, uri, factory)
    recall = in_collection.manifest.index.recall
    assert recall.mass > 0.95
    calls.clear()
    found = Retriever(in_collection).search(queries, 8)
    assert [name for name, _ in calls] == ["search"]  # one request for all rows
    assert (found.entry_ids == exact.entry_ids).float().mean() > 0.9
    same = found.entry_ids == exact.entry_ids
    torch.testing.assert_close(found.squared_distances[same], exact.squared_distances[same])
    assert torch.equal(found.token_ids[same], exact.token_ids[same])


def test_without_reranking_the_distances_are_those_of_milvus(tmp_path, lite):
    snapshot = indexed(make_store(tmp_path / "s", clustered(300, WIDTH)), lite, "milvus:FLAT", reranked=0)
    queries = clustered(5, WIDTH, 2).astype(np.float32)
    found = Retriever(snapshot).search(torch.from_numpy(queries), 4)
    np.testing.assert_allclose(found.squared_distances, brute_force(snapshot, queries, 4), rtol=1e-3)


def test_an_interrupted_indexing_is_resumed(tmp_path, uri, monkeypatch):
    monkeypatch.setattr(collection, "_WRITTEN_ROWS", 100)
    snapshot = make_store(tmp_path / "s", clustered(450, WIDTH))
    written: list[tuple[str, int, int]] = []
    call = Connection.call

    def interrupted(self, name, *args, **options):
        if name in ("insert", "upsert"):
            written.append((name, args[1][0]["id"], len(args[1])))
            if len(written) == 3:
                raise KeyboardInterrupt
        return call(self, name, *args, **options)

    monkeypatch.setattr(Connection, "call", interrupted)
    with pytest.raises(KeyboardInterrupt):
        indexed(snapshot, uri)
    assert Manifest.load(snapshot.folder).index is None
    done = indexed(snapshot, uri)
    assert written[3:] == [("upsert", 200, 100), ("upsert", 300, 100), ("upsert", 400, 50)]
    queries = torch.from_numpy(snapshot.float_keys(slice(None, None, 50)))
    assert Retriever(done).search(queries, 1).entry_ids.flatten().tolist() == list(range(0, 450, 50))
    written.clear()
    indexed(snapshot, uri)  # a finished collection is not written again
    assert not written


@pytest.mark.parametrize("compared", [0, 4096])
def test_k_allowed_neighbors_are_found_and_milvus_filters_by_origin(tmp_path, uri, calls, monkeypatch, compared):
    monkeypatch.setattr(search, "_COMPARED", compared)
    keys = clustered(400, WIDTH)
    snapshot = make_store(tmp_path / "s", keys)
    mine = np.arange(400) % 20 == 0
    units = snapshot.units.copy()
    units["origin_hash"] = np.where(mine, 2**63 + 8, 2**62)
    snapshot = indexed(with_units(snapshot, units), uri, "milvus:FLAT")
    snapshot.units = units
    retriever = Retriever(snapshot)
    monkeypatch.setattr(Filter, "origin_hashes", lambda self, snapshot: np.array([2**63 + 8], np.uint64))
    queries = torch.from_numpy(clustered(6, WIDTH, 3)).float()
    calls.clear()
    found = retriever.filtered(Filter(only=("mine",))).search(queries, 16)
    exact = Retriever(with_units(Snapshot(snapshot.folder, snapshot.manifest.changed(index=None)), units))
    expected = exact.filtered(Filter(only=("mine",))).search(queries, 16)
    assert torch.equal(found.entry_ids, expected.entry_ids)
    assert mine[found.entry_ids].all()
    filters = [options["filter"] for name, options in calls if name == "search"]
    assert filters == ([f"origin in [{SEVERAL}, {2**61 + 3}]"] if not compared else [])


def with_units(snapshot: Snapshot, units: np.ndarray) -> Snapshot:
    snapshot.units = units
    return snapshot


@pytest.mark.parametrize("removed_share", [0.1, 0.9])
def test_removed_entries_are_not_found_and_k_others_are(tmp_path, lite, monkeypatch, removed_share):
    from synthetic_stores import extended

    monkeypatch.setattr(search, "_COMPARED", 10)
    indexed(make_store(tmp_path / "s", clustered(400, 32)), lite, "milvus:FLAT")
    rng = np.random.default_rng(3)
    removed = rng.choice(400, int(400 * removed_share), replace=False).tolist()
    snapshot = extended(tmp_path / "s", clustered(30, 32, 9), removed)
    queries = torch.from_numpy(clustered(8, 32, 4).astype(np.float32))
    near = Retriever(snapshot).search(queries, 16)
    assert near.found.all()
    distances = ((queries.numpy()[:, None] - snapshot.keys.astype(np.float64)[None]) ** 2).sum(2)
    distances[:, removed] = np.inf
    np.testing.assert_allclose(near.squared_distances.numpy(), np.sort(distances, axis=1)[:, :16], rtol=1e-4)


def evidence(translator: Translator, text: str) -> list[list[tuple[str, str, float]]]:
    """The evidence for each token of a translation."""
    return [
        [(n.segment.source, n.segment.target, round(n.squared_distance, 3)) for n in token.neighbors]
        for token in translator.explain(text).tokens
    ]


def test_a_changing_store_gives_the_same_results_as_with_faiss(
    token_store_copy, toy_model, lite, tmp_path, monkeypatch
):
    monkeypatch.setattr(indexing, "_MIN_ADDED", 20)
    # So that both stores compute distances with torch: faiss rounds differently, which would break ties.
    monkeypatch.setattr("nearmt.retrieval.search._ADDED_AT_ONCE", 256)
    twin = Path(shutil.copytree(token_store_copy, tmp_path / "twin.store"))
    stores = [in_milvus(Store(token_store_copy, model=toy_model), lite, "milvus:FLAT"), Store(twin, model=toy_model)]
    translators = [Translator(store.folder, model=toy_model) for store in stores]

    def same() -> None:
        for text in (TEXT, NEW.source):
            one, two = (evidence(translator, text) for translator in translators)
            assert one == two
            texts = [translator.translate([text])[0].text for translator in translators]
            assert texts[0] == texts[1]

    same()
    before = stores[0].manifest.index
    more = [
        SentencePair(f"die tabelle {n} ist hier .", f"the sheet {n} is here .", f"m{n}", "client-y") for n in range(9)
    ]
    for store in stores:
        store.add([NEW, *more])
    extended = stores[0].manifest.index
    assert extended.collection == before.collection
    assert before.num_entries < extended.num_entries == len(stores[0].snapshot())
    same()
    for store in stores:
        store.add([SentencePair(NEW.source, "the corrected sheet is here .", "n1", "client-x")])
        store.add([SentencePair(more[0].source, more[0].target, "again", "client-z")])
        store.remove(unit_id="m3")
    same()
    only = Filter(only=("client-*",))
    one, two = (evidence(translator.filtered(only), NEW.source) for translator in translators)
    assert one == two
    for store in stores:
        store.compact()
    same()
    compacted = stores[0].manifest.index
    assert compacted.collection != before.collection
    assert compacted.num_entries == len(stores[0].snapshot())
    listed = Connection(lite).call("list_collections")
    assert compacted.collection in listed
    assert before.collection not in listed
    assert stores[0].verify().is_sound
    # Back to faiss: nothing is left in Milvus.
    stores[0].index(IndexSettings(retrieval="tokens"))
    same()
    assert compacted.collection not in Connection(lite).call("list_collections")
    assert stores[0].manifest.index.kind == "faiss"


def test_a_new_origin_of_a_sentence_is_written_with_the_next_entries(token_store_copy, toy_model, lite, monkeypatch):
    monkeypatch.setattr(indexing, "_MIN_ADDED", 1)
    monkeypatch.setattr(search, "_COMPARED", 0)
    store = in_milvus(Store(token_store_copy, model=toy_model), lite, "milvus:FLAT")
    known = next(store.snapshot().texts())
    store.add([SentencePair(known.source, known.target, "u", "client-x")])  # no new entry: not written yet
    retriever = Retriever(store.snapshot())
    state = torch.from_numpy(store.snapshot().float_keys(slice(0, 1)))
    only = Filter(only=("client-x",))
    assert retriever.filtered(only).search(state, 1).entry_ids.item() == 0
    store.add([NEW])
    snapshot = store.snapshot()
    assert snapshot.manifest.index.num_units == len(snapshot.units)
    assert origin_tags(snapshot, len(snapshot.units))[0] == SEVERAL
    name = snapshot.manifest.index.collection
    (row,) = Connection(lite).call("query", name, filter="id == 0", output_fields=["origin", "value"])
    assert (row["origin"], row["value"]) == (SEVERAL, snapshot.values[0])
    assert Retriever(snapshot).filtered(only).search(state, 1).entry_ids.item() == 0


def test_readers_of_older_snapshots_see_no_change(token_store_copy, toy_model, lite, monkeypatch):
    monkeypatch.setattr(indexing, "_MIN_ADDED", 1)
    store = in_milvus(Store(token_store_copy, model=toy_model), lite, "milvus:FLAT")
    old = Reader(token_store_copy).retriever
    states = torch.from_numpy(store.snapshot().float_keys(slice(0, 5)))
    before = old.search(states, 8)
    store.add([SentencePair(f"{TEXT} {n}", f"today opens the sheet {n}", f"x{n}") for n in range(12)])
    after = old.search(states, 8)  # the collection has grown
    assert torch.equal(before.entry_ids, after.entry_ids)
    store.remove(unit_id="x3")
    store.compact()
    after = old.search(states, 8)  # the collection was dropped
    assert torch.equal(before.entry_ids, after.entry_ids)


def test_a_copied_store_never_writes_to_or_drops_the_collection(
    token_store_copy, toy_model, lite, tmp_path, monkeypatch
):
    monkeypatch.setattr(indexing, "_MIN_ADDED", 1)
    store = in_milvus(Store(token_store_copy, model=toy_model), lite, "milvus:FLAT")
    name = store.manifest.index.collection
    twin = Store(Path(shutil.copytree(token_store_copy, tmp_path / "twin.store")), model=toy_model)
    twin.add([NEW])
    assert twin.manifest.index == store.manifest.index
    twin.compact()
    assert twin.manifest.index.collection != name
    assert name in Connection(lite).call("list_collections")
    moved = token_store_copy.rename(tmp_path / "moved.store")
    Store(moved, model=toy_model).add([NEW])
    assert Manifest.load(moved).index.num_entries == Manifest.load(moved).num_entries


def test_additions_succeed_while_milvus_is_unavailable(token_store_copy, toy_model, monkeypatch, caplog):
    monkeypatch.setattr(indexing, "_MIN_ADDED", 1)
    monkeypatch.setenv("NEARMT_MILVUS_TIMEOUT", "1")
    manifest = Manifest.load(token_store_copy)
    name = collection.owned_prefix(token_store_copy, manifest) + "x"
    record = IndexRecord("milvus", "milvus:FLAT", 1, 0, uri="http://127.0.0.1:1", collection=name, reranked=8)
    manifest.changed(index=record).save(token_store_copy)
    store = Store(token_store_copy, model=toy_model)
    began = time.monotonic()
    for number in range(20):
        assert store.add([SentencePair(f"{TEXT} {number}", "x .", f"u{number}")]).added == 1
    assert time.monotonic() - began < 30
    assert sum("not in the index" in record.message for record in caplog.records) == 1


def test_indexing_recreates_a_dropped_collection(token_store_copy, toy_model, lite):
    store = in_milvus(Store(token_store_copy, model=toy_model), lite)
    Connection(lite).call("drop_collection", store.manifest.index.collection)
    states = torch.from_numpy(store.snapshot().float_keys(slice(0, 2)))
    with pytest.raises(IndexUnavailableError, match="run nearmt index"):
        Retriever(store.snapshot()).search(states, 4)
    store.index()
    assert Retriever(store.snapshot()).search(states, 4).found.all()


def test_a_rebuilt_store_replaces_its_collection(client, toy_model, lite, tmp_path):
    from nearmt.building.builder import BuildSettings

    settings = BuildSettings(index="milvus:FLAT", uri=lite)
    store = build(client.memory, model=toy_model, out=tmp_path / "a.store", train=False, settings=settings)
    first = store.manifest.index.collection
    assert isinstance(load_index(store.snapshot()), MilvusIndex)
    again = build(client.memory, model=toy_model, out=tmp_path / "a.store", train=False, settings=settings, force=True)
    listed = Connection(lite).call("list_collections")
    assert first not in listed
    assert again.manifest.index.collection in listed


def test_comparing_indexes_leaves_nothing_in_milvus(tmp_path, lite):
    snapshot = make_store(tmp_path / "s", clustered(300, WIDTH), per_sentence=3)
    before = Connection(lite).call("list_collections")
    settings = [IndexSettings(), IndexSettings("milvus:FLAT", uri=lite)]
    found = compare_indexes(snapshot, settings, num_queries=40, rows=8, k=4, rounds=2)
    assert [one["index"] for one in found] == ["faiss Flat", f"milvus:FLAT at {lite}"]
    assert all(one["recall"]["mass"] > 0.99 and one["median"] > 0 for one in found)
    assert Connection(lite).call("list_collections") == before
    assert Manifest.load(snapshot.folder).index is None
    table = as_table(found)
    assert all(len(row) == len(table.headings) for row in table.rows)


def test_an_unavailable_milvus_is_reported_in_one_sentence(client, tmp_path, monkeypatch):
    monkeypatch.setenv("NEARMT_MILVUS_TIMEOUT", "1")
    snapshot = make_store(tmp_path / "s", clustered(20, WIDTH))
    with pytest.raises(IndexUnavailableError, match=r"Milvus at http://127\.0\.0\.1:1 does not respond"):
        IndexSettings("milvus", uri="http://127.0.0.1:1").check(WIDTH)
    record = IndexRecord("milvus", "milvus:FLAT", 1, 20, uri="http://127.0.0.1:1", collection="x", num_units=20)
    retriever = Retriever(Snapshot(snapshot.folder, snapshot.manifest.changed(index=record)))
    began = time.monotonic()
    for _ in range(2):
        with pytest.raises(IndexUnavailableError):
            retriever.search(torch.zeros(2, WIDTH), 4)
    assert time.monotonic() - began < 20
    process = subprocess.run(
        [sys.executable, "-m", "nearmt", "index", client.store, "--index", "milvus", "--uri", "http://127.0.0.1:1"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert process.returncode == 2
    assert len(process.stderr.strip().splitlines()) == 1
    assert process.stderr.startswith("nearmt: Milvus at http://127.0.0.1:1 does not respond")


@pytest.mark.parametrize(
    ("index", "uri", "message"),
    [
        ("milvus", None, "`index` milvus needs `uri`"),
        (None, "http://localhost:19530", "`uri` .* needs `index` milvus"),
        ("Flat", "http://localhost:19530", "`uri` .* needs `index` milvus"),
        ("milvus:TREE", "http://localhost:19530", "milvus:HNSW"),
        ("milvus:HNSW,nlist=4", "http://localhost:19530", "takes M=N"),
        ("milvus:HNSW,M=many", "http://localhost:19530", "takes M=N"),
        ("milvus", "ftp://localhost", "not a Milvus address"),
        ("milvus", "somewhere", "ends in .db"),
        ("milvus", "http://root:secret@localhost:19530", "NEARMT_MILVUS_TOKEN"),
        ("milvus:DISKANN", "x.db", "Lite has no DISKANN"),
    ],
)
def test_invalid_combinations_are_refused(index, uri, message):
    with pytest.raises(SettingError, match=message):
        IndexSettings(index, uri=uri)


def test_index_parameters_are_parsed_and_chosen_by_size(monkeypatch):
    assert str(MilvusChoice.parse("milvus")) == "milvus:IVF_FLAT"
    assert MilvusChoice.parse("milvus").build_parameters(400_000) == {"nlist": 2048}
    assert MilvusChoice.parse("milvus").build_parameters(10) == {"nlist": 1}
    chosen = MilvusChoice.parse("milvus:HNSW,M=8,ef=64")
    assert (str(chosen), chosen.build_parameters(5)) == ("milvus:HNSW,M=8,ef=64", {"M": 8, "efConstruction": 200})
    assert (chosen.search_parameters(5, 1, 10), chosen.search_parameters(5, 1, 128)) == ({"ef": 64}, {"ef": 128})
    assert MilvusChoice.parse("milvus:IVF_SQ8,nlist=64").search_parameters(1000, 128, 5) == {"nprobe": 64}
    assert checked_uri("x.db") == str(Path("x.db").absolute())
    monkeypatch.setenv("NEARMT_MILVUS_TIMEOUT", "soon")
    with pytest.raises(SettingError, match="NEARMT_MILVUS_TIMEOUT"):
        Connection("x.db")


def test_a_missing_package_is_reported_in_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "pymilvus", None)
    with pytest.raises(MissingExtraError, match=r'pip install "nearmt\[milvus\]"'):
        Connection("x.db").call("list_collections")


@pytest.mark.parametrize("kind", ["lite", REAL])
def test_the_server_answers_503_while_milvus_is_stopped_and_recovers(
    request, token_store_copy, toy_model, tmp_path, monkeypatch, kind
):
    milvus = request.getfixturevalue("real_server") if kind == "real" else LiteServer(tmp_path / "milvus")
    try:
        if kind == "lite":
            milvus.start()
        in_milvus(Store(token_store_copy, model=toy_model), milvus.uri, "milvus:FLAT")
        monkeypatch.setenv("NEARMT_MILVUS_TIMEOUT", "3")
        with running(settings_for(token_store_copy)) as server:
            wait_until_it_works(server)
            expected = server.translate(TEXT)
            milvus.stop()
            began = time.monotonic()
            reply = server.post("/v1/translate", {"text": [f"{TEXT} {n}" for n in range(8)]})
            assert time.monotonic() - began < 15
            assert (reply.status_code, reply.headers["Retry-After"]) == (503, "5")
            assert reply.json()["error"]["code"] == "index_unavailable"
            assert milvus.uri not in reply.text
            for reply in (
                server.post("/translate", {"q": TEXT, "source": "de", "target": "en"}),
                server.http.get("/translate", params={"q": TEXT, "langpair": "de|en"}),
                server.post("/v2/translate", {"text": [TEXT], "target_lang": "EN-US"}),
            ):
                assert (reply.status_code, reply.headers["Retry-After"]) == (503, "5")
                assert "search engine" in reply.text
            assert server.translate(TEXT, method="base")  # the plain model needs no search
            with running(settings_for(token_store_copy)) as started_without:  # it starts without Milvus
                assert started_without.post("/v1/translate", {"text": TEXT}).status_code == 503
                milvus.start()
                for one in (server, started_without):
                    wait_until_it_works(one)
                    assert one.translate(TEXT) == expected
    finally:
        if kind == "lite":
            milvus.stop()


def wait_until_it_works(server) -> None:
    until = time.monotonic() + 120
    while server.post("/v1/translate", {"text": TEXT}).status_code != 200:
        assert time.monotonic() < until
        time.sleep(0.5)


@pytest.mark.parametrize(
    ("answers", "num_calls"),
    [
        (
            [[(5000, "")], [(5000, ""), (10, "")], [(5000, "key"), (10, "")], [(5000, "")]],
            3,
        ),  # small segments get no index
        ([[]], 1),
        ([IndexUnavailableError("not supported")], 1),
    ],
)
def test_recall_is_measured_once_the_server_uses_the_index(monkeypatch, answers, num_calls):
    calls = []

    class Server:
        uri = "http://milvus.example:19530"

        def call(self, name, collection):
            calls.append((name, collection))
            answer = answers[len(calls) - 1]
            if isinstance(answer, Exception):
                raise answer
            return [SimpleNamespace(num_rows=rows, index_name=index) for rows, index in answer]

    monkeypatch.setattr(collection, "_POLL_SECONDS", 0.0)
    collection._wait_for_loaded_index(cast(Connection, Server()), "c")
    assert calls == [("list_loaded_segments", "c")] * num_calls
    monkeypatch.setattr(collection, "_LOADING_SECONDS", 0.0)
    collection._wait_for_loaded_index(cast(Connection, Server()), "c")
    assert len(calls) == num_calls, "the time limit was reached"
