"""The datastore on disk: sentence pairs with their entries, where they come from, and the trained networks.

A store is a folder with a manifest, flat files that commits only append to, an index and networks. Replacing the
manifest commits a change. One writer at a time holds a lock; readers use snapshots. May import corpus.
"""

from nearmt.datastore.columns import CommitData, WrittenEntries, append_commit, data_bytes
from nearmt.datastore.copying import Copier, Decode
from nearmt.datastore.files import (
    build_lock,
    check_file,
    compaction_lock,
    exchange,
    folder_bytes,
    fsync_file,
    fsync_folder,
    replace_file,
    sha256_of,
    storage_errors,
    write_lock,
)
from nearmt.datastore.filters import Filter, Origin, origins
from nearmt.datastore.hashing import identity_hash, name_hash, pair_hash, text_hash
from nearmt.datastore.keys import DIMS, KEY_TYPES, KeyCode
from nearmt.datastore.lookup import SortedColumn, SourceLookup, TextLookup, units_matching
from nearmt.datastore.manifest import NAME, BuildProgress, Languages, Manifest, now
from nearmt.datastore.parallel import prepare_entry_files, write_entries
from nearmt.datastore.placement import check_output_folder, has_manifest, open_finished, partial_folder
from nearmt.datastore.quarantine import Quarantine, QuarantinedFiles, quarantined_files, remove_unfinished_quarantine
from nearmt.datastore.records import (
    BOTH,
    FLAT,
    LISTS,
    RETRIEVALS,
    SENTENCES,
    TOKENS,
    DevSetRecord,
    HeldOut,
    IndexRecord,
    Recall,
    RetrievalSignature,
    SentenceIndexRecord,
    TrainingRecord,
    TunedUniform,
    TunedVanilla,
)
from nearmt.datastore.salvage import Lost, Salvage, salvage
from nearmt.datastore.snapshot import Snapshot, open_latest
from nearmt.datastore.units import Unit, date_of, seconds_of
from nearmt.datastore.verify import Report, describe_problems, inspect, verify

__all__ = [
    "BOTH",
    "DIMS",
    "FLAT",
    "KEY_TYPES",
    "LISTS",
    "NAME",
    "RETRIEVALS",
    "SENTENCES",
    "TOKENS",
    "BuildProgress",
    "CommitData",
    "Copier",
    "Decode",
    "DevSetRecord",
    "Filter",
    "HeldOut",
    "IndexRecord",
    "KeyCode",
    "Languages",
    "Lost",
    "Manifest",
    "Origin",
    "Quarantine",
    "QuarantinedFiles",
    "Recall",
    "Report",
    "RetrievalSignature",
    "Salvage",
    "SentenceIndexRecord",
    "Snapshot",
    "SortedColumn",
    "SourceLookup",
    "TextLookup",
    "TrainingRecord",
    "TunedUniform",
    "TunedVanilla",
    "Unit",
    "WrittenEntries",
    "append_commit",
    "build_lock",
    "check_file",
    "check_output_folder",
    "compaction_lock",
    "data_bytes",
    "date_of",
    "describe_problems",
    "exchange",
    "folder_bytes",
    "fsync_file",
    "fsync_folder",
    "has_manifest",
    "identity_hash",
    "inspect",
    "name_hash",
    "now",
    "open_finished",
    "open_latest",
    "origins",
    "pair_hash",
    "partial_folder",
    "prepare_entry_files",
    "quarantined_files",
    "remove_unfinished_quarantine",
    "replace_file",
    "salvage",
    "seconds_of",
    "sha256_of",
    "storage_errors",
    "text_hash",
    "units_matching",
    "verify",
    "write_entries",
    "write_lock",
]
