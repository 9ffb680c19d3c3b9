"""The store on disk: what was remembered, where it came from, and what was learned from it.

A folder with a manifest, flat files that commits only append to, an index and a Meta-k network. Replacing
the manifest is the only commit; one writer holds a lock, readers hold a snapshot.
"""

from nearmt.store.columns import KEY_TYPES, SegmentData, append_segment, pair_hash, text_hash
from nearmt.store.files import build_lock, fsync_folder, replace_file, sha256_of, storage_errors, write_lock
from nearmt.store.manifest import BuildProgress, Languages, Manifest, Segment, now
from nearmt.store.snapshot import Snapshot, TextLookup
from nearmt.store.verify import Report, verify

__all__ = [
    "KEY_TYPES",
    "BuildProgress",
    "Languages",
    "Manifest",
    "Report",
    "Segment",
    "SegmentData",
    "Snapshot",
    "TextLookup",
    "append_segment",
    "build_lock",
    "fsync_folder",
    "now",
    "pair_hash",
    "replace_file",
    "sha256_of",
    "storage_errors",
    "text_hash",
    "verify",
    "write_lock",
]
