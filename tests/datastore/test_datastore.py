"""The store on disk: written data is read back, a crash loses nothing, damage is detected and located."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from nearmt.corpus import SentencePair
from nearmt.datastore import (
    BuildProgress,
    Languages,
    Manifest,
    Snapshot,
    TextLookup,
    append_commit,
    storage_errors,
    verify,
    write_lock,
)
from nearmt.errors import StoreDamagedError, StoreError, StoreLockedError
from synthetic_stores import WIDTH, appended, segment


def new_store(folder: Path) -> Manifest:
    folder.mkdir()
    manifest = Manifest(
        model={"name": "m"}, languages=Languages("de", "en"), width=WIDTH, build=BuildProgress([], is_complete=True)
    )
    manifest.save(folder)
    return manifest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "a.store"
    manifest = new_store(path)
    manifest = appended(path, manifest, segment([("eins", "one"), ("zwei", "two\twith ü")], 1))
    appended(path, manifest, segment([("drei", "three"), ("eins", "ones")], 2))
    return path


def test_appended_data_is_read_back(folder):
    snapshot = Snapshot.open(folder)
    first, second = segment([("a", "b"), ("c", "d")], 1), segment([("a", "b"), ("c", "d")], 2)
    np.testing.assert_array_equal(snapshot.keys, np.vstack([first.keys, second.keys]))
    np.testing.assert_array_equal(snapshot.values, np.concatenate([first.values, second.values]))
    np.testing.assert_array_equal(snapshot.probabilities, np.concatenate([first.probabilities, second.probabilities]))
    assert [pair.target for pair in snapshot.texts()] == ["one", "two\twith ü", "three", "ones"]
    assert snapshot.text(1).unit_id == "zwei-id"


def test_every_entry_maps_to_its_sentence(folder):
    snapshot = Snapshot.open(folder)
    for sentence in range(4):
        first, end = snapshot.entry_range(sentence)
        assert (snapshot.sentence_ids_of(np.arange(first, end)) == sentence).all()
    assert snapshot.entry_range(3)[1] == len(snapshot)


def test_sentences_are_found_by_their_texts(folder):
    lookup = TextLookup(Snapshot.open(folder))
    assert lookup.same_source("eins").tolist() == [0, 3]
    assert lookup.same_pair(SentencePair("eins", "one")).tolist() == [0]
    assert lookup.same_source_or_target(SentencePair("neu", "three")).tolist() == [2]
    assert lookup.same_pair(SentencePair("one", "eins")).tolist() == []


def test_data_of_a_killed_writer_is_ignored(folder):
    before = Manifest.load(folder)
    append_commit(folder, before, segment([("lost", "lost")] * 3, 3))  # no manifest is saved
    snapshot = Snapshot.open(folder)
    assert len(snapshot.sentences) == 4
    assert verify(folder).is_sound
    appended(folder, before, segment([("new", "new")], 4))
    assert [pair.source for pair in Snapshot.open(folder).texts()][-1] == "new"
    assert verify(folder).is_sound


def test_a_snapshot_does_not_see_later_commits(folder):
    snapshot = Snapshot.open(folder)
    values = snapshot.values.copy()
    appended(folder, snapshot.manifest, segment([("später", "later")], 5))
    np.testing.assert_array_equal(snapshot.values, values)
    assert len(snapshot.sentences) == 4


FILES = [
    "keys.float16",
    "values.int32",
    "probabilities.float16",
    "positions.uint16",
    "sentences.bin",
    "texts.jsonl",
    "units.bin",
    "units.jsonl",
    "segments.jsonl",
]


def test_a_store_without_removals_fills_exactly_these_files(folder):
    filled = {path.name for path in (folder / "data-000001").iterdir() if path.stat().st_size}
    assert filled == set(FILES)


@pytest.mark.parametrize("name", FILES)
def test_verify_locates_a_flipped_byte(folder, name):
    path = folder / "data-000001" / name
    content = bytearray(path.read_bytes())
    content[len(content) // 4] ^= 1
    path.write_bytes(content)
    problems = verify(folder).problems
    assert len(problems) == 1
    assert "commit 1" in problems[0]
    assert path.name in problems[0]


@pytest.mark.parametrize("name", FILES)
def test_a_truncated_or_missing_file_is_refused_and_located(folder, name):
    path = folder / "data-000001" / name
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    with pytest.raises(StoreDamagedError, match=f"{path.name} is cut short"):
        Snapshot.open(folder)
    assert any("commit 2" in problem and path.name in problem for problem in verify(folder).problems)
    path.unlink()
    with pytest.raises(StoreDamagedError, match=f"{path.name} is missing"):
        Snapshot.open(folder)
    assert not verify(folder).is_sound


def test_a_folder_or_file_that_is_not_a_store_is_refused_in_one_sentence(tmp_path):
    with pytest.raises(StoreError, match="is not a nearmt store"):
        Snapshot.open(tmp_path)
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="is a file"):
        Snapshot.open(tmp_path / "file")
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(StoreError, match="does not describe"):
        Snapshot.open(tmp_path)
    (tmp_path / "manifest.json").write_text("{half")
    with pytest.raises(StoreDamagedError, match="damaged"):
        Snapshot.open(tmp_path)


def test_a_later_format_is_refused_naming_both_versions(folder):
    content = json.loads((folder / "manifest.json").read_text())
    content["format"] = 99
    (folder / "manifest.json").write_text(json.dumps(content))
    with pytest.raises(StoreError, match=r"format 99.*formats 2 and 3"):
        Snapshot.open(folder)


def test_a_changed_manifest_is_refused(folder):
    path = folder / "manifest.json"
    path.write_text(path.read_text().replace('"width": 4', '"width": 2'))
    with pytest.raises(StoreDamagedError, match="checksum"):
        Snapshot.open(folder)


def test_only_one_writer_at_a_time_and_a_killed_writer_releases_the_lock(folder):
    hold = "import sys, time; from pathlib import Path; from nearmt.datastore import write_lock\n"
    hold += "with write_lock(Path(sys.argv[1])): print('held', flush=True); time.sleep(60)"
    other = subprocess.Popen([sys.executable, "-c", hold, str(folder)], stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(StoreLockedError, match="another process"), write_lock(folder):
            pass
    finally:
        other.kill()
        other.wait()
        other.stdout.close()
    with write_lock(folder):
        pass


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        (errno.EACCES, "no permission to write there"),
        (errno.EROFS, "no permission to write there"),
        (errno.ENOSPC, "the disk is full"),
        (errno.EIO, "input/output error"),
    ],
)
def test_a_disk_error_is_reported_in_one_sentence(tmp_path, code, sentence):
    with pytest.raises(StoreError, match=f"x.bin: {sentence}"), storage_errors(tmp_path):
        raise OSError(code, os.strerror(code), "x.bin")


def test_a_full_disk_is_reported_and_leaves_the_store_intact(folder):
    """A limit on the size of files simulates a full disk: writes fail half-way."""
    script = """
import resource, signal, sys
from pathlib import Path
from synthetic_stores import appended, segment
from nearmt.errors import StoreError
from nearmt.datastore import Manifest
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
folder = Path(sys.argv[1])
try:
    appended(folder, Manifest.load(folder), segment([(str(i), "x" * 50) for i in range(200)], 1))
except StoreError as error:
    print(error)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])}
    environment.pop("COVERAGE_PROCESS_CONFIG", None)  # the limit on file sizes would stop coverage, too
    done = subprocess.run(
        [sys.executable, "-c", script, str(folder)], env=environment, capture_output=True, text=True, check=True
    )
    assert "the disk is full" in done.stdout
    assert len(Snapshot.open(folder).sentences) == 4
    assert verify(folder).is_sound
