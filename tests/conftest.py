"""Shared fixtures: a tiny model that is trained on the fly, and a store of a client's memory.

They are made once for all workers of a parallel run: the first worker takes a lock and makes them.
"""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
import toy
from filelock import FileLock

from nearmt.models import Seq2Seq
from nearmt.store import Store, build
from properties import use_profiles
from skipped import pytest_collection_modifyitems as note_parts
from skipped import pytest_configure, pytest_sessionfinish, pytest_terminal_summary

__all__ = ["pytest_configure", "pytest_sessionfinish", "pytest_terminal_summary"]

# Files that mostly wait come first, so that none of them runs alone at the end of a parallel run.
FIRST = ("test_milvus.py", "test_ray.py", "test_page.py")

use_profiles()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    note_parts(items)
    items.sort(key=lambda item: FIRST.index(item.path.name) if item.path.name in FIRST else len(FIRST))


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)  # tests run in parallel


@dataclass(frozen=True)
class Client:
    model: Path
    memory: Path
    dev: Path
    test: Path
    store: Path

    @property
    def test_pairs(self) -> list[tuple[str, str]]:
        lines = self.test.read_text(encoding="utf-8").splitlines()
        return [(line.split("\t")[0], line.split("\t")[1]) for line in lines]


def _made_once(folder: Path, make: Callable[[Path], None]) -> Path:
    with FileLock(folder.with_suffix(".lock")):
        if not folder.exists():
            beside = folder.with_name(folder.name + ".making")
            beside.mkdir(parents=True)
            make(beside)
            beside.rename(folder)
    return folder


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    base = tmp_path_factory.getbasetemp()
    return base if worker_id == "master" else base.parent


@pytest.fixture(scope="session")
def toy_model(shared_folder: Path) -> Seq2Seq:
    folder = _made_once(shared_folder / "toy-model", lambda at: toy.train_model(at))
    return Seq2Seq.load(folder)


@pytest.fixture(scope="session")
def client(shared_folder: Path, toy_model: Seq2Seq) -> Client:
    def make(at: Path) -> None:
        memory, dev, _ = toy.client_files(at)
        from quick import QUICK

        build(memory, model=toy_model, out=at / "client.store", dev=dev, adaptation=QUICK)

    at = _made_once(shared_folder / "client", make)
    return Client(shared_folder / "toy-model", at / "memory.tsv", at / "dev.tsv", at / "test.tsv", at / "client.store")


@pytest.fixture(scope="session")
def token_store(shared_folder: Path, toy_model: Seq2Seq, client: Client) -> Path:
    """The client's memory as in the paper: states stored whole, searched token by token."""

    def make(at: Path) -> None:
        from quick import BY_TOKENS, QUICK

        build(client.memory, model=toy_model, out=at / "s", dev=client.dev, settings=BY_TOKENS, adaptation=QUICK)

    return _made_once(shared_folder / "tokens", make) / "s"


@pytest.fixture
def token_store_copy(token_store: Path, tmp_path: Path) -> Path:
    """A copy of the store that is searched token by token, to change or damage."""
    return Path(shutil.copytree(token_store, tmp_path / "tokens.store"))


@pytest.fixture
def store_copy(client: Client, tmp_path: Path) -> Path:
    """A copy of the client's store that a test may change or damage."""
    shutil.copytree(client.store, tmp_path / "copy.store")
    assert Store(tmp_path / "copy.store").verify().is_sound
    return tmp_path / "copy.store"


@pytest.fixture(scope="session")
def made(shared_folder: Path, toy_model: Seq2Seq) -> Path:
    """A store of many commits, with corrections and removals."""
    from damage import make_store

    def make(at: Path) -> None:
        make_store(at, toy_model)

    return _made_once(shared_folder / "made", make) / "a.store"


@pytest.fixture
def harmed(made: Path, tmp_path: Path) -> Path:
    """A copy of `made` to damage."""
    return Path(shutil.copytree(made, tmp_path / "harmed.store"))
