"""Flipped bytes, truncated and missing files: damage is located, and repair keeps everything that can be restored."""

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from damage import (
    COLUMNS,
    HARMS,
    LISTS_INDEX,
    PROJECTION,
    SENTENCE_INDEX,
    STATES,
    check_states,
    harm,
    path_of,
    states_of,
)
from nearmt.building.repair import Repaired
from nearmt.building.repair import repair_with as repair
from nearmt.datastore import Manifest, Snapshot, verify
from nearmt.datastore.commit_log import LOG
from nearmt.errors import StoreDamagedError, StoreError, StoreMismatchError
from nearmt.retrieval.indexing import IndexSettings
from nearmt.retrieval.modes import open_tokens
from nearmt.store import Store
from nearmt.translator import Translator
from torture_store import check_search, content_of, refusal, settle

SOURCE = "heute öffnet die tabelle die große zelle ."
VANILLA: dict[str, Any] = {"method": "vanilla", "k": 4, "temperature": 1.0, "knn_share": 0.5}


def check_reading(folder: Path, toy_model) -> None:
    """Reading a damaged store works or is refused in one sentence."""
    uses = [
        lambda: Translator(folder, model=toy_model).explain(SOURCE).tokens,
        lambda: Store(folder).info(),
        lambda: list(Store(folder).snapshot().all_units()),
        lambda: Store(folder).remove(unit_id="none"),
    ]
    for use in uses:
        error = refusal(use)
        assert error is None or str(folder) in error


def lost_of(repaired: Repaired) -> dict[str, int]:
    """The losses of a repair that are not zero."""
    names = ("lost_sentences", "lost_units", "incomplete_units", "lost_removals", "waiting_sentences")
    found = {name.partition("_sentences")[0]: getattr(repaired, name) for name in names}
    return {name: count for name, count in found.items() if count}


def check_repair(made: Path, folder: Path, toy_model, has_model: bool = True) -> Repaired:
    """Repair a store and check the result."""
    repaired = repair(folder, lambda manifest: toy_model) if has_model else repair(folder)
    assert repaired.problems
    report = verify(folder)
    assert report.is_sound, report.problems
    assert report.waiting_sentences == repaired.waiting_sentences
    assert [kept.folder for kept in report.set_aside] == [repaired.damaged_files] * bool(repaired.damaged_files)
    snapshot = Store(folder).snapshot()
    assert repaired.kept_sentences == len(snapshot.live_sentence_ids)
    check_states(made, folder, repaired.waiting_sentences)
    if len(snapshot):
        check_search(snapshot, 1)
    method = {} if snapshot.manifest.adaptation else VANILLA
    if snapshot.manifest.lacks_key_code:  # nobody knows yet whether new keys will be like those of the training
        with pytest.raises(StoreMismatchError, match="keys int8 of 16 dimensions"):
            Translator(folder, model=toy_model)
        method = VANILLA
    assert Translator(folder, model=toy_model, **method).translate([SOURCE])[0].text
    again = repair(folder)
    assert again.problems == ()
    assert again.damaged_files is None
    settle(folder)
    assert verify(folder).set_aside == report.set_aside
    return repaired


# File and damage → losses with or without a model, and number of sentences whose states are computed again.
RESULTS: dict[tuple[str, str], tuple[dict[str, int], int]] = {
    **{(name, "flipped"): ({}, 30) for name in STATES},
    **{(name, "cut"): ({}, 61) for name in STATES},
    **{(name, "missing"): ({}, 122) for name in STATES},
    **{(PROJECTION, how): ({}, 122) for how in HARMS},
    **{("sentences.bin", how): ({}, 0) for how in HARMS},
    ("texts.jsonl", "flipped"): ({"lost": 1}, 0),
    ("texts.jsonl", "cut"): ({"lost": 62}, 0),
    ("texts.jsonl", "missing"): ({"lost": 122}, 0),
    ("units.bin", "flipped"): ({}, 0),
    ("units.bin", "cut"): ({"lost_units": 1}, 0),
    ("units.bin", "missing"): ({"lost_units": 1}, 0),
    ("units.jsonl", "flipped"): ({"incomplete_units": 1}, 0),
    ("units.jsonl", "cut"): ({"incomplete_units": 62}, 0),
    ("units.jsonl", "missing"): ({"incomplete_units": 123}, 0),
    ("removals.int64", "flipped"): ({"lost_removals": 1}, 0),
    ("removals.int64", "cut"): ({"lost_removals": 2}, 0),
    ("removals.int64", "missing"): ({"lost_removals": 3}, 0),
    **{("segments.jsonl", how): ({}, 0) for how in HARMS},
}


@pytest.mark.parametrize("has_model", [True, False])
@pytest.mark.parametrize("how", HARMS)
@pytest.mark.parametrize("name", [*COLUMNS, PROJECTION])
def test_repair_keeps_what_can_be_read_or_computed(made, harmed, toy_model, name, how, has_model):
    harm(harmed, name, how)
    problems = verify(harmed).problems
    assert problems
    is_changed = how == "flipped" or (name, how) == (PROJECTION, "cut")
    assert all(f"{name} {'was changed' if is_changed else 'is'}" in problem for problem in problems)
    check_reading(harmed, toy_model)
    with pytest.raises(StoreDamagedError, match="verify"):
        Store(harmed).compact()
    lost, recomputed = RESULTS[name, how]
    repaired = check_repair(made, harmed, toy_model, has_model)
    waiting = {"waiting": recomputed} if recomputed and not has_model else {}
    assert lost_of(repaired) == lost | waiting
    assert repaired.recomputed_sentences == (recomputed if has_model else 0)
    assert repaired.is_whole == (not lost and not waiting)
    kept, before = content_of(Snapshot.open(harmed)), content_of(Snapshot.open(made))
    if set(lost) <= {"waiting"}:
        assert kept == before
    elif set(lost) <= {"lost", "lost_units"}:
        assert not kept - before
        assert sum((before - kept).values()) == sum(lost.values()) + (name == "texts.jsonl" and how != "flipped")
    elif "incomplete_units" in lost:
        assert Counter(unit[:2] for unit in kept.elements()) == Counter(unit[:2] for unit in before.elements())
        assert sum((before - kept).values()) == sum(lost.values())


@pytest.mark.parametrize("share", [0.0, 0.13, 0.31, 0.77, 0.999])
@pytest.mark.parametrize("name", COLUMNS)
def test_a_flipped_byte_affects_only_its_own_sentence_or_unit(made, harmed, toy_model, name, share):
    harm(harmed, name, "flipped", share)
    assert len(verify(harmed).problems) == 1
    check_reading(harmed, toy_model)
    repaired = check_repair(made, harmed, toy_model)
    kept, before = content_of(Snapshot.open(harmed)), content_of(Snapshot.open(made))
    if name not in ("texts.jsonl", "units.jsonl", "removals.int64"):
        assert kept == before
        assert repaired.is_whole
    elif name != "removals.int64":
        assert sum((before - kept).values()) == len(lost_of(repaired)) <= 1
    else:
        assert not before - kept


@pytest.mark.parametrize("how", HARMS)
@pytest.mark.parametrize("name", ["manifest.json", "manifest.copy.json"])
def test_a_manifest_is_restored_from_its_copy(made, harmed, toy_model, name, how):
    before = (harmed / name).read_bytes()
    harm(harmed, name, how)
    if name == "manifest.json":
        assert f"{name} " in verify(harmed).problems[0]
        with pytest.raises(StoreDamagedError, match=r"manifest\.json is"):
            Store(harmed)
    if (name, how) == ("manifest.copy.json", "missing"):
        assert verify(harmed).is_sound  # the golden store has none
        assert repair(harmed).problems == ()
        return
    damaged = (harmed / name).read_bytes() if how != "missing" else b""
    repaired = check_repair(made, harmed, toy_model)
    assert repaired.is_whole
    assert content_of(Snapshot.open(harmed)) == content_of(Snapshot.open(made))
    assert json.loads((harmed / name).read_bytes())["model"] == json.loads(before)["model"]
    assert (harmed / "data-000001").exists()  # only the manifest was rewritten
    if how != "missing":
        assert repaired.damaged_files
        assert (Path(repaired.damaged_files) / name).read_bytes() == damaged


def test_a_damaged_manifest_without_a_copy_is_refused_and_left_alone(harmed):
    (harmed / "manifest.copy.json").unlink()
    path = harmed / "manifest.json"
    path.write_bytes(path.read_bytes().replace(b'"width": 64', b'"width": 65'))
    files = {path: path.read_bytes() for path in harmed.rglob("*") if path.is_file()}
    for read in (verify, Store, repair):
        with pytest.raises(StoreDamagedError, match=r"manifest\.json is damaged"):
            read(harmed)
    assert {path: path.read_bytes() for path in files} == files
    path.unlink()
    with pytest.raises(StoreError, match="is not a nearmt store"):
        repair(harmed)


@pytest.mark.parametrize("how", HARMS)
@pytest.mark.parametrize("name", ["index", *SENTENCE_INDEX, "network"])
def test_a_damaged_index_or_network_affects_nothing_else(made, harmed, toy_model, name, how):
    path = path_of(harmed, name)
    harm(harmed, name, how)
    (problem,) = verify(harmed).problems
    assert problem == f"{path.name} {'is missing' if how == 'missing' else 'was changed'}"
    with pytest.raises(StoreDamagedError, match=path.name):
        Translator(harmed, model=toy_model)
    repaired = check_repair(made, harmed, toy_model, has_model=False)
    assert content_of(Snapshot.open(harmed)) == content_of(Snapshot.open(made))
    assert (Manifest.load(harmed).adaptation is None) == repaired.needs_training == (name == "network")
    assert repaired.lost_networks == (("adaptive",) if name == "network" else ())
    assert repaired.is_whole == (name != "network")
    assert (harmed / "data-000001").exists()  # nothing was copied


@pytest.fixture(scope="module")
def made_with_lists(made, tmp_path_factory) -> Path:
    folder = Path(shutil.copytree(made, tmp_path_factory.mktemp("lists") / "lists.store"))
    Store(folder).index(IndexSettings("lists:4", retrieval="both"))
    return folder


@pytest.mark.parametrize(
    ("part", "how"), [*((part, "flipped") for part in LISTS_INDEX), ("keys", "cut"), ("keys", "missing")]
)
def test_damaged_lists_affect_nothing_else(made_with_lists, tmp_path, toy_model, part, how):
    harmed = Path(shutil.copytree(made_with_lists, tmp_path / "harmed.store"))
    path = path_of(harmed, f"index: {part}")
    harm(harmed, f"index: {part}", how, 0.95)
    (problem,) = verify(harmed).problems
    assert problem == f"{path.name} {'is missing' if how == 'missing' else 'was changed'}"
    with pytest.raises(StoreDamagedError, match=path.name):
        open_tokens(Snapshot.open(harmed))
    repaired = check_repair(made_with_lists, harmed, toy_model, has_model=False)
    assert repaired.is_whole
    assert Manifest.load(harmed).index.factory == "lists:4"
    assert content_of(Snapshot.open(harmed)) == content_of(Snapshot.open(made_with_lists))


def test_lost_states_are_restored_bit_by_bit(made, harmed, toy_model):
    for name in STATES:
        harm(harmed, name, "flipped", 0.1)
    repair(harmed, lambda manifest: toy_model)
    before, after = states_of(Snapshot.open(made)), states_of(Snapshot.open(harmed))
    for sides, columns in after.items():
        for column, expected in zip(columns, before[sides], strict=True):
            assert column.tobytes() == expected.tobytes()
    texts = [SOURCE, "die neue zelle .", "die tabelle zeigt das bild ."]
    one, other = (Translator(folder, model=toy_model).translate(texts) for folder in (made, harmed))
    assert [result.text for result in one] == [result.text for result in other]
    assert [result.score for result in one] == pytest.approx([result.score for result in other])


def test_several_files_can_be_damaged_at_once(made, harmed, toy_model):
    for name in ("sentences.bin", "units.bin", "keys.int8"):
        harm(harmed, name, "flipped", 0.4)
    harm(harmed, LOG, "missing")
    repaired = repair(harmed, lambda manifest: toy_model)
    assert repaired.lost_sentences <= 1
    assert verify(harmed).is_sound
    assert not content_of(Snapshot.open(harmed)) - content_of(Snapshot.open(made))


@pytest.mark.parametrize(
    "names",
    [
        ("sentences.bin", "texts.jsonl"),
        ("units.bin", "units.jsonl"),
        ("sentences.bin", "units.bin"),
        ("units.jsonl", "sentences.bin"),
    ],
)
@pytest.mark.parametrize(
    "hows", [("missing", "flipped"), ("flipped", "missing"), ("cut", "cut"), ("missing", "missing")]
)
def test_damage_to_two_tables_loses_no_readable_text(made, harmed, toy_model, names, hows):
    for name, how in zip(names, hows, strict=True):
        harm(harmed, name, how)
    repaired = repair(harmed, lambda manifest: toy_model)
    assert verify(harmed).is_sound
    before, after = ({unit[:2] for unit in content_of(Snapshot.open(folder))} for folder in (made, harmed))
    texts = dict(zip(names, hows, strict=True)).get("texts.jsonl")
    lost = {None: 0, "flipped": 1, "cut": 62, "missing": 122}[texts]
    assert len(before - after) in (lost, 0 if texts == "flipped" else lost)
    assert repaired.lost_sentences in (lost, lost + 1, 0 if texts == "flipped" else lost)
