"""Damaging a store in every way that the tests and the table of the docs look at."""

from pathlib import Path

from nearmt.corpus import SentencePair
from nearmt.memory import Store, build
from nearmt.seq2seq import Seq2Seq
from nearmt.store import Manifest
from torture_store import ADAPTATION, BUILD, write_memory

STATES = ("keys.float16", "values.int32", "probabilities.float16", "positions.uint16")
COLUMNS = (*STATES, "sentences.bin", "texts.jsonl", "units.bin", "units.jsonl", "removals.int64", "segments.jsonl")
BESIDE = ("manifest.json", "manifest.copy.json", "index", "network")
HARMS = ("flipped", "cut", "missing")


def pair(source: str, target: str, unit: str, origin: str = "client") -> SentencePair:
    return SentencePair(source, target, unit, origin)


def make_store(folder: Path, model: Seq2Seq) -> Path:
    """Built in several commits, then added to, corrected, removed from, and added to again."""
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
    """A file of a store by its name in the table."""
    if name in ("index", "network"):
        (found,) = folder.glob("index-*" if name == "index" else "metak-*")
        return found
    if name in BESIDE:
        return folder / name
    return folder / Manifest.load(folder).data_folder / name


def flip(path: Path, byte: int) -> None:
    content = bytearray(path.read_bytes())
    content[byte] ^= 0x21
    path.write_bytes(content)


def harm(folder: Path, name: str, how: str, share: float = 0.5) -> None:
    """Flip a byte of a file, cut it off or take it away."""
    path = path_of(folder, name)
    at = int(path.stat().st_size * share)
    if how == "flipped":
        flip(path, at)
    elif how == "cut":
        path.write_bytes(path.read_bytes()[:at])
    else:
        path.unlink()


def reopened(folder: Path) -> Store:
    return Store(folder)
