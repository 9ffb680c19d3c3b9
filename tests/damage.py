"""Damaging a store, for the tests of repair and the table in docs/repair.md."""

from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy as np

from nearmt.corpus import SentencePair
from nearmt.datastore import Manifest, Snapshot, date_of
from nearmt.models import Seq2Seq
from nearmt.store import build
from torture_store import ADAPTATION, BUILD, write_memory

STATES = ("keys.int8", "values.int32", "probabilities.float16", "positions.uint16")
COLUMNS = (*STATES, "sentences.bin", "texts.jsonl", "units.bin", "units.jsonl", "removals.int64", "segments.jsonl")
PROJECTION = "projection.float32"
SENTENCE_INDEX = tuple(f"sentence index: {part}" for part in ("terms", "starts", "ngrams", "begins", "postings"))
LISTS_INDEX = ("groups", "per-group", "centroids", "sizes", "keys", "norms", "ids")
BESIDE = ("manifest.json", "manifest.copy.json", "index", *SENTENCE_INDEX, "network")
HARMS = ("flipped", "cut", "missing")
ADDED_AT = 1_777_777_777


def pair(source: str, target: str, unit: str, origin: str = "client") -> SentencePair:
    return SentencePair(source, target, unit, origin)


def make_store(folder: Path, model: Seq2Seq) -> Path:
    """Make a store of several commits, with additions, corrections and removals.

    The clock stands still: a unit without a date has the time at which it was added, and a repair that has to guess it
    takes the time of the commit, which may be a second later.
    """
    with (
        mock.patch("nearmt.datastore.units.time", SimpleNamespace(time=lambda: ADDED_AT)),
        mock.patch("nearmt.datastore.columns.now", return_value=date_of(ADDED_AT)),
    ):
        return _make_store(folder, model)


def _make_store(folder: Path, model: Seq2Seq) -> Path:
    store = build(write_memory(folder), model=model, out=folder / "a.store", settings=BUILD, adaptation=ADAPTATION)
    store.add([pair("die neue zelle .", "the new cell .", "n1"), pair("das feld .", "the field .", "n2")])
    store.add([pair("die neue zelle .", "the fresh cell .", "n1")])  # a correction
    store.remove(unit_id="u3")
    store.add([pair("die datei .", "the file .", "n3"), pair("das feld .", "the field .", "other", "second client")])
    store.add([pair("das feld .", "the field .", "third", "third client")])
    store.remove(origin="second client")
    store.remove(source="die datei .")
    store.add([pair("das letzte wort .", "the last word .", "n4")])
    return store.folder


def path_of(folder: Path, name: str) -> Path:
    """The path of a file by its name in the table."""
    kind, _, part = name.partition(": ")
    if kind in ("index", "network", "sentence index"):
        names = {"index": "index-*.faiss", "network": "metak-*", f"index: {part}": f"index-*-lists-{part}.npy"}
        (found,) = folder.glob(names.get(name, f"index-*-sentences-{part}.npy"))
        return found
    if name in BESIDE:
        return folder / name
    return folder / Manifest.load(folder).data_folder / name


def flip(path: Path, byte: int) -> None:
    content = bytearray(path.read_bytes())
    content[byte] ^= 0x21
    path.write_bytes(content)


def harm(folder: Path, name: str, how: str, share: float = 0.5) -> None:
    """Flip a byte of a file, truncate it or delete it."""
    path = path_of(folder, name)
    at = int(path.stat().st_size * share)
    if how == "flipped":
        flip(path, at)
    elif how == "cut":
        path.write_bytes(path.read_bytes()[:at])
    else:
        path.unlink()


def content_names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def states_of(snapshot: Snapshot) -> dict[tuple[str, str], list[np.ndarray]]:
    """Keys, values, probabilities and positions of every sentence, removed ones included, by its texts."""
    found = {}
    for number in range(len(snapshot.sentences)):
        rows = slice(int(snapshot.sentences["first_entry"][number]), int(snapshot.sentence_ends[number]))
        columns = (snapshot.keys, snapshot.values, snapshot.probabilities, snapshot.positions)
        found[snapshot.sides(number)] = [np.array(column[rows]) for column in columns]
    return found


def _distances(keys: np.ndarray) -> np.ndarray:
    """Distances of the keys of a sentence from the next."""
    found: np.ndarray = np.linalg.norm(np.diff(keys, axis=0), axis=1)
    return found


def check_states(made: Path, repaired: Path, waiting: int) -> None:
    """Check that all states are those of the original store, up to rounding, and count sentences without states."""
    original, current = Snapshot.open(made), Snapshot.open(repaired)
    before, after = states_of(original), states_of(current)
    codes = original.key_code, current.key_code
    assert sum(not len(states[1]) for states in after.values()) == waiting
    for sides, (keys, values, probabilities, positions) in after.items():
        if len(values):
            expected = before[sides]
            assert values.tolist() == expected[1].tolist()
            assert positions.tolist() == expected[3].tolist()
            if current.manifest.key_range == original.manifest.key_range:
                np.testing.assert_allclose(keys.astype(int), expected[0].astype(int), atol=1)
            else:  # the projection was lost and fitted again: only distances can be compared
                one, other = (code.decode(part) for code, part in zip(codes, (expected[0], keys), strict=True))
                np.testing.assert_allclose(_distances(one), _distances(other), rtol=0.2, atol=0.2)
            np.testing.assert_allclose(probabilities, expected[2], atol=2e-3)
