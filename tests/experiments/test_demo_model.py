"""The model of nearmt-demo: how it is packed, and how it is unpacked into the cache directory."""

import hashlib
import os
import runpy
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nearmt_demo
import numpy as np
import pytest
from nearmt_demo import model_cache
from safetensors import SafetensorError
from safetensors.numpy import load_file

from command_line import assert_one_sentence, nearmt
from nearmt.decoding.decoder import Decoder
from nearmt.models import Seq2Seq

RECIPE = runpy.run_path(str(Path(__file__).parents[2] / "recipes" / "demo-model" / "pack.py"))
# Stores know their model by it, so it must be the same on every machine.
WEIGHTS = "6e3d0100c395b6cd87a5e4ffeab79bcc45d7497841ca4d75bfd453b254d68142"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(model_cache.platformdirs, "user_cache_path", lambda name: tmp_path / "cache" / name)
    return tmp_path / "cache" / "nearmt"


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A packed model of two tensors, in place of the real one."""
    random = np.random.default_rng(1)
    tensors = {"matrix": random.standard_normal((9, 40)).astype(np.float32), "bias": np.ones(9, np.float32)}
    tensors["matrix"][3] *= 1e-3
    tensors["matrix"][4, 5] = 60  # needs a larger step than the other rows
    tensors["matrix"][7] = 0
    folder = tmp_path / "packed"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    content = RECIPE["pack"](tensors)
    (folder / "weights.safetensors.gz").write_bytes(content)
    monkeypatch.setattr(model_cache, "_PACKED", folder)
    monkeypatch.setattr(model_cache, "_PACKED_SHA256", hashlib.sha256(content).hexdigest())
    return tensors


def test_the_shipped_model_has_its_fingerprint_and_translates(cache):
    reports = []
    folder = nearmt_demo.model_folder(lambda *report: reports.append(report))
    assert folder.parent == cache
    assert reports[-1][1] == reports[-1][2] > 40
    model = Seq2Seq.load(folder)
    assert model.identity.weights == WEIGHTS
    assert (model.source_lang, model.target_lang) == ("fr", "en")
    decoder = Decoder(model)
    outputs = decoder.texts(decoder.decode(model.tokenize_sources(["Où est la gare ?", "J'ai acheté un livre hier."])))
    assert outputs == ["Where's the station?", "I bought a book yesterday."]


def test_the_packed_model_is_small():
    packed = Path(nearmt_demo.__file__).parent / "model"
    assert sum(path.stat().st_size for path in packed.iterdir()) <= 55e6


def test_unpacked_weights_differ_by_at_most_half_a_step(small):
    found = load_file(nearmt_demo.model_folder() / "model.safetensors")
    assert {name: tensor.dtype for name, tensor in found.items()} == dict.fromkeys(small, np.float16)
    typical = 0.08 * np.sqrt(np.mean(small["matrix"].astype(np.float64) ** 2))
    steps = np.maximum(typical, np.abs(small["matrix"]).max(axis=1, keepdims=True) / 127)
    assert (np.abs(found["matrix"] - small["matrix"]) <= 0.502 * steps + 2e-3 * np.abs(small["matrix"])).all()
    assert np.array_equal(found["bias"], small["bias"])


def test_a_second_call_unpacks_nothing(small):
    folder = nearmt_demo.model_folder()
    assert nearmt_demo.model_folder(lambda *report: pytest.fail("unpacked again")) == folder
    assert (folder / "config.json").read_text() == "{}"


def test_a_failure_while_unpacking_leaves_nothing(small, cache, monkeypatch):
    def fail(*args, **options):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(model_cache, "save_file", fail)
        with pytest.raises(
            OSError, match=r"Cannot unpack the demo's model \(152 MB\) here: No space left on device; set XDG"
        ):
            nearmt_demo.model_folder()
    assert list(cache.iterdir()) == []
    assert nearmt_demo.model_folder().is_dir()


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "checksums.json"])
@pytest.mark.parametrize("damage", ["missing", "cut", "changed"])
def test_a_damaged_folder_is_replaced(small, name, damage):
    folder = nearmt_demo.model_folder()
    path, content = folder / name, (folder / name).read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(content[:-1] if damage == "cut" else bytes([content[0] ^ 1]) + content[1:])
    assert nearmt_demo.model_folder() == folder
    assert path.read_bytes() == content


def test_what_killed_processes_left_is_removed_after_a_while(small, cache):
    old, recent = (cache / f".opus-mt-fr-en-{model_cache._PACKED_SHA256[:8]}-{name}" for name in ("old", "recent"))
    for left in (old, recent):
        left.mkdir(parents=True)
    os.utime(old, (0, 0))
    folder = nearmt_demo.model_folder()
    assert sorted(cache.iterdir()) == sorted([folder, recent])


def test_a_full_disk_is_reported_as_such(small, monkeypatch):
    def fail(*args, **options):
        raise SafetensorError("I/O error: No space left on device")

    monkeypatch.setattr(model_cache, "save_file", fail)
    with pytest.raises(OSError, match=r"Cannot unpack the demo's model .* No space left"):
        nearmt_demo.model_folder()


def test_an_unusable_cache_directory_is_reported_in_one_sentence(small, tmp_path):
    (tmp_path / "cache").write_text("a file")
    result = nearmt("demo", "--out", tmp_path / "out")
    assert_one_sentence(result, "cannot unpack the demo's model .* not a directory; set xdg_cache_home")


def test_everybody_may_read_the_files(small):
    assert {path.stat().st_mode & 0o444 for path in nearmt_demo.model_folder().iterdir()} == {0o444}


def test_several_processes_can_unpack_at_once(small, cache):
    with ThreadPoolExecutor(4) as pool:
        folders = set(pool.map(lambda _: nearmt_demo.model_folder(), range(12)))
    assert len(folders) == 1
    assert list(cache.iterdir()) == [*folders]


def test_a_damaged_package_is_reported_in_one_sentence(small, tmp_path, cache):
    path = tmp_path / "packed" / "weights.safetensors.gz"
    path.write_bytes(path.read_bytes()[:-9])
    result = nearmt("demo", "--out", tmp_path / "out")
    assert_one_sentence(result, "weights.safetensors.gz: the file is damaged; install nearmt-demo again")
    assert list(cache.iterdir()) == []
    shutil.rmtree(tmp_path / "packed")
