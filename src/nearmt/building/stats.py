"""Statistics of a store: its contents and origins, and whether it should be compacted or trained again."""

from dataclasses import asdict
from typing import Any

from nearmt.datastore import SENTENCES, Manifest, Snapshot, data_bytes, origins, quarantined_files
from nearmt.retrieval.index.faiss_index import EXACT_UP_TO

# Compaction or training is recommended when more than this share of a store has changed.
COMPACTION_DUE, TRAINING_DUE = 0.1, 0.2
_SHOWN_ORIGINS = 1000


def describe(snapshot: Snapshot) -> dict[str, Any]:
    """Everything that `nearmt info` shows."""
    manifest, index = snapshot.manifest, snapshot.manifest.index
    alive = snapshot.live_sentences
    live_entries = int(snapshot.entry_mask(alive).sum()) if snapshot.has_removals else len(snapshot)
    found = origins(snapshot)
    return {
        "store": str(snapshot.folder),
        "sentences": int(alive.sum()),
        "entries": live_entries,
        "units": int(snapshot.live_units.sum()),
        "origins": [asdict(origin) for origin in found[:_SHOWN_ORIGINS]],
        "num_origins": len(found),
        "languages": {"source": manifest.languages.source, "target": manifest.languages.target},
        "model": manifest.model,
        "keys": manifest.key_type,
        "dims": manifest.key_dims,
        "retrieval": manifest.retrieval,
        "bytes": {
            "data": data_bytes(manifest),
            "index": _index_bytes(manifest),
        },
        "set_aside": [asdict(kept) for kept in quarantined_files(snapshot.folder, manifest)],
        "commits": manifest.extent.segments,
        "built_from": manifest.build.inputs,
        "dropped": manifest.build.dropped,
        "index": index.as_dict() if index is not None else None,
        "sentence_index": asdict(manifest.sentence_index) if manifest.sentence_index is not None else None,
        "adaptation": manifest.adaptation.as_dict() if manifest.adaptation is not None else None,
        "health": _health(snapshot, live_entries, int(alive.sum())),
        "created_at": manifest.created_at,
        "changed_at": manifest.changed_at,
        "version": manifest.version,
    }


def _index_bytes(manifest: Manifest) -> int:
    indexes = (manifest.index, manifest.sentence_index)
    return sum(index.bytes or 0 for index in indexes if index is not None)


def _health(snapshot: Snapshot, live_entries: int, live_sentences: int) -> dict[str, Any]:
    """Shares of removed and of unindexed entries, sentences that need a repair, and recommended maintenance."""
    manifest, total = snapshot.manifest, len(snapshot)
    index, training = manifest.index, manifest.adaptation
    removed_share = 1 - live_entries / total if total else 0.0
    new_share = _new_share(manifest)
    trained_on = training.num_sentences if training is not None else None
    changed_share = abs(live_sentences - trained_on) / max(trained_on, 1) if trained_on is not None else None
    is_by_tokens = manifest.retrieval != SENTENCES
    is_flat = index is None or index.is_flat
    is_chosen = index is None or index.is_chosen
    has_no_use = is_by_tokens and is_flat and total <= EXACT_UP_TO  # exact search needs no index
    due = {
        "many entries were removed": removed_share > COMPACTION_DUE,
        "many entries are not in the index yet": new_share > COMPACTION_DUE and not has_no_use,
        "the store is too large for exact search": is_by_tokens and is_flat and is_chosen and total > EXACT_UP_TO,
    }
    return {
        "removed_share": removed_share,
        "new_share": new_share,
        "changed_since_training": changed_share,
        "waiting_sentences": int(snapshot.waiting_sentences.sum()),  # they have no states and are not searched
        "compaction_due": [reason for reason, is_due in due.items() if is_due],
        "training_due": changed_share is not None and changed_share > TRAINING_DUE,
    }


def _new_share(manifest: Manifest) -> float:
    """The share of entries, or of sentences, that are not in the index that translations use."""
    if manifest.retrieval == SENTENCES:
        indexed = manifest.sentence_index.num_sentences if manifest.sentence_index is not None else 0
        return 1 - indexed / manifest.num_sentences if manifest.num_sentences else 0.0
    indexed = manifest.index.num_entries if manifest.index is not None else 0
    return 1 - indexed / manifest.num_entries if manifest.num_entries else 0.0
