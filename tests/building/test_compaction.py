"""What housekeeping does beside the main thing: nothing piles up, and readers and writers do not trip over it."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from nearmt.building import compaction, publish
from nearmt.building.ingest import Ingestor
from nearmt.building.stats import describe
from nearmt.datastore import Manifest, Snapshot, partial_folder, verify
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
    """Stands for a kill at one place."""


def killed(*args: object) -> None:
    raise KilledError


def test_files_that_were_being_written_do_not_stay(store):
    for name in (".manifest.json.new", ".metak-000099.safetensors.new"):
        (store.folder / name).write_bytes(b"half")
    settle(store.folder)


def test_networks_of_killed_trainings_do_not_pile_up(store, monkeypatch):
    for number in range(4):
        (store.folder / f"metak-{number + 50:06d}.safetensors").write_bytes(b"a training that was killed")
    perform(store.folder, Change("train"), store._model)
    assert len(list(store.folder.glob("metak-*"))) == 2  # the present one, and the one before for slow readers
    assert store.verify().is_sound


def test_a_killed_training_leaves_the_one_before(store, monkeypatch):
    before = store.manifest
    with monkeypatch.context() as patch:
        patch.setattr(Manifest, "save", killed)
        with pytest.raises(KilledError):
            perform(store.folder, Change("train"), store._model)
    assert store.manifest == before
    assert store.verify().is_sound


def test_an_index_that_needs_more_entries_than_are_left_is_chosen_by_size(toy_model, tmp_path):
    memory = write_memory(tmp_path)
    made = build(memory, model=toy_model, out=tmp_path / "b.store", settings=BUILD, train=False)
    made.remove(origin="built")
    done = made.compact()
    assert (done.sentences, done.entries) == (0, 0)
    assert made.manifest.index.factory == "Flat"
    made.add([("die neue zelle .", "the new cell .")], model=toy_model)
    assert made.compact().sentences == 1
    assert made.verify().is_sound


def test_verifying_while_a_compaction_takes_the_files_away_is_no_alarm(store, monkeypatch):
    inspected = []

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


def test_a_snapshot_is_described_after_its_files_are_gone(store):
    snapshot = store.snapshot()
    store.remove(unit_id="u3")
    store.compact()
    assert describe(snapshot)["bytes"]["data"] > 0


def test_files_that_vanish_while_they_are_counted_are_passed_over(store, monkeypatch):
    def walk(folder):
        yield from os_walk(folder)
        yield str(folder), [], [".manifest.json.new"]

    os_walk = os.walk
    whole = compaction._bytes_of(store.folder)
    monkeypatch.setattr(os, "walk", walk)
    assert compaction._bytes_of(store.folder) == whole


@pytest.mark.parametrize("moment", ["before", "after", "cannot swap"])
def test_a_store_that_is_being_replaced_is_there_at_every_moment(store, toy_model, tmp_path, monkeypatch, moment):
    memory, out = write_memory(tmp_path), store.folder
    store.add([("die neue zelle .", "the new cell .")])
    replace(store.manifest, created_at="2020-01-01T00:00:00Z").save(out)
    old = content_of(store.snapshot())
    exchange = publish.exchange

    def cut_off(one, other):
        if moment == "after":
            exchange(one, other)
        raise KilledError

    def build_anew(resume=False):
        return build(memory, model=toy_model, out=out, settings=BUILD, adaptation=ADAPTATION, force=True, resume=resume)

    with monkeypatch.context() as patch:
        patch.setattr(publish, "exchange", (lambda one, other: False) if moment == "cannot swap" else cut_off)
        if moment == "cannot swap":
            build_anew()
        else:
            with pytest.raises(KilledError):
                build_anew()
    assert verify(out).is_sound
    assert (content_of(Snapshot.open(out)) == old) == (moment == "before")
    assert not partial_folder(out).exists()
    if moment == "before":
        monkeypatch.setattr(Ingestor, "append", killed)  # the finished build is there to go on with
    build_anew(resume=True)
    assert content_of(Snapshot.open(out)) != old
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fresh.store", "memory.jsonl"]
