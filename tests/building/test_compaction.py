"""Compaction, cleanup and replacing a store: no leftovers, and no disturbance of readers and writers."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from nearmt.building import publish
from nearmt.building.ingest import Ingestor
from nearmt.building.stats import describe
from nearmt.datastore import Manifest, Snapshot, folder_bytes, partial_folder, verify
from nearmt.datastore import verify as verify_store
from nearmt.store import Store, build
from torture_memory import Change
from torture_store import ADAPTATION, BUILD, content_of, perform, settle, write_memory


@pytest.fixture(scope="module")
def made(toy_model, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    return build(
        write_memory(folder), model=toy_model, out=folder / "a.store", settings=BUILD, adaptation=ADAPTATION
    ).folder


@pytest.fixture
def store(made, toy_model, tmp_path) -> Store:
    return Store(Path(shutil.copytree(made, tmp_path / "fresh.store")), model=toy_model)


class KilledError(BaseException):
    """Simulates a kill."""


def killed(*args: object) -> None:
    raise KilledError


def test_unfinished_files_are_deleted(store):
    for name in (".manifest.json.new", ".metak-000099.safetensors.new"):
        (store.folder / name).write_bytes(b"half")
    settle(store.folder)


def test_networks_of_killed_trainings_do_not_pile_up(store, monkeypatch):
    for number in range(4):
        (store.folder / f"metak-{number + 50:06d}.safetensors").write_bytes(b"a killed training")
    perform(store.folder, Change("train"), store._model)
    assert (
        len(list(store.folder.glob("metak-*"))) == 2
    )  # the current one, and the previous one for readers of the old manifest
    assert store.verify().is_sound


def test_a_killed_training_leaves_the_previous_one(store, monkeypatch):
    before = store.manifest
    with monkeypatch.context() as patch:
        patch.setattr(Manifest, "save", killed)
        with pytest.raises(KilledError):
            perform(store.folder, Change("train"), store._model)
    assert store.manifest == before
    assert store.verify().is_sound


def test_the_index_is_chosen_by_size_if_too_few_entries_are_left(toy_model, tmp_path):
    memory = write_memory(tmp_path)
    made = build(memory, model=toy_model, out=tmp_path / "b.store", settings=BUILD, train=False)
    made.remove(origin="built")
    done = made.compact()
    assert (done.sentences, done.entries) == (0, 0)
    assert made.manifest.index.factory == "Flat"
    made.add([("die neue zelle .", "the new cell .")], model=toy_model)
    assert made.compact().sentences == 1
    assert made.verify().is_sound


def test_verifying_during_a_compaction_reports_no_damage(store, monkeypatch):
    inspected: list[int] = []

    def inspect_late(folder, manifest, on_commit):
        if not inspected:
            store.compact()
        inspected.append(manifest.generation)
        return inspect(folder, manifest, on_commit)

    inspect = verify_store.__globals__["inspect"]
    store.remove(unit_id="u3")
    with monkeypatch.context() as patch:
        patch.setitem(verify_store.__globals__, "inspect", inspect_late)
        assert verify(store.folder).is_sound
    assert inspected == [1, 2]


def test_a_snapshot_can_be_described_after_its_files_are_deleted(store):
    snapshot = store.snapshot()
    store.remove(unit_id="u3")
    store.compact()
    assert describe(snapshot)["bytes"]["data"] > 0


def test_files_deleted_while_sizes_are_summed_are_skipped(store, monkeypatch):
    def walk(folder):
        yield from os_walk(folder)
        yield str(folder), [], [".manifest.json.new"]

    os_walk = os.walk
    whole = folder_bytes(store.folder)
    monkeypatch.setattr(os, "walk", walk)
    assert folder_bytes(store.folder) == whole


@pytest.mark.parametrize("moment", ["before", "after", "cannot swap"])
def test_a_store_is_available_at_every_moment_of_its_replacement(store, toy_model, tmp_path, monkeypatch, moment):
    memory, out = write_memory(tmp_path), store.folder
    store.add([("die neue zelle .", "the new cell .")])
    replace(store.manifest, created_at="2020-01-01T00:00:00Z").save(out)
    old = content_of(store.snapshot())
    exchange = publish.exchange

    def kill_at_exchange(one, other):
        if moment == "after":
            exchange(one, other)
        raise KilledError

    def rebuild(resume=False):
        return build(memory, model=toy_model, out=out, settings=BUILD, adaptation=ADAPTATION, force=True, resume=resume)

    with monkeypatch.context() as patch:
        patch.setattr(publish, "exchange", (lambda one, other: False) if moment == "cannot swap" else kill_at_exchange)
        if moment == "cannot swap":
            rebuild()
        else:
            with pytest.raises(KilledError):
                rebuild()
    assert verify(out).is_sound
    assert (content_of(Snapshot.open(out)) == old) == (moment == "before")
    assert not partial_folder(out).exists()
    if moment == "before":
        monkeypatch.setattr(Ingestor, "append", killed)  # the finished build only needs to be published
    rebuild(resume=True)
    assert content_of(Snapshot.open(out)) != old
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fresh.store", "memory.jsonl"]
