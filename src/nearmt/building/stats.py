"""How a store is: what it holds, where it comes from, and what is due."""

from dataclasses import asdict
from typing import Any

from nearmt.datastore import Snapshot, data_bytes, origins, set_aside_before
from nearmt.retrieval.index.faiss_index import EXACT_UP_TO

# A store that has changed by more than these shares should be compacted, or trained again.
COMPACTION_DUE, TRAINING_DUE = 0.1, 0.2
_SHOWN_ORIGINS = 1000


def describe(snapshot: Snapshot) -> dict[str, Any]:
    """All that `nearmt info` says."""
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
        "set_aside": [asdict(kept) for kept in set_aside_before(snapshot.folder, manifest)],
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
    """Shares of what was removed and of what is not in the index yet, what waits for a repair, and what is due."""
    manifest, total = snapshot.manifest, len(snapshot)
    index, training = manifest.index, manifest.adaptation
    indexed = index.num_entries if index is not None else 0
    removed_share = 1 - live_entries / total if total else 0.0
    new_share = (total - indexed) / total if total else 0.0
    then = training.num_sentences if training is not None else None
    changed_share = abs(live_sentences - then) / max(then, 1) if then is not None else None
    is_flat = index is None or index.is_flat
    is_chosen = index is None or index.is_chosen
    due = {
        "much was removed": removed_share > COMPACTION_DUE,
        "much is not in the index yet": new_share > COMPACTION_DUE and not (is_flat and total <= EXACT_UP_TO),
        "the memory has outgrown exact search": is_flat and is_chosen and total > EXACT_UP_TO,
    }
    return {
        "removed_share": removed_share,
        "new_share": new_share,
        "changed_since_training": changed_share,
        "waiting_sentences": int(snapshot.waiting_sentences.sum()),  # without states: not searched
        "compaction_due": [reason for reason, holds in due.items() if holds],
        "training_due": changed_share is not None and changed_share > TRAINING_DUE,
    }
