"""What the benchmarks time by default: a random model of opus-mt's size, and a store of real states for it."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nearmt.building.builder import Builder, BuildSettings
from nearmt.building.compatibility import model_description
from nearmt.corpus import SentencePair
from nearmt.datastore import BuildProgress, CommitData, Languages, Manifest, Snapshot, append_commit, replace_file
from nearmt.errors import SettingError, StoreError
from nearmt.experiments.bench.peak_memory import track_memory
from nearmt.models import Seq2Seq
from nearmt.models.reference import save_random_marian
from nearmt.progress import Progress

NUM_QUERIES = 8192
COSTS_FILE = "making.json"
_PER_SENTENCE = 20  # entries per sentence; search times do not depend on it
_PIECE = 65_536
_JITTER = 0.05  # noise relative to a state's norm, for states that are used more than once


def timing_model(folder: Path) -> Path:
    """Create a random model with 6+6 layers, width 512 and 58,101 tokens. It never predicts the end of a sentence."""
    if not (folder / "config.json").exists():
        save_random_marian(folder)
    return folder


def timing_states(source: Snapshot, width: int, entries: int, seed: int = 1) -> Iterator[np.ndarray]:
    """Yield real states, mapped to another width by a random orthonormal matrix, which preserves all distances.

    The first piece has `NUM_QUERIES` queries; the others have `entries` states to store. If the source has fewer, its
    states are repeated with a little noise.
    """
    own = source.manifest.key_dims
    if own > width:
        raise SettingError(f"states of width {own} cannot be mapped to width {width}: use a store of a smaller model")
    rng = np.random.default_rng(seed)
    mapping = np.linalg.qr(rng.standard_normal((width, own)))[0].T.astype(np.float32)  # (own, width)
    order = rng.permutation(len(source))
    wanted, given = NUM_QUERIES + entries, 0
    while given < wanted:
        piece = NUM_QUERIES if given == 0 else min(_PIECE, wanted - given)
        rows = order[np.arange(given, given + piece) % len(order)]
        states = source.float_keys(np.sort(rows))
        if given + piece > len(order):
            length = np.linalg.norm(states, axis=1, keepdims=True) / np.sqrt(own)
            states += _JITTER * length * rng.standard_normal(states.shape, np.float32)
        yield states @ mapping
        given += piece


def timing_store(
    folder: Path, model: Seq2Seq, source: Snapshot, entries: int, settings: BuildSettings, progress: Progress
) -> tuple[Snapshot, torch.Tensor]:
    """Return an indexed store of `entries` states with random values, and queries for it. Later runs reuse it."""
    pieces = timing_states(source, model.width, entries)
    queries = torch.from_numpy(next(pieces))
    described = {"timing": entries, "source": source.manifest.created_at, "keys": settings.key_type}
    costs: dict[str, Any] = {}
    existing = matching_manifest(folder, described)
    if existing is None or not existing.build.is_complete:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        manifest = empty_store(model, settings.key_type, described)
        with track_memory(costs, "storing"):
            manifest = fill(folder, manifest, pieces, model.vocabulary_size, lambda n: progress("storing", n, entries))
        manifest.save(folder)
    before = Manifest.load(folder).index
    with track_memory(costs, "indexing"):
        indexed = Builder(folder, model, settings, progress).build_index()
    if indexed.index == before:
        del costs["indexing"]  # the index was there already
    replace_file(folder / COSTS_FILE, json.dumps({**build_costs(folder), **costs}).encode())
    return Snapshot.open(folder), queries


def matching_manifest(folder: Path, described: dict[str, Any]) -> Manifest | None:
    """Return the manifest of a store that an earlier run made with this description, if there is one."""
    try:
        manifest = Manifest.load(folder)
    except StoreError:
        return None
    return manifest if manifest.build.inputs == [described] else None


def build_costs(folder: Path) -> dict[str, Any]:
    """Return the seconds and the peak memory of each step that built a timing store."""
    path = folder / COSTS_FILE
    costs: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return costs


def empty_store(model: Seq2Seq, key_type: str, described: dict[str, Any]) -> Manifest:
    """Return the manifest of an empty store for this model; `described` identifies its contents."""
    return Manifest(
        model=model_description(model),
        languages=Languages(model.source_lang, model.target_lang),
        width=model.width,
        key_type=key_type,
        build=BuildProgress([described]),
    )


def fill(
    folder: Path, manifest: Manifest, pieces: Iterator[np.ndarray], vocabulary: int, on_progress: Callable[[int], None]
) -> Manifest:
    """Append states with random values, a few per sentence."""
    rng = np.random.default_rng(2)
    for states in pieces:
        count = len(states)
        lengths = np.full(-(-count // _PER_SENTENCE), _PER_SENTENCE)
        lengths[-1] = count - _PER_SENTENCE * (len(lengths) - 1)
        first = manifest.num_sentences
        data = CommitData(
            [SentencePair(f"source {first + i}", f"target {first + i}") for i in range(len(lengths))],
            lengths,
            states.astype(np.float32 if manifest.key_type == "float32" else np.float16),
            _token_ids(rng, count, vocabulary),
            np.full(count, 0.5, np.float16),
            np.zeros(count, np.uint16),
        )
        manifest = append_commit(folder, manifest, data).changed()
        on_progress(manifest.num_entries)
    build = manifest.build
    return manifest.changed(build=BuildProgress(build.inputs, is_complete=True))


def _token_ids(rng: np.random.Generator, count: int, vocabulary: int) -> np.ndarray:
    """Draw token ids with the Zipf distribution of real text."""
    ids: np.ndarray = np.minimum(rng.zipf(1.2, count), vocabulary - 2).astype(np.int32)
    return ids


def timing_sources(batch: int, length: int, vocabulary: int, eos: int) -> list[list[int]]:
    """Return random sources of equal length."""
    generator = torch.Generator().manual_seed(batch)
    ids = torch.randint(3, vocabulary - 1, (batch, length - 1), generator=generator)
    return [[*row, eos] for row in ids.tolist()]


def describe_store(snapshot: Snapshot) -> dict[str, Any]:
    """Return the number of entries, how keys are stored, and the bytes per entry on disk and in the indexes."""
    data = snapshot.folder / snapshot.manifest.data_folder
    on_disk = sum(path.stat().st_size for path in data.iterdir())
    manifest = snapshot.manifest
    index = sum(record.bytes or 0 for record in (manifest.index, manifest.sentence_index) if record is not None)
    return {
        "entries": len(snapshot),
        "keys": f"{manifest.key_type} keys of {manifest.key_dims} dimensions",
        "retrieval": manifest.retrieval,
        "disk_bytes_per_entry": (on_disk + index) / len(snapshot),
        "index_bytes_per_entry": index / len(snapshot),
    }
