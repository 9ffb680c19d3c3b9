"""The manifest: everything in it is read back, and what cannot be read is refused with the reason."""

import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nearmt.datastore import BuildProgress, Languages, Manifest
from nearmt.datastore import manifest as manifest_module
from nearmt.datastore.commit_log import Counts, Extent
from nearmt.datastore.manifest import COPY, NAME, _checksum, now
from nearmt.datastore.records import IndexRecord
from nearmt.errors import StoreDamagedError, StoreError

WHOLE = Manifest(
    model={"name": "möwe", "engine": "int8"},
    languages=Languages("de", None),
    width=7,
    key_type="int8",
    key_range={"lowest": [0.5], "extent": [2.0]},
    generation=3,
    extent=Extent(Counts(1, 2, 3, 4, 5, 6), 2, 99, "ab"),
    build=BuildProgress([{"name": "a.tmx"}], {"strict": True}, 10, 5, {"empty": 1}, True),
    index=IndexRecord("faiss", "Flat", 1, 9, {"index-1.faiss": "cd"}),
    created_at="2024-05-01T00:00:00Z",
    changed_at="2024-05-02T00:00:00Z",
    version=4,
)

TRAINED: Any = SimpleNamespace(files={"a": "b"}, networks={"adaptive": "a"}, retrieval=SimpleNamespace(engine="torch"))


def test_a_manifest_is_read_as_it_was_saved_and_so_is_its_copy(tmp_path):
    WHOLE.save(tmp_path)
    assert Manifest.load(tmp_path) == WHOLE
    assert Manifest.load(tmp_path, COPY) == WHOLE
    assert (tmp_path / NAME).read_bytes() == (tmp_path / COPY).read_bytes()
    text = (tmp_path / NAME).read_text(encoding="utf-8")
    assert "möwe" in text, "not escaped"
    assert text.startswith('{\n "format": 3,\n "what": "nearmt store",\n')
    assert text.endswith("}\n")
    assert json.loads(text)["adaptation"] is None


def test_names_of_files_may_be_invalid_utf8(tmp_path):
    manifest = replace(WHOLE, build=BuildProgress([{"name": "\udcff.tmx"}]))  # as Python reads such a name
    manifest.save(tmp_path)
    assert Manifest.load(tmp_path) == manifest


def test_the_copy_is_written_first_and_only_the_manifest_flushes_the_names(tmp_path, monkeypatch):
    written = []
    monkeypatch.setattr(
        manifest_module, "replace_file", lambda path, content, flush_name=True: written.append((path.name, flush_name))
    )
    WHOLE.save(tmp_path)
    assert written == [(COPY, False), (NAME, True)]


def test_a_disk_error_names_the_store(tmp_path, monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(manifest_module, "replace_file", refuse)
    with pytest.raises(StoreError) as refused:
        WHOLE.save(tmp_path)
    assert str(refused.value) == f"{tmp_path}: the disk is full"


def test_properties_read_the_parts():
    assert (WHOLE.num_entries, WHOLE.num_sentences) == (1, 2)
    assert WHOLE.index_files == {"index-1.faiss": "cd"}
    assert replace(WHOLE, index=None).index_files == {}
    assert WHOLE.network_files == WHOLE.networks == {}
    assert WHOLE.engine == "int8"
    trained = replace(WHOLE, adaptation=TRAINED)
    assert (trained.network_files, trained.networks, trained.engine) == ({"a": "b"}, {"adaptive": "a"}, "torch")
    assert WHOLE.data_folder == "data-000003"
    assert (str(WHOLE.languages), str(Languages(None, "en"))) == ("de→?", "?→en")


def test_a_change_counts_the_commit_and_sets_its_time():
    changed = WHOLE.changed(width=9)
    assert changed == replace(WHOLE, width=9, version=5, changed_at=changed.changed_at)
    assert changed.changed_at != WHOLE.changed_at
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", now())


def test_the_checksum_does_not_depend_on_the_order_and_accepts_any_text():
    assert _checksum({"a": 1, "b": "ü\udcff"}) == _checksum({"b": "ü\udcff", "a": 1})
    assert _checksum({"a": 1}) != _checksum({"a": 2})
    assert _checksum({"b": "ü", "a": 1}) == hashlib.sha256('{"a": 1, "b": "ü"}'.encode()).hexdigest()


def refusal(folder: Path, kind: type[StoreError] = StoreDamagedError) -> str:
    with pytest.raises(StoreError) as refused:
        Manifest.load(folder)
    assert type(refused.value) is kind
    return str(refused.value)


def test_a_folder_without_a_manifest_is_refused(tmp_path):
    assert refusal(tmp_path, StoreError) == f"{tmp_path} is not a nearmt store: it has no manifest.json"
    WHOLE.save(tmp_path)
    (tmp_path / NAME).unlink()
    assert refusal(tmp_path) == f"{tmp_path / NAME} is missing: run nearmt verify {tmp_path}"
    file = tmp_path / COPY
    assert refusal(file, StoreError) == f"{file} is not a nearmt store: it is a file, not a folder"


def test_a_manifest_that_cannot_be_read_is_refused(tmp_path):
    (tmp_path / NAME).mkdir()
    assert refusal(tmp_path, StoreError) == f"{tmp_path / NAME}: is a directory"


@pytest.mark.parametrize("content", [b"{half", b"\xff\xfe{}"])
def test_a_manifest_that_is_not_json_is_damaged(tmp_path, content):
    (tmp_path / NAME).write_bytes(content)
    assert refusal(tmp_path).startswith(f"{tmp_path / NAME} is damaged: ")


def saved_with(folder: Path, change: dict[str, Any], without: tuple[str, ...] = ()) -> None:
    """Save a manifest with some changes and a checksum that matches them."""
    WHOLE.save(folder)
    content = {**json.loads((folder / NAME).read_text(encoding="utf-8")), **change}
    content = {name: value for name, value in content.items() if name not in ("sha256", *without)}
    content["sha256"] = _checksum(content)
    (folder / NAME).write_text(json.dumps(content), encoding="utf-8")


@pytest.mark.parametrize("content", ["[]", "{}", '{"what": "other"}'])
def test_other_json_is_not_a_store(tmp_path, content):
    (tmp_path / NAME).write_text(content)
    assert refusal(tmp_path, StoreError) == f"{tmp_path / NAME} does not describe a nearmt store"


@pytest.mark.parametrize(("change", "without", "found"), [({"format": 4}, (), 4), ({}, ("format",), None)])
def test_another_format_is_refused(tmp_path, change, without, found):
    saved_with(tmp_path, change, without)
    assert (
        refusal(tmp_path, StoreError) == f"{tmp_path} has store format {found}, and this nearmt reads formats 2 and 3"
    )


def test_a_changed_manifest_is_damaged(tmp_path):
    WHOLE.save(tmp_path)
    text = (tmp_path / NAME).read_text(encoding="utf-8")
    for changed in (text.replace('"width": 7', '"width": 8'), text.replace('"sha256"', '"sha"')):
        (tmp_path / NAME).write_text(changed, encoding="utf-8")
        assert refusal(tmp_path) == f"{tmp_path / NAME} is damaged: its checksum does not match"


@pytest.mark.parametrize(
    ("change", "without"),
    [({}, ("extent",)), ({}, ("languages",)), ({}, ("build",)), ({"extent": 3}, ()), ({"unknown": 1}, ())],
)
def test_a_manifest_without_its_parts_is_damaged(tmp_path, change, without):
    saved_with(tmp_path, change, without)
    assert refusal(tmp_path).startswith(f"{tmp_path / NAME} is damaged: ")


def test_index_and_training_may_be_left_out(tmp_path):
    saved_with(tmp_path, {}, ("index", "adaptation"))
    assert Manifest.load(tmp_path) == replace(WHOLE, index=None)
