"""The store on disk: what was remembered, where it came from, and what was learned from it.

A folder with a manifest, flat files that commits only append to, an index and a Meta-k network. Replacing
the manifest is the only commit; one writer holds a lock, readers hold a snapshot.
"""

from nearmt.datastore.aside import Keeper, SetAside, set_aside_before, sweep_unfinished
from nearmt.datastore.columns import SegmentData, append_segment, data_bytes
from nearmt.datastore.copying import Copier, Decode
from nearmt.datastore.extent import Counts, Extent, Segment
from nearmt.datastore.files import (
    build_lock,
    check_file,
    compaction_lock,
    exchange,
    fsync_file,
    fsync_folder,
    replace_file,
    sha256_of,
    storage_errors,
    write_lock,
)
from nearmt.datastore.filters import Filter, Origin, origins
from nearmt.datastore.hashing import identity_hash, name_hash, pair_hash, text_hash
from nearmt.datastore.keys import KEY_TYPES, KeyCode
from nearmt.datastore.lookup import SortedColumn, TextLookup, units_matching
from nearmt.datastore.manifest import COPY, NAME, BuildProgress, Languages, Manifest, now
from nearmt.datastore.parallel import WrittenEntries, append_written, make_room, write_entries
from nearmt.datastore.placement import is_begun, open_finished, partial_folder, refuse_foreign
from nearmt.datastore.records import (
    FLAT,
    DevSetRecord,
    HeldOut,
    IndexRecord,
    Recall,
    RetrievalSignature,
    TrainingRecord,
    TunedUniform,
    TunedVanilla,
)
from nearmt.datastore.salvage import Lost, Rescue, salvage
from nearmt.datastore.snapshot import Snapshot, opened_anew
from nearmt.datastore.units import Unit, date_of
from nearmt.datastore.verify import Findings, Report, describe_problems, inspect, verify

__all__ = [
    "COPY",
    "FLAT",
    "KEY_TYPES",
    "NAME",
    "BuildProgress",
    "Copier",
    "Counts",
    "Decode",
    "DevSetRecord",
    "Extent",
    "Filter",
    "Findings",
    "HeldOut",
    "IndexRecord",
    "Keeper",
    "KeyCode",
    "Languages",
    "Lost",
    "Manifest",
    "Origin",
    "Recall",
    "Report",
    "Rescue",
    "RetrievalSignature",
    "Segment",
    "SegmentData",
    "SetAside",
    "Snapshot",
    "SortedColumn",
    "TextLookup",
    "TrainingRecord",
    "TunedUniform",
    "TunedVanilla",
    "Unit",
    "WrittenEntries",
    "append_segment",
    "append_written",
    "build_lock",
    "check_file",
    "compaction_lock",
    "data_bytes",
    "date_of",
    "describe_problems",
    "exchange",
    "fsync_file",
    "fsync_folder",
    "identity_hash",
    "inspect",
    "is_begun",
    "make_room",
    "name_hash",
    "now",
    "open_finished",
    "opened_anew",
    "origins",
    "pair_hash",
    "partial_folder",
    "refuse_foreign",
    "replace_file",
    "salvage",
    "set_aside_before",
    "sha256_of",
    "storage_errors",
    "sweep_unfinished",
    "text_hash",
    "units_matching",
    "verify",
    "write_entries",
    "write_lock",
]
