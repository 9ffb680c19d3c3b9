"""Committing trained networks to a store."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

from nearmt.datastore import Manifest, Snapshot, TrainingRecord, replace_file, sha256_of, storage_errors, write_lock
from nearmt.errors import StoreError
from nearmt.methods.metak import MetaK
from nearmt.methods.network import Network
from nearmt.methods.network_file import network_bytes
from nearmt.methods.registry import VARIANTS

_LOCK_SECONDS = 60.0  # to wait for another writer
_PREFIXES = {MetaK.name: "metak", **{name: name for name in VARIANTS}}  # of the networks' files


def commit_training(trained_on: Snapshot, networks: Mapping[str, Network], record: TrainingRecord) -> TrainingRecord:
    """Write the networks to new files and name them in the manifest; returns the record with their names.

    The files of the previous networks stay until the next training, because a reader may be opening them.
    """
    folder = trained_on.folder
    with write_lock(folder, wait=_LOCK_SECONDS):
        manifest = Manifest.load(folder)
        if manifest.created_at != trained_on.manifest.created_at:
            raise StoreError(f"{folder} was rebuilt during the training: train again")
        _delete_old_networks(folder, manifest.network_files)
        version = manifest.version + 1
        names = {method: f"{_PREFIXES[method]}-{version:06d}.safetensors" for method in networks}
        with storage_errors(folder):
            for method, name in names.items():
                replace_file(folder / name, network_bytes(networks[method]))
        files = {name: sha256_of(folder / name) for name in names.values()}
        sentences = int(trained_on.live_sentences.sum())
        record = replace(record, networks=names, files=files, num_sentences=sentences)
        manifest.changed(adaptation=record, retrieval=record.retrieval.retrieval).save(folder)
        return record


def _delete_old_networks(folder: Path, kept: Collection[str]) -> None:
    """Delete the networks of earlier trainings, including interrupted ones."""
    for path in (path for prefix in _PREFIXES.values() for path in folder.glob(f"{prefix}-*.safetensors")):
        if path.name not in kept:
            path.unlink(missing_ok=True)
