"""An index larger than its memory limit: built in parts, kept on disk, searched as one."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from nearmt.building import compaction
from nearmt.cli.values import bytes_of
from nearmt.corpus import SentencePair
from nearmt.datastore import CommitData, Snapshot, append_commit, verify
from nearmt.errors import SettingError, StoreDamagedError
from nearmt.retrieval.index import Allowed, load_index
from nearmt.retrieval.index.exact import StreamedIndex
from nearmt.retrieval.index.mapped import MappedIndex, bytes_in_memory
from nearmt.retrieval.indexing import IndexSettings, index_snapshot
from nearmt.retrieval.recall import held_out_states, measure_recall
from nearmt.retrieval.search import Retriever
from synthetic_stores import clustered, make_store

ENTRIES = 40_000
SMALL = IndexSettings(num_probes=16, max_k=8, memory=600_000)  # bytes, far less than 40,000 entries need


@pytest.fixture(scope="module")
def mapped(tmp_path_factory) -> Snapshot:
    snapshot = make_store(tmp_path_factory.mktemp("mapped"), clustered(ENTRIES, 32), per_sentence=4)
    index_snapshot(snapshot, SMALL).added_to(snapshot.manifest).save(snapshot.folder)
    return Snapshot.open(snapshot.folder)


def test_a_low_memory_limit_gives_several_parts_and_a_high_one_an_ordinary_index(mapped):
    index = mapped.manifest.index
    assert len(index.files) > 2
    assert index.factory.endswith("SQ8")
    assert isinstance(load_index(mapped), MappedIndex)
    assert SMALL.memory
    assert bytes_in_memory(index.factory, 32, ENTRIES) > SMALL.memory
    roomy = replace(SMALL, memory=1 << 30)
    assert not roomy.is_mapped(ENTRIES, 32)
    assert roomy.factory_for(ENTRIES, 32) == IndexSettings().factory_for(ENTRIES, 32)
    assert IndexSettings.of(mapped.manifest).memory == SMALL.memory, "compaction uses the same limit"


def test_parts_find_what_exact_search_finds(mapped):
    states, excluded = held_out_states(mapped, 200)
    assert measure_recall(Retriever(mapped), states, excluded, 8).mass > 0.97
    found = Retriever(mapped).search(states, 8)
    exact = Retriever(mapped, StreamedIndex(mapped)).search(states, 8)
    same = (found.entry_ids == exact.entry_ids).float().mean()
    assert same > 0.95
    assert found.squared_distances[:, 0].allclose(torch.zeros(len(states)), atol=1e-3), "the queries are stored keys"


def test_entries_that_are_not_allowed_are_not_found(mapped):
    states, _ = held_out_states(mapped, 50)
    retriever = Retriever(mapped)
    for share in (0.9, 0.05):  # dropped after the search, and excluded within it
        mask = np.random.default_rng(1).random(ENTRIES) < share
        narrower = Retriever(mapped, retriever.index)
        narrower._allow(Allowed(mask))
        found = narrower.search(states, 8)
        assert mask[found.entry_ids[found.found].numpy()].all()
        assert found.found.all()


def test_new_entries_are_found_and_compaction_indexes_them(tmp_path):
    snapshot = make_store(tmp_path / "store", clustered(ENTRIES, 32), per_sentence=4)
    index_snapshot(snapshot, SMALL).added_to(snapshot.manifest).save(snapshot.folder)
    before = Retriever(Snapshot.open(snapshot.folder))
    keys = clustered(6000, 32, seed=9)
    data = CommitData(
        [SentencePair(f"new {i}", f"neu {i}") for i in range(6000)],
        np.ones(6000, int),
        keys.astype(np.float16),
        np.ones(6000, np.int32),
        np.ones(6000, np.float16),
        np.zeros(6000, np.uint16),
    )
    append_commit(snapshot.folder, Snapshot.open(snapshot.folder).manifest, data).changed().save(snapshot.folder)
    after = before.following(Snapshot.open(snapshot.folder))
    assert after.index is before.index
    assert after.index.num_entries > ENTRIES, "added in memory"
    queries = torch.from_numpy(keys[::50].astype(np.float16).astype(np.float32))
    expected = torch.arange(ENTRIES, ENTRIES + 6000, 50)
    assert (after.search(queries, 4).entry_ids[:, 0] == expected).all()
    assert (before.search(queries, 4).entry_ids < ENTRIES).all(), "an older reader still sees its own snapshot"
    compaction.compact(snapshot.folder)
    compacted = Snapshot.open(snapshot.folder)
    assert compacted.manifest.index.num_entries == ENTRIES + 6000
    assert compacted.manifest.index.mapped_bytes
    assert (Retriever(compacted).search(queries, 4).squared_distances[:, 0] < 1e-3).all()
    assert verify(snapshot.folder).is_sound


def test_a_truncated_or_missing_part_is_named(tmp_path):
    snapshot = make_store(tmp_path / "store", clustered(ENTRIES, 32), per_sentence=4)
    index_snapshot(snapshot, SMALL).added_to(snapshot.manifest).save(snapshot.folder)
    part = snapshot.folder / list(Snapshot.open(snapshot.folder).manifest.index.files)[1]
    whole = part.read_bytes()
    part.write_bytes(whole[:-10])
    with pytest.raises(StoreDamagedError, match=part.name):
        load_index(Snapshot.open(snapshot.folder))
    part.unlink()
    with pytest.raises(StoreDamagedError, match="verify"):
        load_index(Snapshot.open(snapshot.folder))
    assert any(part.name in problem for problem in verify(snapshot.folder).problems)


def test_an_index_whose_lists_cannot_stay_on_disk_is_refused():
    for factory in ("IVF64,PQ16x4fs", "Flat", "HNSW32"):
        with pytest.raises(SettingError, match="cannot stay on disk"):
            IndexSettings(factory, memory=1000).check(32)
    IndexSettings("IVF64,SQ8", memory=1000).check(32)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("4G", 4 << 30), ("500M", 500 << 20), ("1.5g", 3 << 29), ("12 GiB", 12 << 30), ("2048", 2048), ("64KB", 65536)],
)
def test_memory_can_be_given_with_units(text, expected):
    assert bytes_of("--memory", text) == expected


@pytest.mark.parametrize("text", ["", "much", "-4G", "0", "4X", "G"])
def test_an_invalid_memory_size_is_refused(text):
    with pytest.raises(SettingError, match="--memory"):
        bytes_of("--memory", text)
