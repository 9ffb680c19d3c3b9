"""Statistics of a store: its contents and origins, and whether it should be compacted or trained again."""

from dataclasses import asdict
from typing import Any

from nearmt.datastore import Snapshot, data_bytes, origins, quarantined_files
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
        "bytes": {
            "data": data_bytes(manifest),
            "index": (manifest.index.bytes if manifest.index is not None else None) or 0,
        },
        "set_aside": [asdict(kept) for kept in quarantined_files(snapshot.folder, manifest)],
        "commits": manifest.extent.segments,
        "built_from": manifest.build.inputs,
        "dropped": manifest.build.dropped,
        "index": index.as_dict() if index is not None else None,
        "adaptation": manifest.adaptation.as_dict() if manifest.adaptation is not None else None,
        "health": _health(snapshot, live_entries, int(alive.sum())),
        "created_at": manifest.created_at,
        "changed_at": manifest.changed_at,
        "version": manifest.version,
    }


def _health(snapshot: Snapshot, live_entries: int, live_sentences: int) -> dict[str, Any]:
    """Shares of removed and of unindexed entries, sentences that need a repair, and recommended maintenance."""
    manifest, total = snapshot.manifest, len(snapshot)
    index, training = manifest.index, manifest.adaptation
    indexed = index.num_entries if index is not None else 0
    removed_share = 1 - live_entries / total if total else 0.0
    new_share = (total - indexed) / total if total else 0.0
    trained_on = training.num_sentences if training is not None else None
    changed_share = abs(live_sentences - trained_on) / max(trained_on, 1) if trained_on is not None else None
    is_flat = index is None or index.is_flat
    is_chosen = index is None or index.is_chosen
    due = {
        "many entries were removed": removed_share > COMPACTION_DUE,
        "many entries are not in the index yet": new_share > COMPACTION_DUE and not (is_flat and total <= EXACT_UP_TO),
        "the store is too large for exact search": is_flat and is_chosen and total > EXACT_UP_TO,
    }
    return {
        "removed_share": removed_share,
        "new_share": new_share,
        "changed_since_training": changed_share,
        "waiting_sentences": int(snapshot.waiting_sentences.sum()),  # they have no states and are not searched
        "compaction_due": [reason for reason, is_due in due.items() if is_due],
        "training_due": changed_share is not None and changed_share > TRAINING_DUE,
    }
