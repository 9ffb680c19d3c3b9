"""Changing and checking the store of the torture test. Runs in forked children."""

import json
import random
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import toy

from nearmt.building.builder import BuildSettings
from nearmt.building.repair import repair
from nearmt.datastore import Manifest, Snapshot, partial_folder, quarantined_files, verify
from nearmt.datastore.columns import columns_of
from nearmt.datastore.keys import PROJECTION
from nearmt.errors import NearMTError
from nearmt.models import Seq2Seq
from nearmt.retrieval.indexing import IndexSettings
from nearmt.retrieval.lists.building import can_be_in_lists
from nearmt.retrieval.modes import open_tokens
from nearmt.retrieval.search import Retriever
from nearmt.retrieval.sentences.index import SentenceIndex
from nearmt.store import Store
from nearmt.training.schedule import TrainingSettings
from nearmt.training.train_store import AdaptationSettings
from nearmt.translator import Translator
from torture_memory import Change, Memory

# Reduced keys and both indexes, so that every kind of file is written.
BUILD = BuildSettings(segment_entries=256, index="IVF4,PQ16x4fs", num_probes=4, max_k=4, dims=16, retrieval="both")
ADAPTATION = AdaptationSettings(
    max_k=4,
    temperature=1.0,
    max_decoded=2,
    methods=("adaptive",),
    training=TrainingSettings(steps=20, first_check=10),
    retrieval="both",
)
_DEV = toy.sentences(8, 12, toy.CLIENT)
_SOURCES = [source for source, _ in toy.sentences(2, 13)]


def write_memory(folder: Path) -> Path:
    """Write the memory to build from. Its units have dates, so that two builds give the same bytes."""
    path = folder / "memory.jsonl"
    lines = [
        {"source": source, "target": target, "unit_id": f"u{number}", "origin": "built", "changed_at": "2024-05-01"}
        for number, (source, target) in enumerate(toy.sentences(120, 7, toy.CLIENT))
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def perform(folder: Path, change: Change, model: Seq2Seq) -> None:
    if change.kind == "repair":
        assert repair(folder, model=model).is_whole
        return
    store = Store(folder, model=model)
    if change.pairs:
        store.add(change.pairs)
    elif change.removal:
        store.remove(**dict(change.removal))
    elif change.kind == "compact":
        store.compact()
    elif change.kind == "index":
        store.index(other_index(store.snapshot()))
    else:
        store.train(_DEV, settings=ADAPTATION)


def other_index(snapshot: Snapshot) -> IndexSettings:
    """Settings of lists for a store with a faiss index, and the other way round, if its keys allow it."""
    is_faiss_next = snapshot.manifest.index.is_lists or not can_be_in_lists(snapshot)
    settings = replace(IndexSettings.of(snapshot.manifest), reranked=None, num_probes=BUILD.num_probes)
    return replace(settings, factory=BUILD.index if is_faiss_next else f"lists:{BUILD.num_probes}")


# Files that a repair with the model restores completely.
_DAMAGED = (
    "keys.int8",
    PROJECTION,
    "values.int32",
    "probabilities.float16",
    "positions.uint16",
    "sentences.bin",
    "segments.jsonl",
    "manifest.json",
    "index",
    "sentence index",
)


def damage(folder: Path, chooser: random.Random) -> str:
    """Flip a committed byte of a random file. Returns its name."""
    manifest = Manifest.load(folder)
    is_reduced = manifest.key_dims < manifest.width  # a repair may store fewer keys than a projection needs
    name = chooser.choice([name for name in _DAMAGED if is_reduced or name != PROJECTION])
    path = folder / manifest.data_folder / name
    if name == "manifest.json":
        path = folder / name
        # After a kill between the two files, the copy holds a commit that the manifest lacks, and a repair would bring
        # that commit back. Both states are right, but the caller expects the manifest's.
        (folder / "manifest.copy.json").write_bytes(path.read_bytes())
    elif name == "index":
        assert manifest.index is not None
        path = folder / chooser.choice(sorted(manifest.index.files))
    elif name == "sentence index":
        assert manifest.sentence_index is not None
        path = folder / chooser.choice(sorted(manifest.sentence_index.files))
    sizes = {column.name: column.size_at(manifest.extent.counts) for column in columns_of(manifest)}
    size = {**sizes, "segments.jsonl": manifest.extent.log_bytes}.get(name, path.stat().st_size)
    content = bytearray(path.read_bytes())
    content[chooser.randrange(size)] ^= 0x21
    path.write_bytes(content)
    return name


def repair_again(folder: Path, model: Seq2Seq) -> None:
    """Repeat a killed repair, then delete the quarantined files as a user would."""
    assert repair(folder, model=model).is_whole
    (kept,) = verify(folder).set_aside
    shutil.rmtree(kept.folder)


def refusal(call: Callable[[], object]) -> str | None:
    """Call a function. Returns the message of its NearMTError, which must be one line, or None."""
    message = None
    try:
        call()
    except NearMTError as error:
        message = str(error)
    assert message is None or "\n" not in message
    return message


def content_of(snapshot: Snapshot) -> Counter[tuple[str, str, str, str]]:
    return Counter((p.source, p.target, p.unit_id or "", p.origin or "") for p in snapshot.all_units())


def check_store(folder: Path, model: Seq2Seq, allowed: Sequence[Memory], seed: int) -> int:
    """Check a store. Returns which of the allowed contents it has."""
    report = verify(folder)
    assert report.is_sound, report.problems
    snapshot = Store(folder).snapshot()
    content = content_of(snapshot)
    matching = [number for number, memory in enumerate(allowed) if memory.content() == content]
    missing, more = allowed[-1].content() - content, content - allowed[-1].content()
    assert matching, (
        f"none of {len(allowed)} contents matches; compared with the last, {missing} is missing and {more} extra"
    )
    check_search(snapshot, seed)
    translator = Translator(folder, model=model)
    results = translator.translate(_SOURCES)
    assert all(result.text for result in results)
    assert results[0].tokens
    return matching[-1]


def check_search(snapshot: Snapshot, seed: int) -> None:
    """Live entries and sentences find themselves, and removed ones are not found."""
    alive = np.flatnonzero(snapshot.entry_mask(snapshot.live_sentences))
    chosen = np.random.default_rng(seed).choice(alive, min(16, len(alive)), replace=False)
    # All lists are probed, or all candidates re-ranked, so the search is exact.
    retriever = open_tokens(snapshot)
    if isinstance(retriever, Retriever):
        retriever = Retriever(snapshot, reranked=len(snapshot))
    near = retriever.search(torch.from_numpy(snapshot.float_keys(chosen)), 4)
    assert bool(near.found.all()), "too few neighbours"
    assert set(near.entry_ids.flatten().tolist()) <= set(alive.tolist()), "a removed entry was found"
    assert near.squared_distances[:, 0].max() < 1e-9, "an entry does not find itself"
    index = SentenceIndex.open(snapshot)
    for sentence in np.unique(snapshot.sentence_ids_of(chosen)).tolist():
        found = index.select(snapshot.text(sentence).source, snapshot.live_sentences)
        assert sentence in found, "a sentence does not find itself"
        assert snapshot.live_sentences[found].all(), "a removed sentence was found"


def settle(folder: Path) -> None:
    """After the next change, even an empty one, there are no leftovers."""
    Store(folder).remove(unit_id="none")
    manifest = Manifest.load(folder)
    expected = {"manifest.json", "manifest.copy.json", "lock", "compaction-lock", manifest.data_folder}
    expected |= {*manifest.index_files, *manifest.network_files}
    expected |= {Path(kept.folder).name for kept in quarantined_files(folder, manifest)}
    left = {path.name for path in folder.iterdir()} - expected
    networks = {name for name in left if name.endswith(".safetensors") and not name.startswith(".")}
    assert not left - networks, f"leftovers: {sorted(left - networks)}"
    assert len(networks) <= 2, f"too many old networks: {sorted(networks)}"


def check_unfinished_build(out: Path, built: Memory, replaced: Memory | None) -> str | None:
    """The problem after a killed build, if any: the store must be complete or absent, the partial build intact."""
    partial = partial_folder(out)
    if (partial / "manifest.json").exists() and not verify(partial).is_sound:
        return f"{partial} is damaged: {verify(partial).problems}"
    if replaced is not None and not out.exists():
        return f"{out} was being replaced and is missing"
    if out.exists():
        report = verify(out)
        if not report.is_sound:
            return f"{out} is damaged: {report.problems}"
        if content_of(Snapshot.open(out)) not in [memory.content() for memory in (built, replaced) if memory]:
            return f"{out} is neither the old store nor the new one"
    return None


def difference_between(one: Path, other: Path) -> str | None:
    """The first difference between two stores, apart from times."""
    first, second = Manifest.load(one), Manifest.load(other)
    for column in columns_of(first):
        size = column.size_at(first.extent.counts)
        parts = [(at / first.data_folder / column.name).read_bytes()[:size] for at in (one, other)]
        if parts[0] != parts[1]:
            return column.name
    if first.key_range != second.key_range:
        return "the coding of keys"
    training, expected = (m.adaptation.as_dict() if m.adaptation else {} for m in (first, second))
    for name in ("networks", "vanilla", "held_out", "memory"):
        if training.get(name) != expected.get(name):
            return f"{name}: {training.get(name)}, expected {expected.get(name)}"
    for name in (*first.index_files, *first.network_files) if first.index else ():
        if (one / name).read_bytes() != (other / name).read_bytes():
            return name
    return None
