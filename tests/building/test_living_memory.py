"""A store in use: additions take effect at once, removed pairs are never used again, nothing else is lost."""

import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from nearmt.building import compaction
from nearmt.building.editing import Editor, Removed
from nearmt.corpus import SentencePair
from nearmt.datastore import (
    Filter,
    Manifest,
    Snapshot,
    compaction_lock,
    verify,
    write_lock,
)
from nearmt.errors import SettingError, StoreLockedError, StoreMismatchError
from nearmt.retrieval.index import build_index
from nearmt.retrieval.index.faiss_index import save_index
from nearmt.retrieval.merged import MergedRetriever
from nearmt.retrieval.reader import Reader
from nearmt.retrieval.search import Retriever
from nearmt.store import Store, build
from nearmt.translator import Translator
from quick import QUICK
from synthetic_stores import clustered, extended, make_store

NEW = SentencePair("die neue tabelle zeigt die zelle .", "the added sheet is here .", "n1", "client-x")


def sources_of(translator: Translator, text: str) -> set[tuple[str, str]]:
    """The sentence pairs in the evidence of a translation."""
    return {
        (neighbor.segment.source, neighbor.segment.target)
        for token in translator.explain(text).tokens
        for neighbor in token.neighbors
    }


def test_the_next_translation_uses_added_pairs_and_never_removed_ones(store_copy, toy_model):
    translator, store = Translator(store_copy, model=toy_model), Store(store_copy, model=toy_model)
    assert (NEW.source, NEW.target) not in sources_of(translator, NEW.source)
    added = store.add([NEW])
    assert (added.added, added.replaced, added.unchanged) == (1, 0, 0)
    assert (NEW.source, NEW.target) in sources_of(translator, NEW.source)
    assert store.add([NEW]).unchanged == 1
    assert store.remove(unit_id="n1") == Removed(1, 1)
    assert (NEW.source, NEW.target) not in sources_of(translator, NEW.source)
    assert store.verify().is_sound


def test_additions_by_another_process_are_used(store_copy, toy_model, client, tmp_path):
    translator = Translator(store_copy, model=toy_model)
    file = tmp_path / "new.tsv"
    file.write_text(f"{NEW.source}\t{NEW.target}\n", encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "nearmt",
        "add",
        str(store_copy),
        str(file),
        "--quiet",
        "--model",
        str(client.model),
    ]
    subprocess.run(command, check=True, capture_output=True)
    assert (NEW.source, NEW.target) in sources_of(translator, NEW.source)


def test_a_correction_replaces_the_old_target(store_copy, toy_model):
    store = Store(store_copy, model=toy_model)
    store.add([NEW])
    corrected = SentencePair(NEW.source, "the corrected sheet is here .", "n1", "client-x")
    assert store.add([corrected]).replaced == 1
    translator = Translator(store_copy, model=toy_model)
    shown = sources_of(translator, NEW.source)
    assert (corrected.source, corrected.target) in shown
    assert (NEW.source, NEW.target) not in shown
    # The same id with another source or another origin is another unit.
    assert store.add([SentencePair("die alte tabelle .", "the old sheet .", "n1", "client-x")]).added == 1
    assert store.add([SentencePair(NEW.source, "another client's words .", "n1", "client-y")]).added == 1


def test_a_pair_stays_until_its_last_unit_is_removed(store_copy, toy_model):
    store = Store(store_copy, model=toy_model)
    elsewhere = SentencePair(NEW.source, NEW.target, "n7", "client-y")
    before = store.snapshot().manifest.num_entries
    assert store.add([NEW, elsewhere]).duplicates == 1
    stored_once = store.snapshot().manifest.num_entries
    assert store.remove(origin="client-x") == Removed(1, 0)
    (segment,) = [pair for pair in store.snapshot().texts() if pair.target == NEW.target]
    assert (segment.unit_id, segment.origin) == ("n7", "client-y")
    assert store.remove(source=f" {NEW.source}  ").sentences >= 1
    assert not [pair for pair in store.snapshot().texts() if pair.target == NEW.target]
    # It can be added again without being decoded again.
    assert store.add([NEW]).duplicates == 1
    assert store.snapshot().manifest.num_entries == stored_once > before


def test_removed_pairs_are_returned_so_that_they_can_be_restored(store_copy, toy_model):
    store = Store(store_copy, model=toy_model)
    elsewhere = SentencePair(NEW.source, NEW.target, "n7", "client-y", "2020-02-03T04:05:06Z")
    other_target = SentencePair(NEW.source, "the old row .", "n8", "client-y")
    store.add([NEW, elsewhere, other_target])
    before = list(store.snapshot().all_units())
    removed = store.remove(source=NEW.source, target=f"  {NEW.target} ")
    assert removed == Removed(2, 1)
    assert [(pair.unit_id, pair.origin) for pair in removed.pairs] == [("n1", "client-x"), ("n7", "client-y")]
    assert removed.pairs[1] == elsewhere
    assert removed.pairs[0].changed_at is not None  # the time when it was added has become its date
    assert other_target in list(store.snapshot().all_units())
    store.add(removed.pairs)
    known = {(pair.target, pair.unit_id, pair.origin) for pair in store.snapshot().all_units()}
    assert known == {(pair.target, pair.unit_id, pair.origin) for pair in before}


def test_filters_select_by_origin_and_date(store_copy, toy_model):
    store = Store(store_copy, model=toy_model)
    dated = SentencePair(NEW.source, "the dated sheet is here .", "d", "client-y", "2020-05-01T12:00:00Z")
    store.add([NEW, dated])
    translator = Translator(store_copy, model=toy_model)
    new, old = (NEW.source, NEW.target), (dated.source, dated.target)
    for wanted, finds_new, finds_old in [
        (Filter(), True, True),
        (Filter(only=("client-x",)), True, False),
        (Filter(only=("client-*",)), True, True),
        (Filter(exclude=("client-x",)), False, True),
        (Filter(until="2020-05-02"), False, True),
        (Filter(since="2020-05-01", until="2020-05-01T12:00:00Z"), False, False),
        (Filter(only=("client-?",), since="2021-01-01"), True, False),
    ]:
        shown = sources_of(translator.filtered(wanted), NEW.source)
        assert (new in shown, old in shown) == (finds_new, finds_old), wanted
    assert sources_of(translator.filtered(Filter(only=("client-x", "client-y"))), NEW.source) == {new, old}
    assert not sources_of(translator.filtered(Filter(only=("nobody",))), NEW.source)
    with pytest.raises(SettingError, match="yesterday is not a date"):
        Filter(since="yesterday")


def test_a_filtered_translator_follows_changes(store_copy, toy_model):
    translator = Translator(store_copy, model=toy_model, filter=Filter(only=("client-x",)))
    assert not sources_of(translator, NEW.source)
    Store(store_copy, model=toy_model).add([NEW])
    assert sources_of(translator, NEW.source) == {(NEW.source, NEW.target)}


def test_several_stores_are_searched_together(store_copy, toy_model, client, tmp_path):
    memory = tmp_path / "house.tsv"
    first_line = client.memory.read_text(encoding="utf-8").splitlines()[0]
    memory.write_text(f"{NEW.source}\t{NEW.target}\n{first_line}\n", encoding="utf-8")
    house = build(memory, model=toy_model, out=tmp_path / "house.store", train=False).folder
    translator = Translator([store_copy, house], model=toy_model)
    neighbors = [n for token in translator.explain(NEW.source).tokens for n in token.neighbors]
    stores = {(n.segment.source, n.segment.target): n.store for n in neighbors}
    assert stores[NEW.source, NEW.target] == str(house)
    assert str(store_copy) in stores.values()
    for token in translator.explain(first_line.split("\t")[0]).tokens:
        places = [(n.segment.source, n.segment.target, n.position) for n in token.neighbors]
        assert len(places) == len(set(places)), "a pair that is in both stores counts once"
    Store(house, model=toy_model).remove(source=NEW.source)
    assert (NEW.source, NEW.target) not in sources_of(translator, NEW.source)


def test_merged_search_equals_search_in_one_store_with_all_entries(tmp_path):
    keys = clustered(400, 8)
    whole = make_store(tmp_path / "whole", keys)
    parts = [
        make_store(tmp_path / f"part{i}", keys[i::2], sources=[f"part {i} {n}" for n in range(200)]) for i in (0, 1)
    ]
    queries = torch.from_numpy(clustered(9, 8, 5).astype(np.float32))
    merged = MergedRetriever([Retriever(part) for part in parts])
    near = merged.start(None).search(queries, torch.zeros(9).long(), 12)
    expected = Retriever(whole).search(queries, 12)
    torch.testing.assert_close(near.squared_distances, expected.squared_distances)
    torch.testing.assert_close(
        merged.keys_of(near.entry_ids).sub(queries.unsqueeze(1)).square().sum(2), near.squared_distances
    )


def test_stores_of_different_models_cannot_be_combined(store_copy, toy_model, tmp_path):
    manifest = Manifest.load(store_copy)
    other = tmp_path / "other.store"
    other.mkdir()
    manifest.changed(model={**manifest.model, "weights": "x"}, extent=type(manifest.extent)(), index=None).save(other)
    with pytest.raises(StoreMismatchError, match=r"other\.store"):
        Translator([store_copy, other], model=toy_model)


def indexed_store(folder: Path, count: int, factory: str) -> Snapshot:
    snapshot = make_store(folder, clustered(count, 32))
    description = replace(save_index(build_index(snapshot, factory, 16), folder / "index-1.faiss"), reranked=64)
    manifest = snapshot.manifest.changed(index=description)
    manifest.save(folder)
    return Snapshot(folder, manifest)


@pytest.mark.parametrize("factory", ["Flat", "IVF16,Flat", "PCA16,IVF16,PQ16x4fs"])
@pytest.mark.parametrize("removed_share", [0.1, 0.9])
def test_search_finds_k_live_neighbours_after_removals(tmp_path, factory, removed_share):
    snapshot = indexed_store(tmp_path / "s", 2000, factory)
    rng = np.random.default_rng(3)
    removed = rng.choice(2000, int(2000 * removed_share), replace=False).tolist()
    late = clustered(700, 32, 9)
    snapshot = extended(tmp_path / "s", late, removed)
    near_to = snapshot.keys[rng.choice(len(snapshot), 20)].astype(np.float32)
    queries = torch.from_numpy(near_to + 0.1 * rng.standard_normal(near_to.shape).astype(np.float32))
    near = Retriever(snapshot).search(queries, 16)
    assert near.found.all()
    assert not np.isin(near.entry_ids.numpy(), removed).any()
    keys = snapshot.keys.astype(np.float64)
    distances = ((queries.numpy()[:, None] - keys[None]) ** 2).sum(2)
    distances[:, removed] = np.inf
    expected = np.sort(distances, axis=1)[:, :16]
    if "PQ" not in factory:  # all lists are probed, so the search is exact
        np.testing.assert_allclose(near.squared_distances.numpy(), expected, rtol=1e-4)
    else:
        nearest = np.argsort(distances, axis=1)[:, :16]
        assert np.mean([np.isin(a, b).mean() for a, b in zip(nearest, near.entry_ids.numpy(), strict=True)]) > 0.8


def test_new_entries_are_added_to_the_index_and_older_retrievers_ignore_them(tmp_path, monkeypatch):
    monkeypatch.setattr("nearmt.retrieval.search._ADDED_AT_ONCE", 64)
    indexed_store(tmp_path / "s", 1000, "IVF16,Flat")
    reader = Reader(tmp_path / "s")
    old = reader.retriever
    queries = torch.from_numpy(clustered(20, 32, 5).astype(np.float32))
    before = old.search(queries, 8)
    extended(tmp_path / "s", queries.numpy().repeat(10, axis=0), [])
    assert reader.refresh()
    assert not reader.refresh()
    assert reader.retriever.index is old.index
    assert old.index.num_entries == 1088  # of the 200 new entries, the last 64 to 127 are compared one by one
    assert (reader.retriever.search(queries, 8).entry_ids >= 1000).all()
    after = old.search(queries, 8)
    torch.testing.assert_close(after.entry_ids, before.entry_ids)


def contents_of(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def test_after_a_compaction_removed_data_is_in_no_file(store_copy, toy_model):
    secret = SentencePair("die geheime tabelle .", "the secret sheet .", "geheim-id", "geheim-herkunft")
    store = Store(store_copy, model=toy_model)
    store.add([secret, NEW])
    snapshot = store.snapshot()
    key = snapshot.keys[snapshot.entry_range(len(snapshot.sentences) - 2)[0]].tobytes()
    traces = [key, b"geheime", b"secret", b"geheim-id", b"geheim-herkunft"]
    assert all(trace in contents_of(store_copy) for trace in traces)
    store.remove(unit_id="geheim-id")
    translator = Translator(store_copy, model=toy_model)
    before = translator.translate([NEW.source])[0]
    done = store.compact()
    assert done.removed_sentences == 1
    assert not any(trace in contents_of(store_copy) for trace in traces)
    assert verify(store_copy).is_sound
    after = translator.translate([NEW.source])[0]
    assert after.text == before.text
    assert before.tokens  # an earlier translation can still be explained
    assert {unit.origin for unit in map(store.snapshot().unit, range(2))} == {"memory.tsv"}


def test_commits_during_a_compaction_are_kept(store_copy, toy_model, monkeypatch):
    store = Store(store_copy, model=toy_model)
    store.add([NEW])
    late = SentencePair("die späte tabelle .", "the late sheet .", "l1", "client-z")
    again = SentencePair(NEW.source, NEW.target, "n9", "client-z")
    revived = store.snapshot().text(3)
    store.remove(source=revived.source)

    def index_after_changes(*arguments):
        other = Store(store_copy, model=toy_model)
        other.add([late, again, revived])
        other.remove(unit_id="n1")
        other.remove(source=store.snapshot().text(5).source)
        return made(*arguments)

    made = compaction.index_snapshot
    monkeypatch.setattr(compaction, "index_snapshot", index_after_changes)
    gone = store.snapshot().text(5).source
    store.compact()
    assert verify(store_copy).is_sound
    units = {(pair.source, pair.unit_id, pair.origin) for pair in store.snapshot().all_units()}
    assert (late.source, "l1", "client-z") in units
    assert (NEW.source, "n9", "client-z") in units
    assert (NEW.source, "n1", "client-x") not in units
    assert revived.source in {source for source, _, _ in units}
    assert gone not in {source for source, _, _ in units}
    translator = Translator(store_copy, model=toy_model)
    assert (late.source, late.target) in sources_of(translator, late.source)


def test_only_one_compaction_runs_at_a_time_and_writers_wait_for_each_other(store_copy, toy_model):
    store = Store(store_copy, model=toy_model)
    with compaction_lock(store_copy), pytest.raises(StoreLockedError, match="compacting"):
        store.compact()
    release = threading.Event()

    def hold() -> None:
        with write_lock(store_copy):
            held.set()
            release.wait(20)

    held = threading.Event()
    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(20)
    threading.Timer(0.5, release.set).start()
    assert store.add([NEW]).added == 1
    holder.join()


def test_files_of_a_killed_compaction_are_deleted(store_copy, toy_model):
    (store_copy / "compacting" / "data-000002").mkdir(parents=True)
    (store_copy / "data-000009").mkdir()
    (store_copy / "index-000009-000001.faiss").write_bytes(b"x")
    store = Store(store_copy, model=toy_model)
    with compaction_lock(store_copy):
        store.add([NEW])
        assert (store_copy / "compacting").exists()  # it may be running
    Editor(store_copy).remove(unit_id="n1")
    assert not (store_copy / "compacting").exists()
    assert not (store_copy / "data-000009").exists()
    assert not list(store_copy.glob("index-000009*"))


def test_an_exported_memory_can_be_built_again(store_copy, toy_model, tmp_path):
    store = Store(store_copy, model=toy_model)
    odd = SentencePair(
        '<b>& "Zelle"\u00a0</b>', "cell > \u2028 &amp;", "id<1>", "Kunde & Söhne", "2024-05-01T12:00:00Z"
    )
    store.add([NEW, SentencePair(NEW.source, NEW.target, "n2", "client-y"), odd])
    count = store.export_tmx(tmp_path / "out.tmx")
    again = build(tmp_path / "out.tmx", model=toy_model, out=tmp_path / "again.store", train=False)
    units = set(store.snapshot().all_units())
    assert count == len(units)
    assert set(again.snapshot().all_units()) == units


def test_info_recommends_compaction_and_training(store_copy, toy_model):
    store = Store(store_copy, model=toy_model)
    health = store.info()["health"]
    assert health["compaction_due"] == []
    assert not health["training_due"]
    store.add([NEW])
    info = store.info()
    assert {k: v for k, v in info["origins"][1].items() if k in ("name", "units")} == {"name": "client-x", "units": 1}
    store.remove(origin="memory.tsv")
    health = store.info()["health"]
    assert health["compaction_due"] == ["many entries were removed"]
    assert health["training_due"]
    store.compact()
    assert store.info()["health"]["compaction_due"] == []
    assert store.info()["entries"] == len(store.snapshot())


def test_an_emptied_store_can_be_compacted_and_filled_again(store_copy, toy_model):
    store = Store(store_copy, model=toy_model)
    store.remove(origin="memory.tsv")
    assert store.compact().sentences == 0
    translator = Translator(store_copy, model=toy_model)
    assert translator.translate([NEW.source])[0].text
    store.add([NEW])
    assert (NEW.source, NEW.target) in sources_of(translator, NEW.source)


def test_pairs_can_be_added_during_training(store_copy, toy_model, client, monkeypatch):
    store = Store(store_copy, model=toy_model)
    from nearmt.training.train_store import StoreTrainer

    train = StoreTrainer.train_and_decode

    def adding(self, dev):
        Store(store_copy, model=toy_model).add([NEW])
        return train(self, dev)

    monkeypatch.setattr(StoreTrainer, "train_and_decode", adding)
    store.train(client.dev, settings=QUICK)
    assert (NEW.source, NEW.target) in sources_of(Translator(store_copy, model=toy_model), NEW.source)


def test_translators_can_share_a_reader(store_copy, toy_model):
    reader = Reader(store_copy)
    one, two = (Translator(reader, model=toy_model, method=method) for method in ("adaptive", "uniform"))
    assert one.readers[0] is two.readers[0] is reader
    Store(store_copy, model=toy_model).add([NEW])
    for translator in (one, two):
        assert (NEW.source, NEW.target) in sources_of(translator, NEW.source)
