"""Repair: the intact data of a damaged store is rewritten, and the model computes lost states again.

Nothing is deleted. The damaged files are quarantined before the commit, so a kill at any moment leaves either the
damaged store or the repaired one.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from nearmt.building.compaction import (
    LOCK_TIMEOUT,
    commit_rewrite,
    index_settings_for,
    remove_unused_files,
    work_folder,
)
from nearmt.building.compatibility import ModelRequest, as_request, check_model, load_model
from nearmt.building.extract import extract_entries, fits_model
from nearmt.corpus import SentencePair
from nearmt.datastore import (
    NAME,
    CommitData,
    Copier,
    Lost,
    Manifest,
    Quarantine,
    Salvage,
    Snapshot,
    TrainingRecord,
    compaction_lock,
    remove_unfinished_quarantine,
    salvage,
    storage_errors,
    write_lock,
)
from nearmt.errors import ModelError, StoreMismatchError
from nearmt.methods.registry import TRAINED
from nearmt.models import Seq2Seq
from nearmt.progress import Progress, silent
from nearmt.retrieval.indexing import Indexes, forget_collections, index_snapshot

_BATCH_TOKENS = 4096  # as in a build: the same batches give the same states
LoadModel = Callable[[Manifest], Seq2Seq]


@dataclass(frozen=True)
class Repaired:
    """The result of a repair."""

    problems: tuple[str, ...]
    kept_sentences: int  # all sentences of the repaired store
    recomputed_sentences: int = 0  # the model computed their states again
    waiting_sentences: int = 0  # kept, but not searched until their states are computed
    unchecked_sentences: int = 0  # kept, although the checksums of their states are lost
    unchecked_texts: int = 0  # read from a damaged file and kept, although the hashes of the texts are lost
    lost_sentences: int = 0
    lost_units: int = 0
    incomplete_units: int = 0  # kept without their id, origin or date
    lost_removals: int = 0  # this many removed units may be live again
    lost_networks: tuple[str, ...] = ()
    lost: tuple[Lost, ...] = ()  # the first of the lost sentences and units
    needs_training: bool = False
    damaged_files: str | None = None  # the folder where they are kept
    no_model: str | None = None  # why the model could not be loaded, if it was needed

    @property
    def is_whole(self) -> bool:
        """True if nothing is lost or missing."""
        lost = self.lost_sentences + self.lost_units + self.incomplete_units + self.lost_removals
        return not (lost or self.waiting_sentences or self.unchecked_texts or self.lost_networks)

    def as_dict(self) -> dict[str, Any]:
        return {"is_whole": self.is_whole, **asdict(self)}


def repair(
    folder: str | Path,
    *,
    model: Seq2Seq | ModelRequest | str | Path | None = None,
    offline: bool = False,
    progress: Progress = silent,
) -> Repaired:
    """Repair the store in a folder, even if it is too damaged to open.

    The model is loaded only if states have to be computed again. If `model` is not given and the store's own cannot be
    loaded, the sentences without states are kept, but not searched until a later repair.
    """

    def load(manifest: Manifest) -> Seq2Seq:
        if isinstance(model, Seq2Seq):
            return model
        # The engine that computed the other keys.
        return load_model(manifest, replace(as_request(model, offline=offline), engine=manifest.model["engine"]))

    must_load = isinstance(model, Seq2Seq) or as_request(model).model is not None
    return repair_with(Path(folder).absolute(), load, progress, must_load=must_load)


def repair_with(
    folder: Path, load: LoadModel | None = None, progress: Progress = silent, *, must_load: bool = False
) -> Repaired:
    """Keep every sentence whose text can be read, and compute lost states with the model that `load` returns.

    Without a model, or if it cannot be loaded and `must_load` is False, the sentences without states are kept for a
    later repair. An intact store is not changed.
    """
    with compaction_lock(folder), write_lock(folder, wait=LOCK_TIMEOUT):
        salvaged = salvage(folder, lambda number: progress("reading", number, None))
        waiting = int(salvaged.readable.waiting_sentences.sum())
        model, no_model = None, None
        if waiting:
            try:
                model = _loaded(salvaged.manifest, load, folder)
            except (ModelError, StoreMismatchError) as error:
                if must_load:
                    raise
                no_model = str(error)
        work = _Work(folder, salvaged, model, progress)
        manifest = work.run() if salvaged.problems or model is not None else salvaged.manifest
    return Repaired(
        problems=salvaged.problems,
        kept_sentences=int(salvaged.readable.live_sentences.sum()),
        recomputed_sentences=waiting - work.left_waiting if model is not None else 0,
        waiting_sentences=work.left_waiting if model is not None else waiting,
        unchecked_sentences=salvaged.unchecked_sentences,
        unchecked_texts=salvaged.unchecked_texts,
        lost_sentences=salvaged.lost_sentences,
        lost_units=salvaged.lost_units,
        incomplete_units=salvaged.incomplete_units,
        lost_removals=salvaged.lost_removals,
        lost_networks=work.lost_networks,
        lost=salvaged.lost,
        needs_training=manifest.adaptation is None,
        damaged_files=str(work.quarantine) if work.quarantine else None,
        no_model=no_model,
    )


def _loaded(manifest: Manifest, load: LoadModel | None, folder: Path) -> Seq2Seq:
    if load is None:
        raise ModelError("no model was given")
    model = load(manifest)
    check_model(manifest, model, folder)
    return model


class _Work:
    """Rewrites the damaged part of a store and commits it."""

    def __init__(self, folder: Path, salvaged: Salvage, model: Seq2Seq | None, progress: Progress) -> None:
        self.folder, self.salvaged, self.model, self.progress = folder, salvaged, model, progress
        self.lost_networks: tuple[str, ...] = ()
        self.quarantine: Path | None = None
        self.left_waiting = self._decoded = 0

    def run(self) -> Manifest:
        old = self.salvaged.manifest
        current = replace(old, adaptation=self._undamaged_training())
        new: Manifest = current
        indexes: Indexes | None = None
        remove_unfinished_quarantine(self.folder, old)
        with work_folder(self.folder) as work:
            if not self.salvaged.is_data_intact or self.model is not None:
                copier = Copier(work, self.folder, old)
                copier.copy(self.salvaged.readable, decode=self._decode if self.model is not None else None)
                new = copier.manifest
                indexes = self._index(Snapshot(work, new))
            elif set(current.index_files) & set(self.salvaged.damaged_files):
                indexes = self._index(Snapshot(self.folder, current))
            quarantine = Quarantine(self.folder, self._damaged_names())
            with storage_errors(self.folder):
                if quarantine.names:
                    quarantine.prepare()
                    self.quarantine = quarantine.path
            manifest = commit_rewrite(self.folder, work, current, new, indexes)
            with storage_errors(self.folder):
                quarantine.finish()
            remove_unused_files(self.folder, manifest)
            forget_collections(self.folder, old, manifest)
        return manifest

    def _decode(self, pairs: Sequence[SentencePair]) -> CommitData:
        """Compute the entries of sentences. A sentence that is too long for the model gets none."""
        assert self.model is not None
        model, manifest = self.model, self.salvaged.manifest
        sources = model.tokenize_sources([pair.source for pair in pairs])
        targets = model.tokenize_targets([pair.target for pair in pairs])
        fits = [i for i in range(len(pairs)) if fits_model(model, sources[i], targets[i])]
        counts = np.zeros(len(pairs), np.int64)
        data = CommitData.without_entries(manifest.width)
        if fits:
            data = extract_entries(
                model,
                [pairs[i] for i in fits],
                [sources[i] for i in fits],
                [targets[i] for i in fits],
                key_type=manifest.key_type,
                batch_tokens=_BATCH_TOKENS,
            )
            counts[fits] = data.entry_counts
        self.left_waiting += len(pairs) - len(fits)
        self._decoded += len(pairs)
        self.progress("decoding", self._decoded, int(self.salvaged.readable.waiting_sentences.sum()))
        return replace(data, pairs=pairs, entry_counts=counts)

    def _index(self, snapshot: Snapshot) -> Indexes:
        return index_snapshot(
            snapshot, index_settings_for(snapshot, self.salvaged.manifest), self.progress, self.folder
        )

    def _damaged_names(self) -> list[str]:
        """The damaged files and folders that exist, with the manifest that describes them."""
        names = list(self.salvaged.damaged_files)
        if not self.salvaged.is_data_intact:
            names.append(self.salvaged.manifest.data_folder)
        there = [name for name in names if (self.folder / name).exists()]
        return sorted({*there, NAME}) if there else []

    def _undamaged_training(self) -> TrainingRecord | None:
        """The training record without the networks whose files are damaged; None if no network is left."""
        training, networks = self.salvaged.manifest.adaptation, self.salvaged.manifest.networks
        lost = {name for name, file in networks.items() if file in self.salvaged.damaged_files}
        if training is None or not lost:
            return training
        left = {name: file for name, file in networks.items() if name not in lost}
        methods = [name for name in TRAINED if name in left]
        self.lost_networks = tuple(sorted(lost))
        if not methods:
            self.lost_networks = tuple(sorted(networks))
            return None
        best = training.method if training.method in left else min(methods, key=training.held_out.losses.__getitem__)
        return replace(
            training,
            method=best,
            networks=left,
            files={file: training.files[file] for file in left.values()},
            relatives={name: settings for name, settings in training.relatives.items() if name in left},
        )
