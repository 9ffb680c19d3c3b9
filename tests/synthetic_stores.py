"""Small stores of synthetic entries, and brute-force search in them."""

from pathlib import Path

import numpy as np

from nearmt.corpus import SentencePair
from nearmt.datastore import CommitData, Languages, Manifest, Snapshot, append_commit

WIDTH = 4


def make_store(
    folder: Path,
    keys: np.ndarray,
    per_sentence: int = 1,
    sources: list[str] | None = None,
    key_type: str = "float16",
    dims: int | None = None,
    retrieval: str = "tokens",
) -> Snapshot:
    folder.mkdir(exist_ok=True)
    languages = Languages("de", "en")
    manifest = Manifest({}, languages, keys.shape[1], key_type=key_type, dims=dims, retrieval=retrieval)
    count = len(keys) // per_sentence
    names = sources or [f"source {i}" for i in range(count)]
    data = CommitData(
        [SentencePair(names[i], f"target {i}") for i in range(count)],
        np.full(count, per_sentence),
        keys.astype(np.float16),
        (np.arange(len(keys)) % 50).astype(np.int32),
        np.ones(len(keys), np.float16),
        np.zeros(len(keys), np.uint16),
    )
    manifest = append_commit(folder, manifest, data).changed()
    manifest.save(folder)
    return Snapshot.open(folder)


def clustered(count: int, width: int, seed: int = 1) -> np.ndarray:
    """Keys in clusters, like decoder states."""
    rng = np.random.default_rng(seed)
    centers = rng.standard_normal((max(1, count // 40), width)) * 3
    return centers[rng.integers(0, len(centers), count)] + rng.standard_normal((count, width))


def brute_force(snapshot: Snapshot, queries: np.ndarray, k: int) -> np.ndarray:
    keys = snapshot.keys.astype(np.float64)
    distances = ((queries[:, None, :] - keys[None]) ** 2).sum(2)
    return np.sort(distances, axis=1)[:, :k]


def extended(folder: Path, keys: np.ndarray, removed: list[int], sources: list[str] | None = None) -> Snapshot:
    manifest = Manifest.load(folder)
    first = manifest.num_sentences
    names = sources or [f"late {first + i}" for i in range(len(keys))]
    data = CommitData(
        [SentencePair(name, "x") for name in names],
        np.ones(len(keys), np.int64),
        keys.astype(np.float16),
        np.zeros(len(keys), np.int32),
        np.ones(len(keys), np.float16),
        np.zeros(len(keys), np.uint16),
        removed_units=removed,
    )
    append_commit(folder, manifest, data).changed().save(folder)
    return Snapshot.open(folder)


def segment(texts: list[tuple[str, str]], seed: int) -> CommitData:
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 5, len(texts))
    total = int(counts.sum())
    return CommitData(
        [SentencePair(s, t, unit_id=f"{s}-id", origin="file") for s, t in texts],
        counts,
        rng.standard_normal((total, WIDTH)).astype(np.float16),
        rng.integers(0, 99, total).astype(np.int32),
        rng.random(total).astype(np.float16),
        np.arange(total).astype(np.uint16),
    )


def appended(folder: Path, manifest: Manifest, data: CommitData) -> Manifest:
    changed = append_commit(folder, manifest, data).changed()
    changed.save(folder)
    return changed
