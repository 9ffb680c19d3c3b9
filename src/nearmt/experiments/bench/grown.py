"""Grows a store of real sentences, to measure retrieval from large memories."""

import json
import random
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from nearmt.corpus import SentencePair
from nearmt.datastore import (
    BOTH,
    SENTENCES,
    BuildProgress,
    CommitData,
    Copier,
    Manifest,
    Snapshot,
    append_commit,
    replace_file,
)
from nearmt.experiments.bench.materials import COSTS_FILE, build_costs, matching_manifest
from nearmt.experiments.bench.peak_memory import track_memory
from nearmt.progress import Progress
from nearmt.retrieval.indexing import IndexSettings, index_snapshot

_COPIED = 4096  # sentences of one commit
_REPLACED = 10  # one of so many words of a copied source becomes another one; in short sources one word
_NOISE = 2  # greatest change of a byte of a copied key
_JITTER = 0.05  # the same for keys of other types, relative to their norm
_WORD = re.compile(r"(\w+)")


def grown_store(folder: Path, source: Snapshot, entries: int, progress: Progress) -> Snapshot:
    """Return an indexed store of at least `entries` entries: the sentences of `source`, and changed copies of them.

    A copy has other words in place of a tenth of its source's, drawn from all sources, and keys with a little noise.
    A later run reuses the store, or continues where an earlier one was interrupted.
    """
    described = {"grown": entries, "source": source.manifest.created_at, "entries": len(source)}
    manifest = matching_manifest(folder, described)
    costs: dict[str, Any] = {}
    if manifest is None:
        shutil.rmtree(folder, ignore_errors=True)
        manifest = _empty_copy(folder, source, described)
    if not manifest.build.is_complete:
        with track_memory(costs, "storing"):
            manifest = _grow(folder, manifest, source, entries, progress)
    if manifest.index is None:
        with track_memory(costs, "indexing"):
            indexes = index_snapshot(Snapshot(folder, manifest), IndexSettings(retrieval=BOTH), progress)
        indexes.added_to(manifest).save(folder)
    replace_file(folder / COSTS_FILE, json.dumps({**build_costs(folder), **costs}).encode())
    return Snapshot.open(folder)


def _empty_copy(folder: Path, source: Snapshot, described: dict[str, Any]) -> Manifest:
    """An empty store for the same model, with keys that are coded in the same way."""
    folder.mkdir(parents=True)
    manifest = Copier(folder, source.folder, source.manifest).manifest
    build = BuildProgress([described])
    return replace(manifest, adaptation=None, retrieval=SENTENCES, is_retrieval_chosen=False, build=build)


def _grow(folder: Path, manifest: Manifest, source: Snapshot, entries: int, progress: Progress) -> Manifest:
    total, sizes = len(source.sentences), source.sentence_sizes
    pairs = [SentencePair(*source.sides(number)) for number in range(total)]
    split = [_WORD.split(pair.source) for pair in pairs]  # words are at odd places
    words = [word for parts in split for word in parts[1::2]]
    while manifest.num_entries < entries:
        copy, first = divmod(manifest.num_sentences, total)
        missing = np.searchsorted(np.cumsum(sizes[first:]), entries - manifest.num_entries) + 1
        numbers = range(first, min(first + _COPIED, first + int(missing), total))
        start, end = source.entry_range(numbers[0])[0], source.entry_range(numbers[-1])[1]
        rng = np.random.default_rng([copy, first])
        data = CommitData(
            [SentencePair(_source(split[n], words, seed=copy * total + n), pairs[n].target) for n in numbers]
            if copy
            else pairs[numbers[0] : numbers[-1] + 1],
            sizes[numbers[0] : numbers[-1] + 1],
            _noisy(source.keys[start:end], rng) if copy else np.asarray(source.keys[start:end]),
            source.values[start:end],
            source.probabilities[start:end],
            source.positions[start:end],
        )
        manifest = append_commit(folder, manifest, data).changed()
        manifest.save(folder)
        progress("storing", manifest.num_entries, entries)
    manifest = manifest.changed(build=replace(manifest.build, is_complete=True))
    manifest.save(folder)
    return manifest


def _source(parts: Sequence[str], words: Sequence[str], seed: int) -> str:
    """A source with other words in some places."""
    parts, count, draw = list(parts), len(parts) // 2, random.Random(seed)
    for place in draw.sample(range(count), max(1, count // _REPLACED)) if count else ():
        parts[2 * place + 1] = draw.choice(words)
    return "".join(parts)


def _noisy(keys: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Stored keys with a little noise."""
    if keys.dtype == np.uint8:
        changed = keys.astype(np.int16) + rng.integers(-_NOISE, _NOISE, keys.shape, np.int16, endpoint=True)
        clipped: np.ndarray = changed.clip(0, 255).astype(np.uint8)
        return clipped
    norms = np.linalg.norm(keys.astype(np.float32), axis=1, keepdims=True) / np.sqrt(keys.shape[1])
    noisy: np.ndarray = (keys + _JITTER * norms * rng.standard_normal(keys.shape, np.float32)).astype(keys.dtype)
    return noisy
