"""Full disks, failing writes and read-only folders: a change is made completely or not at all, with a clear error."""

import contextlib
import ctypes
import errno
import os
import resource
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from nearmt.corpus import SentencePair
from nearmt.datastore import Snapshot, keys, partial_folder, verify
from nearmt.errors import StoreError
from nearmt.retrieval.arrays import ArrayFile
from nearmt.retrieval.indexing import IndexSettings
from nearmt.retrieval.sentences import building
from nearmt.store import Store, build
from nearmt.translator import Translator
from torture_memory import Change
from torture_store import (
    ADAPTATION,
    BUILD,
    check_search,
    content_of,
    difference_between,
    perform,
    refusal,
    settle,
    write_memory,
)

NEW = (
    SentencePair("die neue zelle .", "the new cell .", "n1", "client"),
    SentencePair("das alte feld .", "the old field .", "n2", "client"),
)
CHANGES = {
    "add": Change("add", NEW),
    "remove": Change("remove", removal=(("unit_id", "u3"),)),
    "compact": Change("compact"),
    "index": Change("index"),
    "train": Change("train"),
}


@pytest.fixture(scope="module")
def made(toy_model, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    store = build(write_memory(folder), model=toy_model, out=folder / "a.store", settings=BUILD, adaptation=ADAPTATION)
    store.add(NEW[:1], model=toy_model)
    store.remove(unit_id="u7")
    return store.folder


@pytest.fixture
def fresh(made, tmp_path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "fresh.store"))


def check_unharmed(folder: Path, before, after) -> None:
    assert verify(folder).is_sound
    content = content_of(Snapshot.open(folder))
    assert content in (before, after)
    check_search(Snapshot.open(folder), 1)


class FailingAt:
    """Makes the n-th call and all later ones fail with a full disk."""

    def __init__(self, number: int) -> None:
        self.left = number

    def wrap(self, function):
        def called(*args, **options):
            self.left -= 1
            if self.left <= 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return function(*args, **options)

        return called


@pytest.mark.parametrize("kind", CHANGES)
def test_a_failing_flush_or_rename_leaves_the_store_before_or_after_the_change(made, toy_model, tmp_path, kind):
    before = content_of(Snapshot.open(made))
    done = Path(shutil.copytree(made, tmp_path / "done.store"))
    perform(done, CHANGES[kind], toy_model)
    after = content_of(Snapshot.open(done))
    failures = 0
    for number in range(1, 200):
        folder = Path(shutil.copytree(made, tmp_path / f"{number}.store"))
        failing = FailingAt(number)
        with pytest.MonkeyPatch.context() as patch:
            for name in ("fsync", "rename", "replace", "mkdir"):
                patch.setattr(os, name, failing.wrap(getattr(os, name)))
            error = refusal(partial(perform, folder, CHANGES[kind], toy_model))
        if error is None:
            assert content_of(Snapshot.open(folder)) == after
            break
        assert "the disk is full" in error
        failures += 1
        check_unharmed(folder, before, after)
        if number % 4 == 1:
            perform(folder, CHANGES[kind], toy_model)  # succeeds once there is space again
            check_unharmed(folder, after, after)
            settle(folder)
        shutil.rmtree(folder)
    assert failures >= 3


@contextlib.contextmanager
def largest_file(size: int):
    """Limit the size of files in bytes, to simulate a disk that fills up in the middle of a write."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("kind", CHANGES)
def test_a_file_that_cannot_grow_leaves_the_store_intact(made, toy_model, tmp_path, kind):
    before = content_of(Snapshot.open(made))
    written = made.glob("m*") if kind == "train" else made.rglob("*")  # manifest and Meta-k
    sizes = sorted({path.stat().st_size for path in written if path.is_file() and path.stat().st_size > 64})
    failures = 0
    for number, size in enumerate(sizes):
        folder = Path(shutil.copytree(made, tmp_path / f"{number}.store"))
        with largest_file(size - 10 if kind in ("compact", "train") else size + 10):
            error = refusal(partial(perform, folder, CHANGES[kind], toy_model))
        if error is not None:
            assert "disk" in error
            failures += 1
            check_unharmed(folder, before, before)
        perform(folder, CHANGES[kind], toy_model)
        after = content_of(Snapshot.open(folder))
        check_unharmed(folder, after, after)
        settle(folder)
    assert failures >= 1


def test_an_index_that_cannot_be_written_is_reported_in_one_sentence(fresh, monkeypatch):
    def fail(*args):
        raise RuntimeError("Error in faiss::FileIOWriter: write error")

    monkeypatch.setattr("faiss.write_index", fail)
    before = content_of(Snapshot.open(fresh))
    with pytest.raises(StoreError, match="index could not be written"):
        Store(fresh).compact()
    check_unharmed(fresh, before, before)
    assert not (fresh / "compacting").exists()


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file() and "lock" not in path.name}


@pytest.mark.parametrize("part", ["terms", "starts", "ngrams", "begins", "postings", "runs"])
@pytest.mark.parametrize("missing", [1, 100, 0.99])
def test_a_sentence_index_that_does_not_fit_on_the_disk_is_not_used(fresh, part, missing):
    """Each file in turn is too large by some bytes, or by almost all of them; so are the runs that are merged."""
    before = files_of(fresh)
    limit = 0

    def limited(function, name: str):
        def called(*args):
            is_meant = name == "runs" or args[0].path.name.endswith(f"{name}.npy")
            with largest_file(limit) if is_meant else contextlib.nullcontext():
                return function(*args)

        return called

    changes: tuple[Callable[[Store], object], ...]
    changes = Store.compact, partial(Store.index, settings=IndexSettings(retrieval="sentences"))
    for number, change in enumerate(changes):
        copy = Store(shutil.copytree(fresh, fresh.with_name(f"{number}.store")))
        change(copy)
        (path,) = copy.folder.glob(f"index-*-{part if part != 'runs' else 'postings'}.npy")
        size = path.stat().st_size if part != "runs" else 8 * len(np.load(path))
        limit = size - int(missing if missing >= 1 else missing * size)
        with pytest.MonkeyPatch.context() as patch:
            if part == "runs":
                patch.setattr(building, "_sort_in_runs", limited(building._sort_in_runs, part))
            else:
                for name in ("append", "__exit__"):
                    patch.setattr(building.ArrayFile, name, limited(getattr(building.ArrayFile, name), part))
            error = refusal(partial(change, Store(fresh)))
            assert error
            assert "the disk is full" in error
            assert not (fresh / "compacting").exists()
            assert before.items() <= files_of(fresh).items()
            assert verify(fresh).is_sound
    Store(fresh).index(IndexSettings(retrieval="both"))
    settle(fresh)  # what was left is deleted
    check_search(Snapshot.open(fresh), 1)


@pytest.mark.parametrize("part", ["groups", "per-group", "centroids", "sizes", "keys", "norms", "ids"])
def test_an_index_of_lists_that_does_not_fit_on_the_disk_is_not_used(fresh, part, monkeypatch):
    Store(fresh).index(IndexSettings("lists:4", retrieval="both"))
    before, (path,) = files_of(fresh), fresh.glob(f"index-*-lists-{part}.npy")
    limit = 0

    def limited(function):
        def called(*args):
            with largest_file(limit) if args[0].path.name.endswith(f"-{part}.npy") else contextlib.nullcontext():
                return function(*args)

        return called

    for missing in (1, int(0.99 * path.stat().st_size)):
        limit = path.stat().st_size - missing
        for change in (Store.compact, Store.index):
            with monkeypatch.context() as patch:
                for name in ("append", "__exit__"):
                    patch.setattr(ArrayFile, name, limited(getattr(ArrayFile, name)))
                error = refusal(partial(change, Store(fresh)))
            assert error
            assert "the disk is full" in error
            assert not (fresh / "compacting").exists()
            assert before.items() <= files_of(fresh).items()
            assert verify(fresh).is_sound
            check_search(Snapshot.open(fresh), 1)
    settle(fresh)  # what was left is deleted
    assert files_of(fresh).keys() == before.keys()


@pytest.mark.parametrize("number", [2, 9, 16, 18])
def test_a_build_of_lists_is_the_same_after_a_full_disk_or_in_other_pieces(toy_model, tmp_path, number):
    memory, settings = write_memory(tmp_path), replace(BUILD, index="lists:4")
    once = build(memory, model=toy_model, out=tmp_path / "once.store", settings=settings, train=False)
    out, failing = tmp_path / "b.store", FailingAt(number)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", failing.wrap(os.fsync))
        with pytest.raises(StoreError, match="the disk is full"):
            build(memory, model=toy_model, out=out, settings=settings, train=False)
    store = build(memory, model=toy_model, out=out, settings=settings, train=False, resume=True)
    assert store.verify().is_sound
    assert difference_between(out, once.folder) is None
    settle(out)


@pytest.mark.parametrize("size", [0, 10, 1000, 4000])
def test_a_projection_that_does_not_fit_on_the_disk_fails_the_build(toy_model, tmp_path, size, monkeypatch):
    memory, out = write_memory(tmp_path), tmp_path / "b.store"
    replace_file = keys.replace_file

    def replace_limited(path: Path, content: bytes) -> None:
        assert len(content) > 4000
        with largest_file(size):
            replace_file(path, content)

    with monkeypatch.context() as patch:
        patch.setattr(keys, "replace_file", replace_limited)
        with pytest.raises(StoreError, match="the disk is full"):
            build(memory, model=toy_model, out=out, settings=BUILD, train=False)
    assert not out.exists()
    assert not list(partial_folder(out).rglob("projection*"))
    store = build(memory, model=toy_model, out=out, settings=BUILD, train=False, resume=True)
    assert store.verify().is_sound
    assert store.manifest.key_dims == 16


@pytest.mark.parametrize("number", [1, 2, 5, 9, 14, 20])
def test_a_build_resumes_after_a_full_disk(made, toy_model, tmp_path, number):
    memory, out = write_memory(tmp_path), tmp_path / "b.store"
    failing = FailingAt(number)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", failing.wrap(os.fsync))
        with pytest.raises(StoreError, match="the disk is full"):
            build(memory, model=toy_model, out=out, settings=BUILD, adaptation=ADAPTATION)
    assert not out.exists()
    store = build(memory, model=toy_model, out=out, settings=BUILD, adaptation=ADAPTATION, resume=True)
    assert store.verify().is_sound
    assert len(list(store.snapshot().all_units())) == 120
    assert not partial_folder(out).exists()


@contextlib.contextmanager
def without_root_privileges():
    """Drop the capabilities by which root may write anywhere."""
    if os.geteuid() != 0:
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # version of the interface, this thread
    rights = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable, twice
    if libc.capget(header, rights):
        pytest.skip("capabilities cannot be read here")
    effective = rights[0]
    rights[0] = effective & ~0b110  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
    if libc.capset(header, rights):
        pytest.skip("capabilities cannot be dropped here")
    try:
        yield
    finally:
        rights[0] = effective
        libc.capset(header, rights)


@pytest.mark.parametrize("has_locks", [True, False])
def test_a_read_only_store_can_be_read_and_refuses_changes(fresh, toy_model, has_locks):
    if not has_locks:
        for path in fresh.glob("*lock"):
            path.unlink()
    before = content_of(Snapshot.open(fresh))
    files = {path: path.read_bytes() for path in fresh.rglob("*") if path.is_file()}
    paths = [fresh, *fresh.rglob("*")]
    modes = {path: path.stat().st_mode for path in paths}
    for path in paths:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        with without_root_privileges():
            translated = Translator(fresh, model=toy_model).translate(["heute öffnet die tabelle die große zelle ."])
            assert translated[0].text
            assert Store(fresh).info()["units"] == sum(before.values())
            for change in CHANGES.values():
                error = refusal(partial(perform, fresh, change, toy_model))
                assert error
                assert "no permission to write there" in error
            with pytest.raises(StoreError, match="no permission"):
                Store(fresh).repair()
            assert verify(fresh).is_sound
    finally:
        for path, mode in modes.items():
            path.chmod(mode)
    assert {path: path.read_bytes() for path in fresh.rglob("*") if path.is_file()} == files
    perform(fresh, CHANGES["add"], toy_model)


def test_a_build_in_a_read_only_folder_is_refused(toy_model, tmp_path):
    memory = write_memory(tmp_path)
    parent = tmp_path / "parent"
    parent.mkdir()
    parent.chmod(0o555)
    with without_root_privileges(), pytest.raises(StoreError, match="no permission to write there"):
        build(memory, model=toy_model, out=parent / "c.store", settings=BUILD, adaptation=ADAPTATION)
    parent.chmod(0o755)
    assert not list(parent.iterdir())
