"""Results of a repair: sentences without states, quarantined files, and what the user is told."""

import errno
import json
import os
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from damage import check_states, content_names, flip, harm, pair, path_of
from nearmt.building import repair as repair_module
from nearmt.building.repair import Repaired
from nearmt.building.repair import repair_with as repair
from nearmt.cli.app import app
from nearmt.cli.verify_output import _say_lost
from nearmt.datastore import Lost, Quarantine, Snapshot, verify
from nearmt.errors import ModelError, StoreError, StoreMismatchError
from nearmt.store import Store, build
from nearmt.training.train_store import AdaptationSettings
from nearmt.translator import Translator
from torture_store import ADAPTATION, BUILD, content_of, settle, write_memory

SOURCE = "heute öffnet die tabelle die große zelle ."
VANILLA: dict[str, Any] = {"method": "vanilla", "k": 4, "temperature": 1.0, "knn_share": 0.5}


@pytest.fixture
def no_model(monkeypatch) -> None:
    """The model of the store cannot be loaded."""

    def fail(*args, **options):
        raise ModelError("the store's model is gone")

    monkeypatch.setattr(repair_module, "load_model", fail)


def nearmt(*arguments: object) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, [*map(str, arguments)])
    return done.exit_code, done.stdout, done.stderr


def test_sentences_without_states_are_kept_until_a_later_repair(made, harmed, toy_model, no_model):
    harm(harmed, "keys.int8", "cut")
    before = content_of(Snapshot.open(made))
    code, output, errors = nearmt("verify", harmed, "--repair")
    assert code == 2
    assert "122 sentences kept; none lost" in output
    assert "61 sentences have no states" in errors
    assert "the store's model is gone" in errors
    snapshot = Snapshot.open(harmed)
    assert content_of(snapshot) == before
    assert snapshot.waiting_sentences.sum() == 61
    assert snapshot.sentence_ids_of(np.arange(len(snapshot))).max() < len(snapshot.sentences)
    near = Translator(harmed, model=toy_model).translate([SOURCE])[0].tokens
    found = {neighbor.sentence_id for token in near for neighbor in token.neighbors}
    assert not found & set(np.flatnonzero(snapshot.waiting_sentences).tolist())

    for command in (["verify", harmed], ["verify", harmed, "--repair"]):
        code, _, errors = nearmt(*command)
        assert code == 2
        assert "61 sentences have no states" in errors
    code, output, _ = nearmt("info", harmed)
    assert "61 sentences have no states" in output
    code, output, _ = nearmt("verify", harmed, "--json")
    assert code == 2
    assert json.loads(output)["waiting_sentences"] == 61
    store = Store(harmed, model=toy_model)
    store.compact()  # does not change them
    assert store.info()["health"]["waiting_sentences"] == 61
    assert store.info()["sentences"] == 122
    assert store.export_tmx(harmed.parent / "all.tmx") == sum(before.values())

    assert store.repair().recomputed_sentences == 61
    check_states(made, harmed, 0)
    assert content_of(Snapshot.open(harmed)) == before
    assert store.verify().is_sound
    assert store.repair() == Repaired((), 122)


def test_adding_a_pair_again_computes_its_states(made, harmed, toy_model):
    harm(harmed, "values.int32", "missing")
    repair(harmed)
    store = Store(harmed, model=toy_model)
    before = content_of(store.snapshot())
    added = store.add([pair("das feld .", "the field .", "n2"), pair("das letzte wort .", "the last word .", "n4")])
    assert (added.added, added.unchanged) == (2, 0)
    assert store.info()["health"]["waiting_sentences"] == 120
    added = store.add([pair("die neue zelle .", "the fresh cell .", "new", "another")])
    assert added.added == 1
    after = content_of(store.snapshot())
    assert after == before + Counter([("die neue zelle .", "the fresh cell .", "new", "another")])
    added = store.add([pair("das feld .", "the field .", "third", "third client")])
    assert added.unchanged == 1
    assert store.repair().recomputed_sentences == 119
    assert content_of(store.snapshot()) == after
    assert len(store.snapshot().live_sentence_ids) == 122


def test_a_correction_of_a_sentence_without_states_replaces_it(harmed, toy_model):
    harm(harmed, "keys.int8", "missing")
    repair(harmed)
    store = Store(harmed, model=toy_model)
    assert store.add([pair("das letzte wort .", "the very last word .", "n4")]).replaced == 1
    assert store.add([pair("das letzte wort .", "the last word .", "n5")]).added == 1
    found = [unit for unit in content_of(store.snapshot()) if unit[0] == "das letzte wort ."]
    assert sorted(unit[1:3] for unit in found) == [("the last word .", "n5"), ("the very last word .", "n4")]


def test_a_store_without_any_states_still_works(harmed, toy_model):
    harm(harmed, "keys.int8", "missing")
    assert repair(harmed).waiting_sentences == 122
    store = Store(harmed, model=toy_model)
    assert Translator(harmed, model=toy_model, **VANILLA).translate([SOURCE])[0].text
    assert store.remove(unit_id="u5").sentences == 1
    store.index()
    assert store.compact().sentences == 121
    assert store.info()["entries"] == 0
    assert store.repair().recomputed_sentences == 121


def test_repair_refuses_another_model(harmed, client, tmp_path):
    harm(harmed, "keys.int8", "flipped")
    other = Path(shutil.copytree(client.model, tmp_path / "other"))
    flip(other / "model.safetensors", 5000)
    before = {path: path.read_bytes() for path in harmed.rglob("*") if path.is_file()}
    with pytest.raises(StoreMismatchError):
        Store(harmed).repair(model=other)
    assert {path: path.read_bytes() for path in before} == before
    assert Store(harmed).repair(model=client.model, offline=True).is_whole


def test_control_characters_of_a_damaged_text_are_not_printed(monkeypatch):
    output: list[str] = []
    monkeypatch.setattr("nearmt.cli.verify_output.say", output.append)
    _say_lost([Lost("die\x00 \x1b[31mzelle", None, "client")], 1)
    assert output == ["  lost: client: die\ufffd \ufffd[31mzelle"]


def test_lost_sentences_are_reported(made, harmed):
    texts = harmed / "data-000001" / "texts.jsonl"
    texts.write_bytes(texts.read_bytes().replace(b"the fresh cell", b"the fresh bell"))
    code, output, errors = nearmt("verify", harmed, "--repair")
    assert code == 2
    assert "121 sentences kept; 1 lost" in output
    assert "lost: client n1: die neue zelle ." in errors
    (kept,) = Store(harmed).info()["set_aside"]
    assert f"The damaged files are kept in {kept['folder']}" in errors
    assert "bell" in (Path(kept["folder"]) / "data-000001" / "texts.jsonl").read_text(encoding="utf-8")


def test_removals_by_corrections_are_inferred_from_later_units(made, harmed):
    flip(harmed / "data-000001" / "removals.int64", 0)  # by a correction
    assert repair(harmed).is_whole
    assert content_of(Snapshot.open(harmed)) == content_of(Snapshot.open(made))
    flip(next(harmed.glob("data-*")) / "texts.jsonl", 30)
    assert repair(harmed).lost_removals == 0


def test_unreadable_removals_are_reported(harmed):
    flip(harmed / "data-000001" / "removals.int64", 8)
    code, _, errors = nearmt("verify", harmed)
    assert code == 2
    assert "removals.int64 was changed" in errors
    assert "--repair" in errors
    code, _, errors = nearmt("verify", harmed, "--repair")
    assert code == 2
    assert "1 removal could not be read" in errors
    code, output, _ = nearmt("verify", harmed, "--repair")
    assert code == 0
    assert "nothing to repair" in output


def test_damaged_files_stay_until_the_user_deletes_them(harmed, toy_model):
    damaged = {path.name: path.read_bytes() for path in (harmed / "data-000001").iterdir()}
    size = sum(map(len, damaged.values()))
    flip(harmed / "data-000001" / "sentences.bin", 100)
    damaged["sentences.bin"] = (harmed / "data-000001" / "sentences.bin").read_bytes()
    inodes = {path.name: path.stat().st_ino for path in (harmed / "data-000001").iterdir()}
    code, output, _ = nearmt("verify", harmed, "--repair", "--json")
    assert code == 0
    kept = Path(json.loads(output)["damaged_files"])
    assert kept.parent == harmed
    store = Store(harmed, model=toy_model)
    store.add([pair("die neue datei .", "the new file .", "n9")])
    store.remove(unit_id="u5")
    store.compact()
    store.train([(SOURCE, "x"), ("das feld .", "the field .")] * 4, settings=AdaptationSettings(max_k=2))
    assert {path.name: path.read_bytes() for path in (kept / "data-000001").iterdir()} == damaged
    assert {path.name: path.stat().st_ino for path in (kept / "data-000001").iterdir()} == inodes  # not copied
    assert (kept / "manifest.json").exists()
    for command in ("info", "verify"):
        code, output, errors = nearmt(command, harmed)
        assert code == 0
        assert str(kept) in output + errors
    assert store.info()["set_aside"][0]["bytes"] >= size
    flip(next(harmed.glob("data-*")) / "sentences.bin", 100)
    assert repair(harmed).damaged_files != str(kept)
    assert len(verify(harmed).set_aside) == 2
    for folder in verify(harmed).set_aside:
        shutil.rmtree(folder.folder)
    assert verify(harmed).set_aside == ()


def test_without_hard_links_the_damaged_files_are_moved(made, harmed, toy_model, monkeypatch):
    def fail(*args):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("os.link", fail)
    harm(harmed, "keys.int8", "flipped")
    damaged_files = repair(harmed, lambda manifest: toy_model).damaged_files
    assert damaged_files
    kept = Path(damaged_files)
    assert content_names(kept / "data-000001") == content_names(made / "data-000001")
    assert (kept / "manifest.json").exists()
    assert verify(harmed).is_sound
    settle(harmed)


class KilledError(BaseException):
    """Simulates a kill."""


class KilledAt:
    """Simulates a kill at the n-th call."""

    def __init__(self, number: int) -> None:
        self.left = number

    def wrap(self, function):
        def called(*args, **options):
            self.left -= 1
            if self.left == 0:
                raise KilledError
            if self.left < 0:
                return None  # a killed process does not clean up
            return function(*args, **options)

        return called


@pytest.mark.parametrize(
    "name", ["keys.int8", "projection.float32", "index", "sentence index: postings", "manifest.json"]
)
def test_a_killed_repair_leaves_the_damaged_or_the_repaired_store(made, toy_model, tmp_path, name):
    before, kills, commits = content_of(Snapshot.open(made)), 0, 0
    for number in range(1, 200):
        folder = Path(shutil.copytree(made, tmp_path / f"{number}.store"))
        harm(folder, name, "flipped")
        damaged = path_of(folder, name).read_bytes() if name != "manifest.json" else b""
        old = verify(folder).problems
        killed = KilledAt(number)
        try:
            with pytest.MonkeyPatch.context() as patch:
                for call in ("fsync", "rename", "replace", "mkdir", "link", "unlink"):
                    patch.setattr(os, call, killed.wrap(getattr(os, call)))
                patch.setattr(shutil, "rmtree", killed.wrap(shutil.rmtree))
                repair(folder, lambda manifest: toy_model)
        except KilledError:
            kills += 1
        else:
            break
        report = verify(folder)
        assert report.problems in ((), old)
        if report.is_sound:  # it was committed, so the damaged files must be kept
            commits += 1
            settle(folder)
            assert len(verify(folder).set_aside) == 1
        else:
            assert report.set_aside == ()
            assert repair(folder, lambda manifest: toy_model).is_whole
        (kept,) = verify(folder).set_aside
        if damaged:
            assert damaged in [path.read_bytes() for path in Path(kept.folder).rglob("*") if path.is_file()]
        assert content_of(Snapshot.open(folder)) == before
        check_states(made, folder, 0)
        settle(folder)
        shutil.rmtree(folder)
    assert kills > 10
    assert commits >= 1


def test_a_repair_on_a_full_disk_changes_nothing(made, harmed, toy_model, monkeypatch):
    harm(harmed, "keys.int8", "flipped")
    old = verify(harmed).problems

    def fail(*args, **options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(Quarantine, "prepare", fail)
        with pytest.raises(StoreError, match="the disk is full"):
            repair(harmed, lambda manifest: toy_model)
    assert verify(harmed).problems == old
    assert repair(harmed, lambda manifest: toy_model).is_whole


def test_int8_keys_are_restored_exactly(toy_model, tmp_path):
    settings = replace(BUILD, key_type="int8")
    made = build(write_memory(tmp_path), model=toy_model, out=tmp_path / "a.store", settings=settings, train=False)
    keys = (made.folder / "data-000001" / "keys.int8").read_bytes()
    flip(made.folder / "data-000001" / "keys.int8", 4000)
    assert made.repair().is_whole
    assert (made.folder / "data-000002" / "keys.int8").read_bytes() == keys


def test_an_intact_network_is_kept_when_another_is_damaged(toy_model, tmp_path):
    made = build(write_memory(tmp_path), model=toy_model, out=tmp_path / "a.store", settings=BUILD, train=False)
    made.train(settings=replace(ADAPTATION, methods=("adaptive", "robust")))
    (path,) = made.folder.glob("metak-*")
    flip(path, 700)
    done = made.repair()
    assert (done.lost_networks, done.needs_training, done.is_whole) == (("adaptive",), False, False)
    assert Translator(made.folder, model=toy_model).method.name == "robust"
    code, output, _ = nearmt("info", made.folder)
    assert code == 0
    assert "lost: run nearmt train" in output
    (path,) = made.folder.glob("robust-*")
    flip(path, 700)
    assert made.repair().needs_training
