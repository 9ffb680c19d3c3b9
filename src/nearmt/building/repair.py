"""Repair: what can be read of a damaged store is written anew, and the model computes the states that were lost.

Nothing is deleted. The damaged files are set aside before the one commit, so that a kill at any moment leaves the
store as it was or as it is to be.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from nearmt.building.compaction import PATIENCE, put_in_place, settings_for, sweep, work_folder
from nearmt.building.compatibility import ModelRequest, as_request, check_model, load_model
from nearmt.building.extract import decode_segment
from nearmt.corpus import SentencePair
from nearmt.datastore import (
    NAME,
    Copier,
    IndexRecord,
    Keeper,
    Lost,
    Manifest,
    Rescue,
    SegmentData,
    Snapshot,
    TrainingRecord,
    compaction_lock,
    salvage,
    storage_errors,
    sweep_unfinished,
    write_lock,
)
from nearmt.errors import ModelError, StoreMismatchError
from nearmt.methods.registry import TRAINED
from nearmt.models import Seq2Seq
from nearmt.progress import Progress, silent
from nearmt.retrieval.indexing import forget_collections, index_snapshot

_BATCH_TOKENS = 4096  # as in a build: the same batches give the same numbers
LoadModel = Callable[[Manifest], Seq2Seq]


@dataclass(frozen=True)
class Repaired:
    """What a repair found and did."""

    problems: tuple[str, ...]
    kept_sentences: int  # all that the store holds now
    recomputed_sentences: int = 0  # whose states the model computed again
    waiting_sentences: int = 0  # kept, but left out of search until their states are computed
    unchecked_sentences: int = 0  # kept as they are: the checksums of their states are lost
    unchecked_texts: int = 0  # kept as they stand in a damaged file: the hashes of the texts are lost
    lost_sentences: int = 0
    lost_units: int = 0
    incomplete_units: int = 0  # kept without their id, origin or date
    lost_removals: int = 0  # so many removed units may be back
    lost_networks: tuple[str, ...] = ()
    lost: tuple[Lost, ...] = ()  # the first of the lost sentences and units
    needs_training: bool = False
    damaged_files: str | None = None  # the folder where they are kept
    no_model: str | None = None  # why it could not be loaded, where it was needed

    @property
    def is_whole(self) -> bool:
        """Whether nothing was lost and nothing is missing."""
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
    """Repair the store in a folder, be it too damaged to be opened.

    The model is loaded only if states have to be computed again. If none is given and the store's own cannot be loaded,
    the sentences that need one stay in the store and are left out of search until a later repair.
    """

    def load(manifest: Manifest) -> Seq2Seq:
        if isinstance(model, Seq2Seq):
            return model
        engine = str(manifest.model.get("engine", "torch"))  # the one that made the other keys
        return load_model(manifest, replace(as_request(model, offline=offline), engine=engine))

    must_load = isinstance(model, Seq2Seq) or as_request(model).model is not None
    return repair_with(Path(folder).absolute(), load, progress, must_load=must_load)


def repair_with(
    folder: Path, load: LoadModel | None = None, progress: Progress = silent, *, must_load: bool = False
) -> Repaired:
    """Keep every sentence whose text can be read. States that cannot be are computed by the model that `load` gives.

    Without a model their sentences stay in the store and wait for a later repair. If it cannot be loaded it is the
    same, unless it must be. A store that is sound and has all its states stays as it is.
    """
    with compaction_lock(folder), write_lock(folder, wait=PATIENCE):
        rescue = salvage(folder, lambda number: progress("reading", number, None))
        waiting = int(rescue.readable.waiting_sentences.sum())
        model, no_model = None, None
        if waiting:
            try:
                model = _loaded(rescue.manifest, load, folder)
            except (ModelError, StoreMismatchError) as error:
                if must_load:
                    raise
                no_model = str(error)
        work = _Work(folder, rescue, model, progress)
        manifest = work.run() if rescue.problems or model is not None else rescue.manifest
    return Repaired(
        problems=rescue.problems,
        kept_sentences=int(rescue.readable.live_sentences.sum()),
        recomputed_sentences=waiting - work.left_waiting if model is not None else 0,
        waiting_sentences=work.left_waiting if model is not None else waiting,
        unchecked_sentences=rescue.unchecked_sentences,
        unchecked_texts=rescue.unchecked_texts,
        lost_sentences=rescue.lost_sentences,
        lost_units=rescue.lost_units,
        incomplete_units=rescue.incomplete_units,
        lost_removals=rescue.lost_removals,
        lost_networks=work.lost_networks,
        lost=rescue.lost,
        needs_training=manifest.adaptation is None,
        damaged_files=str(work.set_aside) if work.set_aside else None,
        no_model=no_model,
    )


def _loaded(manifest: Manifest, load: LoadModel | None, folder: Path) -> Seq2Seq:
    """The store's model."""
    if load is None:
        raise ModelError("no model was given")
    model = load(manifest)
    check_model(manifest, model, folder)
    return model


class _Work:
    """Writes a store anew, as far as it has to be, and commits it."""

    def __init__(self, folder: Path, rescue: Rescue, model: Seq2Seq | None, progress: Progress) -> None:
        self.folder, self.rescue, self.model, self.progress = folder, rescue, model, progress
        self.lost_networks: tuple[str, ...] = ()
        self.set_aside: Path | None = None
        self.left_waiting = self._decoded = 0

    def run(self) -> Manifest:
        old = self.rescue.manifest
        current = replace(old, adaptation=self._undamaged_training())
        new, index = current, current.index
        sweep_unfinished(self.folder, old)
        with work_folder(self.folder) as work:
            if not self.rescue.has_sound_data or self.model is not None:
                copier = Copier(work, old)
                copier.copy(self.rescue.readable, decode=self._decode if self.model is not None else None)
                new = copier.manifest
                index = self._index(Snapshot(work, new))
            elif set(current.index_files) & set(self.rescue.damaged_files):
                index = self._index(Snapshot(self.folder, current))
            keeper = Keeper(self.folder, self._to_keep())
            with storage_errors(self.folder):
                if keeper.names:
                    keeper.prepare()
                    self.set_aside = keeper.place
            manifest = put_in_place(self.folder, work, current, new, index)
            with storage_errors(self.folder):
                keeper.finish()
            sweep(self.folder, manifest)
            forget_collections(self.folder, old, manifest)
        return manifest

    def _decode(self, pairs: Sequence[SentencePair]) -> SegmentData:
        """States of sentences. One that the model has no room for stays without."""
        assert self.model is not None
        model, manifest = self.model, self.rescue.manifest
        sources = model.tokenize_sources([pair.source for pair in pairs])
        targets = model.tokenize_targets([pair.target for pair in pairs])
        room = model.max_target_tokens - len(model.forced_prefix)
        fits = [i for i in range(len(pairs)) if len(sources[i]) <= model.max_source_tokens and len(targets[i]) <= room]
        counts = np.zeros(len(pairs), np.int64)
        data = SegmentData.without_entries(manifest.width)
        if fits:
            data = decode_segment(
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
        self.progress("decoding", self._decoded, int(self.rescue.readable.waiting_sentences.sum()))
        return replace(data, pairs=pairs, entry_counts=counts)

    def _index(self, snapshot: Snapshot) -> IndexRecord:
        return index_snapshot(snapshot, settings_for(snapshot, self.rescue.manifest), self.progress, self.folder)

    def _to_keep(self) -> list[str]:
        """What is damaged and there, with the manifest that says how it belonged together."""
        names = list(self.rescue.damaged_files)
        if not self.rescue.has_sound_data:
            names.append(self.rescue.manifest.data_folder)
        there = [name for name in names if (self.folder / name).exists()]
        return sorted({*there, NAME}) if there else []

    def _undamaged_training(self) -> TrainingRecord | None:
        """The training record without the networks whose files are damaged; None if no network is left."""
        learned, networks = self.rescue.manifest.adaptation, self.rescue.manifest.networks
        lost = {name for name, file in networks.items() if file in self.rescue.damaged_files}
        if learned is None or not lost:
            return learned
        left = {name: file for name, file in networks.items() if name not in lost}
        methods = [name for name in TRAINED if name in left]
        self.lost_networks = tuple(sorted(lost))
        if not methods:
            self.lost_networks = tuple(sorted(networks))
            return None
        best = learned.method if learned.method in left else min(methods, key=learned.held_out.losses.__getitem__)
        return replace(
            learned,
            method=best,
            networks=left,
            files={file: learned.files[file] for file in left.values()},
            relatives={name: settings for name, settings in learned.relatives.items() if name in left},
        )
