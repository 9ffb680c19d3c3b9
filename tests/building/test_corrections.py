"""Adding a stored source with another target: which translations are kept, and what the user is told."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from nearmt.building.corrections import EditBatch
from nearmt.cli.app import app
from nearmt.corpus import SentencePair
from nearmt.store import Store
from nearmt.translator import Translator

SOURCE = "die neue tabelle zeigt die zelle ."
OLD, NEW, OTHER = "the old sheet is here .", "the new sheet is here .", "another sheet is here ."


def pair(target: str, origin: str | None = "client", unit: str | None = None, source: str = SOURCE) -> SentencePair:
    return SentencePair(source, target, unit, origin)


@pytest.fixture
def store(store_copy, toy_model) -> Store:
    return Store(store_copy, model=toy_model)


def targets(store: Store, source: str = SOURCE) -> set[tuple[str, str | None]]:
    return {(unit.target, unit.origin) for unit in store.snapshot().all_units() if unit.source == source}


def test_a_pair_without_a_unit_id_replaces_the_older_one(store, toy_model):
    store.add([pair(OLD)])
    added = store.add([pair(NEW)])
    assert (added.added, added.replaced, added.competing) == (0, 1, 0)
    assert targets(store) == {(NEW, "client")}
    shown = {
        neighbor.segment.target
        for token in Translator(store.folder, model=toy_model).explain(SOURCE).tokens
        for neighbor in token.neighbors
    }
    assert NEW in shown
    assert OLD not in shown


def test_pairs_without_an_origin_correct_each_other(store):
    store.add([(SOURCE, OLD)])
    assert store.add([(SOURCE, NEW)]).replaced == 1
    assert targets(store) == {(NEW, None)}


def test_a_pair_without_a_unit_id_replaces_all_units_of_its_source_and_origin(store):
    store.add([pair(OLD, unit="u1"), pair(OTHER, unit="u2"), pair(OLD, origin="website")])
    added = store.add([pair(NEW)])
    assert (added.added, added.replaced) == (0, 1)
    assert targets(store) == {(NEW, "client"), (OLD, "website")}


def test_a_pair_with_a_unit_id_of_its_own_leaves_other_units_alone(store):
    store.add([pair(OLD), pair(OTHER, unit="u2")])
    assert store.add([pair(NEW, unit="u3")]).added == 1
    assert targets(store) == {(OLD, "client"), (OTHER, "client"), (NEW, "client")}


def test_units_of_another_origin_are_kept_and_reported(store):
    store.add([pair(OLD)])
    added = store.add([pair(NEW, origin="website")])
    assert (added.added, added.replaced, added.competing, added.competing_origins) == (1, 0, 1, ("client",))
    assert targets(store) == {(OLD, "client"), (NEW, "website")}


def test_keep_both_keeps_both_targets(store):
    store.add([pair(OLD)])
    added = store.add([pair(NEW)], keep_both=True)
    assert (added.added, added.replaced) == (1, 0)
    assert targets(store) == {(OLD, "client"), (NEW, "client")}


def test_pairs_of_one_call_never_replace_each_other(store):
    assert store.add([pair(OLD), pair(NEW)]).added == 2
    assert targets(store) == {(OLD, "client"), (NEW, "client")}
    again = store.add([pair(NEW), pair(OLD)])
    assert (again.unchanged, again.replaced, again.added) == (2, 0, 0)
    # Correcting one of the two leaves the other.
    changed = store.add([pair(OTHER), pair(OLD)])
    assert (changed.replaced, changed.unchanged) == (1, 1)
    assert targets(store) == {(OTHER, "client"), (OLD, "client")}


def test_one_of_two_stored_targets_can_be_chosen(store):
    store.add([pair(OLD), pair(NEW), pair(OTHER, unit="u1")])
    assert store.add([pair(NEW)]).replaced == 1
    assert targets(store) == {(NEW, "client")}
    assert store.add([pair(NEW)]).unchanged == 1


def test_several_calls_can_share_one_batch(store):
    store.add([pair(OLD)])
    batch = EditBatch()
    assert store.add([pair(NEW)], batch=batch).replaced == 1
    assert store.add([pair(OTHER)], batch=batch).added == 1
    assert targets(store) == {(NEW, "client"), (OTHER, "client")}


def test_a_pair_that_is_stored_with_a_unit_id_is_unchanged(store):
    store.add([pair(OLD, unit="u1")])
    added = store.add([pair(OLD)])
    assert (added.unchanged, added.replaced, added.duplicates) == (1, 0, 0)


def test_a_correction_can_be_reverted_by_another(store):
    for target in (OLD, NEW, OLD, NEW, OLD):
        store.add([pair(target)])
        assert targets(store) == {(target, "client")}
    assert store.verify().is_sound
    store.compact()
    assert targets(store) == {(OLD, "client")}


def test_a_correction_that_is_too_long_replaces_nothing(store, toy_model):
    store.add([pair(OLD)])
    added = store.add([pair("the sheet " * toy_model.max_target_tokens)])
    assert (added.too_long, added.replaced) == (1, 0)
    assert targets(store) == {(OLD, "client")}


def test_a_pair_stored_by_another_process_is_corrected(store, toy_model):
    store.add([pair("a first pair .", source="etwas anderes .")])
    Store(store.folder, model=toy_model).add([pair(OLD)])
    assert store.add([pair(NEW)]).replaced == 1
    assert targets(store) == {(NEW, "client")}


def test_a_store_object_reads_the_store_again_after_many_additions(store, monkeypatch):
    monkeypatch.setattr("nearmt.building.editing._MAX_RECENT", 2)
    for number in range(6):
        store.add([pair(OLD, source=f"{SOURCE} {number}")])
    for number in range(6):
        assert store.add([pair(NEW, source=f"{SOURCE} {number}")]).replaced == 1


def test_a_build_keeps_all_targets_of_a_source(toy_model, tmp_path):
    from nearmt.store import build

    memory = tmp_path / "memory.tsv"
    memory.write_text("".join(f"{SOURCE}\t{target}\n" for target in (OLD, NEW, OLD)), encoding="utf-8")
    store = build(memory, model=toy_model, out=tmp_path / "a.store", train=False)
    assert targets(store) == {(OLD, "memory.tsv"), (NEW, "memory.tsv")}
    assert store.add([memory]).unchanged == 3
    assert targets(store) == {(OLD, "memory.tsv"), (NEW, "memory.tsv")}


def run(*arguments: str | Path) -> tuple[str, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.stdout, result.stderr


def test_the_add_command_reports_what_it_did(store_copy, client, tmp_path):
    file = tmp_path / "fix.tsv"

    def add(target: str, *options: str) -> tuple[str, str]:
        file.write_text(f"{SOURCE}\t{target}\n", encoding="utf-8")
        return run("add", store_copy, file, "--model", client.model, "--quiet", *options)

    assert add(OLD)[0] == "1 new\n"
    assert add(OLD)[0] == "1 unchanged\n"
    assert add(NEW)[0] == "1 corrected\n"
    assert add(OTHER, "--keep-both")[0] == "1 new\n"
    out, error = add("a third sheet .", "--origin", "client b")
    assert out == "1 new\n"
    assert "One of the added sources also has another translation, from fix.tsv. All of them are used." in error
    assert "--origin fix.tsv" in error
