"""A byte flipped, a file cut short or gone: it is named, and repair keeps all that can be read or computed anew."""

import json
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from damage import COLUMNS, HARMS, STATES, flip, harm, make_store, pair, path_of
from nearmt import memory
from nearmt.cli.app import app
from nearmt.errors import ModelError, StoreDamagedError, StoreError, StoreMismatchError
from nearmt.memory import Store
from nearmt.repairing import Repaired, repair
from nearmt.store import Manifest, Snapshot, verify
from nearmt.store.extent import LOG
from nearmt.translator import Translator
from torture_store import check_search, content_of, refusal, settle

SOURCE = "heute öffnet die tabelle die große zelle ."
VANILLA = {"method": "vanilla", "k": 4, "temperature": 1.0, "knn_share": 0.5}


@pytest.fixture(scope="module")
def made(toy_model, tmp_path_factory) -> Path:
    return make_store(tmp_path_factory.mktemp("made"), toy_model)


@pytest.fixture
def harmed(made, tmp_path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "harmed.store"))


@pytest.fixture
def no_model(monkeypatch) -> None:
    """The store's model cannot be had."""

    def fail(*args, **options):
        raise ModelError("the store's model is gone")

    monkeypatch.setattr(memory, "load_model", fail)


def states_of(snapshot: Snapshot) -> dict[tuple[str, str], list[np.ndarray]]:
    """Keys, values, probabilities and positions of every sentence that counts, by its texts."""
    found = {}
    for number in snapshot.live_sentence_ids.tolist():
        rows = slice(int(snapshot.sentences["first_entry"][number]), int(snapshot.sentence_ends[number]))
        columns = (snapshot.keys, snapshot.values, snapshot.probabilities, snapshot.positions)
        found[snapshot.sides(number)] = [np.array(column[rows]) for column in columns]
    return found


def check_states(made: Path, repaired: Path, waiting: int) -> None:
    """States are those of the original; sentences of batches that are the same have the same bits."""
    before, after = states_of(Snapshot.open(made)), states_of(Snapshot.open(repaired))
    assert sum(not len(states[1]) for states in after.values()) == waiting
    for sides, (keys, values, probabilities, positions) in after.items():
        if len(values):
            expected = before[sides]
            assert values.tolist() == expected[1].tolist()
            assert positions.tolist() == expected[3].tolist()
            np.testing.assert_allclose(keys, expected[0], atol=2e-3, rtol=2e-3)
            np.testing.assert_allclose(probabilities, expected[2], atol=2e-3)


def check_reading(folder: Path, toy_model) -> None:
    """Whatever is read of a damaged store works or is refused in one sentence."""
    uses = [
        lambda: Translator(folder, model=toy_model).explain(SOURCE).tokens,
        lambda: Store(folder).info(),
        lambda: list(Store(folder).snapshot().all_units()),
        lambda: Store(folder).remove(unit_id="none"),
    ]
    for use in uses:
        told = refusal(use)
        assert told is None or str(folder) in told


def lost_of(repaired: Repaired) -> dict[str, int]:
    """What of a repair is not zero."""
    names = ("lost_sentences", "lost_units", "incomplete_units", "lost_removals", "waiting_sentences")
    found = {name.partition("_sentences")[0]: getattr(repaired, name) for name in names}
    return {name: count for name, count in found.items() if count}


def check_repair(made: Path, folder: Path, toy_model, has_model: bool = True) -> Repaired:
    """Repair, and look at all that a repaired store has to be."""
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
    assert Translator(folder, model=toy_model, **method).translate([SOURCE])[0].text
    again = repair(folder)
    assert again.problems == ()
    assert again.damaged_files is None
    settle(folder)
    assert verify(folder).set_aside == report.set_aside
    return repaired
