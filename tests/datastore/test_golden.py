"""The golden store, made by an earlier version, opens, verifies and gives the same translations and evidence."""

import hashlib
import importlib.util
import json
import shutil
from pathlib import Path

import pytest

from nearmt.datastore import Manifest, verify
from nearmt.errors import StoreMismatchError
from nearmt.retrieval.indexing import IndexSettings
from nearmt.store import Store
from nearmt.translator import Translator

GOLDEN = Path(__file__).parents[1] / "golden"
_spec = importlib.util.spec_from_file_location("golden_make", GOLDEN / "make.py")
assert _spec
golden = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(golden)


@pytest.fixture(scope="module")
def expected():
    return json.loads((GOLDEN / "expected.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def model():
    return golden.load_golden_model(GOLDEN / "model")


def content_of(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        digest.update(str(path.relative_to(folder)).encode())
        digest.update(path.read_bytes() if path.is_file() else b"")
    return digest.hexdigest()


def check_like(found, wanted, where="") -> None:
    """Compare values, numbers with a tolerance: processors round differently."""
    if isinstance(wanted, dict):
        assert found.keys() == wanted.keys(), where
        for name in wanted:
            check_like(found[name], wanted[name], f"{where}.{name}")
    elif isinstance(wanted, list):
        assert len(found) == len(wanted), where
        for number, (one, other) in enumerate(zip(found, wanted, strict=True)):
            check_like(one, other, f"{where}[{number}]")
    elif isinstance(wanted, float):
        assert found == pytest.approx(wanted, rel=2e-3, abs=2e-3), where
    else:
        assert found == wanted, where


def test_the_golden_store_gives_the_recorded_translations(model, expected):
    before = content_of(GOLDEN / "store")
    assert verify(GOLDEN / "store").is_sound
    sources = [translation["source"] for translation in expected["translations"]]
    check_like(golden.expected_of(GOLDEN / "store", model, sources), expected)
    assert content_of(GOLDEN / "store") == before  # reading does not change it


def test_the_golden_store_covers_the_whole_format():
    manifest = Manifest.load(GOLDEN / "store")
    counts = manifest.extent.counts
    assert manifest.generation > 1
    assert manifest.index.files
    assert manifest.adaptation.networks["adaptive"]
    assert counts.entries > manifest.index.num_entries  # some entries are not in the index
    assert counts.removals >= 3
    assert counts.units > counts.sentences
    assert manifest.model["name"] == golden.NAME
    assert sum(path.stat().st_size for path in GOLDEN.rglob("*") if path.is_file()) < 400_000


def test_the_golden_store_can_be_searched_by_sentences(model, expected, tmp_path):
    store = Store(shutil.copytree(GOLDEN / "store", tmp_path / "store"), model=model)
    before = store.manifest
    assert (before.retrieval, before.sentence_index, before.dims) == ("tokens", None, None)
    store.index(IndexSettings(retrieval="sentences"))
    now = store.manifest
    assert (now.retrieval, now.index, now.key_range) == ("sentences", None, before.key_range)
    assert now.sentence_index.num_sentences == now.num_sentences
    assert store.verify().is_sound
    assert json.loads((store.folder / "manifest.json").read_text(encoding="utf-8"))["format"] == 3
    text = expected["translations"][0]["source"]
    with pytest.raises(StoreMismatchError, match="run nearmt train"):
        Translator(store.folder, model=model)
    vanilla = {"method": "vanilla", "k": 4, "temperature": 1.0, "knn_share": 0.5}
    found = Translator(store.folder, model=model, **vanilla).explain(text)
    assert found.text
    near = [neighbor.segment.source for token in found.tokens for neighbor in token.neighbors]
    assert near
    assert all(set(source.split()) & set(text.split()) for source in near)
    store.add([("die neue zelle .", "the new cell .")])
    store.compact()
    assert store.manifest.retrieval == "sentences"
    assert store.verify().is_sound


def test_the_golden_store_can_be_changed(model, expected, tmp_path):
    store = Store(shutil.copytree(GOLDEN / "store", tmp_path / "store"), model=model)
    store.add([("die neue zelle .", "the new cell .")])
    store.remove(origin="website")
    store.compact()
    assert store.verify().is_sound
    left = [unit for unit in expected["units"] if unit[3] != "website"]
    assert store.info()["units"] == len(left) + 1
    assert Translator(store.folder, model=model).translate([expected["translations"][0]["source"]])[0].text
