"""Reduced keys and keys of 8 bits: what is kept of a state, and what happens if the projection is lost."""

import hashlib
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nearmt.building import compaction
from nearmt.corpus import SentencePair
from nearmt.datastore import CommitData, Languages, Manifest, Snapshot, append_commit, verify
from nearmt.datastore.keys import PROJECTION, KeyCode, fit_key_code
from nearmt.datastore.salvage import salvage
from nearmt.errors import StoreDamagedError
from nearmt.retrieval.merged import MergedRetriever
from nearmt.retrieval.search import Retriever
from nearmt.retrieval.sentences.retriever import SentenceRetriever
from properties import examples
from synthetic_stores import clustered, make_store

WIDTH, DIMS = 24, 5


def fitted(keys: np.ndarray, folder: Path, key_type: str = "int8", dims: int | None = DIMS) -> KeyCode:
    """The code that the first keys of a store decide."""
    manifest = Manifest({}, Languages("de", "en"), keys.shape[1], key_type=key_type, dims=dims)
    return KeyCode.of(folder, replace(manifest, key_range=fit_key_code(folder, manifest, keys)))


def flat(count: int, seed: int = 1) -> np.ndarray:
    """States that vary mostly in DIMS directions, with other units in each dimension."""
    rng = np.random.default_rng(seed)
    directions = np.linalg.qr(rng.standard_normal((WIDTH, WIDTH)))[0]
    scales = np.concatenate([np.linspace(9, 3, DIMS), np.full(WIDTH - DIMS, 0.05)])
    found: np.ndarray = (rng.standard_normal((count, WIDTH)) * scales) @ directions.T + 2
    return found.astype(np.float32)


def squared_distances(points: np.ndarray) -> np.ndarray:
    return ((points[:, None] - points[None]) ** 2).sum(axis=2)


def appended(folder: Path, manifest: Manifest, keys: np.ndarray, first: int = 0) -> Manifest:
    count = len(keys)
    data = CommitData(
        [SentencePair(f"source {first + i}", f"target {first + i}") for i in range(count)],
        np.ones(count, np.int64),
        keys,
        np.arange(count, dtype=np.int32),
        np.ones(count, np.float16),
        np.zeros(count, np.uint16),
    )
    manifest = append_commit(folder, manifest, data).changed()
    manifest.save(folder)
    return manifest


@examples(60)
@given(st.integers(0, 1 << 20), st.integers(1, 60), st.floats(1e-3, 1e3))
def test_a_whole_int8_key_is_off_by_at_most_half_a_level(seed, count, scale):
    keys = np.random.default_rng(seed).standard_normal((count, WIDTH)).astype(np.float32) * np.float32(scale)
    code = fitted(keys, Path("unused"), dims=None)
    assert code.projection is None
    assert code.extent is not None
    error = np.abs(code.decode(code.encode(keys)) - keys)
    assert (error <= code.extent / 255 / 2 * 1.01).all()


@examples(20)
@given(st.integers(0, 1 << 20), st.integers(8 * DIMS, 200))
def test_distances_of_reduced_keys_are_those_of_the_states(seed, count):
    states = flat(count, seed)
    with tempfile.TemporaryDirectory() as folder:
        code = fitted(states, Path(folder))
    assert code.projection is not None
    np.testing.assert_allclose(code.projection.T @ code.projection, np.eye(DIMS), atol=1e-5)
    points = code.project(states)
    assert points.shape == (count, DIMS)
    variances = points.var(axis=0)
    assert (np.diff(variances) <= 1e-3 * variances[0]).all(), "greatest variance first"
    np.testing.assert_allclose(points, states @ code.projection)
    full = squared_distances(states.astype(np.float64))
    assert (squared_distances(points.astype(np.float64)) <= full + 1e-3).all(), "a projection makes nothing longer"
    written = code.encode(states)
    assert written.dtype == np.uint8
    decoded = squared_distances(code.decode(written).astype(np.float64))
    far = full > np.median(full)
    np.testing.assert_allclose(decoded[far], full[far], rtol=0.1)


def test_distances_of_bytes_times_the_level_are_distances(tmp_path):
    states = flat(100)
    code = fitted(states, tmp_path)
    assert code.level is not None
    written = code.encode(states).astype(np.float64)
    expected = squared_distances(code.decode(code.encode(states)).astype(np.float64))
    np.testing.assert_allclose(squared_distances(written) * code.level, expected, rtol=1e-4)
    queries = code.project(flat(7, 2))
    from_levels = ((code.levels(queries)[:, None] - written[None]) ** 2).sum(2) * code.level
    decoded = code.decode(code.encode(states))
    np.testing.assert_allclose(from_levels, ((queries[:, None] - decoded[None]) ** 2).sum(2), rtol=1e-3)


def test_whole_keys_have_no_common_level(tmp_path):
    assert fitted(flat(100), tmp_path, dims=None).level is None
    assert fitted(flat(100), tmp_path, "float16", None).level is None
    assert fitted(flat(100), tmp_path, "float32").level is None


@pytest.mark.parametrize("key_type", ["int8", "float16", "float32"])
@pytest.mark.parametrize(
    ("count", "dims", "expected"),
    [(8 * DIMS, DIMS, DIMS), (8 * DIMS - 1, DIMS, WIDTH), (500, WIDTH, WIDTH), (5000, 2 * WIDTH, WIDTH), (1, 1, WIDTH)],
)
def test_few_keys_and_many_dimensions_are_stored_whole(tmp_path, key_type, count, dims, expected):
    code = fitted(flat(count), tmp_path, key_type, dims)
    assert code.dims == expected
    assert code.encode(flat(3)).shape == (3, expected)
    assert (code.projection is None) == (expected == WIDTH)
    assert (tmp_path / "data-000001" / PROJECTION).exists() == (expected != WIDTH)


@pytest.mark.parametrize("key_type", ["int8", "float16", "float32"])
def test_encoded_keys_are_copied_unchanged(tmp_path, key_type):
    code = fitted(flat(100), tmp_path, key_type)
    written = code.encode(flat(20, 3))
    assert code.encode(written).tobytes() == written.tobytes()
    assert code.encode(np.zeros((0, WIDTH), np.float16)).shape == (0, DIMS)
    np.testing.assert_array_equal(code.project(code.decode(written)), code.decode(written))


def test_later_keys_beyond_the_range_are_clipped(tmp_path):
    code = fitted(flat(100), tmp_path)
    written = code.encode(np.stack([flat(1)[0] * 1000, flat(1)[0] * -1000]))
    assert set(np.unique(written)) <= {0, 255}


def test_what_a_projection_keeps_is_lifted_back(tmp_path):
    code = fitted(flat(100), tmp_path)
    points = code.project(flat(10, 2))
    assert code.lift(points).shape == (10, WIDTH)
    np.testing.assert_allclose(code.project(code.lift(points)), points, atol=1e-3)
    whole = fitted(flat(100), tmp_path, dims=None)
    np.testing.assert_array_equal(whole.lift(flat(3)), flat(3))


def test_a_store_is_the_same_however_its_later_commits_are_divided(tmp_path):
    states = flat(300)
    folders = [tmp_path / "one", tmp_path / "many"]
    for folder, step in zip(folders, (200, 17), strict=True):
        folder.mkdir()
        manifest = Manifest({}, Languages("de", "en"), WIDTH, key_type="int8", dims=DIMS)
        manifest = appended(folder, manifest, states[:100])
        for start in range(100, 300, step):
            manifest = appended(folder, manifest, states[start : start + step], start)
        assert manifest.key_dims == DIMS
    one, many = (Snapshot.open(folder) for folder in folders)
    assert one.manifest.key_range == many.manifest.key_range
    for name in ("keys.int8", PROJECTION):
        contents = [(folder / "data-000001" / name).read_bytes() for folder in folders]
        assert contents[0] == contents[1]
    assert (folders[0] / "data-000001" / "keys.int8").stat().st_size == 300 * DIMS


def test_keys_of_a_small_first_commit_stay_whole_in_later_ones(tmp_path):
    manifest = appended(tmp_path, Manifest({}, Languages("de", "en"), WIDTH, key_type="int8", dims=DIMS), flat(3))
    manifest = appended(tmp_path, manifest, flat(200, 2), 3)
    snapshot = Snapshot.open(tmp_path)
    assert snapshot.keys.shape == (203, WIDTH)
    error = np.abs(snapshot.float_keys(slice(0, 3)) - flat(3))
    assert (error <= np.array(manifest.key_range["extent"]) / 255).all()


def damaged(snapshot: Snapshot, how: str) -> Path:
    path = snapshot.folder / "data-000001" / PROJECTION
    content = bytearray(path.read_bytes())
    content[30] ^= 1
    if how == "missing":
        path.unlink()
    else:
        path.write_bytes(content if how == "flipped" else content[:-4])
    return path


@pytest.mark.parametrize("how", ["flipped", "cut", "missing"])
def test_a_lost_projection_is_reported_and_no_state_is_trusted(tmp_path, how):
    snapshot = make_store(tmp_path / "s", flat(120), 3, key_type="int8", dims=DIMS)
    path = damaged(snapshot, how)
    problem = "is missing" if how == "missing" else "is damaged"
    with pytest.raises(StoreDamagedError, match=f"{PROJECTION} {problem}: run nearmt verify"):
        Snapshot.open(tmp_path / "s")
    (found,) = verify(tmp_path / "s").problems
    assert f"{path.name} {'is missing' if how == 'missing' else 'was changed'}" in found
    readable = salvage(tmp_path / "s").readable
    assert readable.waiting_sentences.all()
    assert not readable.lost_sentences.any()


def test_a_lost_projection_and_a_lost_log_leave_no_states(tmp_path):
    snapshot = make_store(tmp_path / "s", flat(120), 3, key_type="int8", dims=DIMS)
    damaged(snapshot, "missing")
    (snapshot.folder / "data-000001" / "segments.jsonl").write_bytes(b"")
    readable = salvage(tmp_path / "s").readable
    assert readable.waiting_sentences.all()
    assert [readable.text(i).source for i in range(40)] == [f"source {i}" for i in range(40)]


def test_compaction_keeps_the_coding_of_keys(tmp_path):
    snapshot = make_store(tmp_path / "s", flat(120), 3, key_type="int8", dims=DIMS, retrieval="sentences")
    keys, projection = snapshot.keys.tobytes(), snapshot.key_code.projection
    removed = replace(CommitData.without_entries(WIDTH), removed_units=[0, 7])
    append_commit(tmp_path / "s", snapshot.manifest, removed).changed().save(tmp_path / "s")
    compaction.compact(tmp_path / "s")
    after = Snapshot.open(tmp_path / "s")
    assert after.manifest.key_range == snapshot.manifest.key_range
    np.testing.assert_array_equal(after.key_code.projection, projection)
    kept = np.delete(np.frombuffer(keys, np.uint8).reshape(40, 3, DIMS), [0, 7], axis=0)
    assert after.keys.tobytes() == kept.tobytes()
    assert verify(tmp_path / "s").is_sound
    assert not (tmp_path / "s" / "data-000001").exists()


def test_an_empty_store_may_get_its_first_keys_while_it_is_compacted(tmp_path, monkeypatch):
    folder = tmp_path / "s"
    folder.mkdir()
    empty = Manifest({}, Languages("de", "en"), WIDTH, key_type="int8", dims=DIMS, retrieval="sentences")
    append_commit(folder, empty, CommitData.without_entries(WIDTH)).changed().save(folder)
    index = compaction.index_snapshot

    def add_meanwhile(*args):
        appended(folder, Manifest.load(folder), flat(100))
        return index(*args)

    monkeypatch.setattr(compaction, "index_snapshot", add_meanwhile)
    compaction.compact(folder)
    assert verify(folder).is_sound
    snapshot = Snapshot.open(folder)
    assert snapshot.manifest.generation == 2
    assert snapshot.keys.shape == (100, DIMS)
    states = torch.from_numpy(flat(100))
    assert Retriever(snapshot).search(states, 1).entry_ids.flatten().tolist() == list(range(100))
    near = SentenceRetriever(snapshot).start(["source 42"]).search(states[42:43], torch.zeros(1).long(), 1)
    assert near.entry_ids.item() == 42


def test_keys_of_several_stores_are_compared_in_the_space_of_the_first(tmp_path):
    states = flat(200)
    own = [
        make_store(tmp_path / "reduced", states, key_type="int8", dims=DIMS),
        make_store(tmp_path / "whole", states[:50]),
        make_store(tmp_path / "other", flat(200, 9), key_type="float32", dims=DIMS + 1),
    ]
    ids = torch.tensor([[3, (1 << 44) + 7, -1], [(2 << 44) + 4, 12, (1 << 44)]])
    for order in ([0, 1, 2], [1, 2, 0], [2, 0, 1]):
        merged = MergedRetriever([Retriever(own[place]) for place in order])
        first = own[order[0]].key_code
        keys = merged.keys_of(ids)
        assert keys.shape == (2, 3, first.dims)
        for (row, column), entry in np.ndenumerate(ids.numpy()):
            if entry < 0:
                assert not keys[row, column].any()
                continue
            holder = own[order[entry >> 44]]
            key = holder.float_keys(np.array([entry % (1 << 44)]))
            expected = first.project(holder.key_code.lift(key)) if holder.key_code is not first else key
            np.testing.assert_allclose(keys[row, column].numpy(), expected[0], atol=1e-3)


def test_the_manifest_records_the_checksum_of_the_projection(tmp_path):
    snapshot = make_store(tmp_path / "s", clustered(80, WIDTH), key_type="int8", dims=DIMS)
    content = (tmp_path / "s" / "data-000001" / PROJECTION).read_bytes()
    described = snapshot.manifest.key_range
    assert described is not None
    assert described["projection"] == hashlib.sha256(content).hexdigest()
    assert described["dims"] == snapshot.manifest.key_dims == DIMS
    assert len(content) == WIDTH * DIMS * 4
