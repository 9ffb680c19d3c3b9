"""Building the index of lists in the files of a store, and loading it."""

from contextlib import ExitStack
from pathlib import Path

import numpy as np

from nearmt.compiled.dots import LANES
from nearmt.datastore import LISTS, IndexRecord, Snapshot, sha256_of
from nearmt.errors import SettingError, StoreDamagedError
from nearmt.progress import Progress, silent
from nearmt.retrieval import arranging
from nearmt.retrieval.arrays import ArrayFile, map_arrays
from nearmt.retrieval.lists.clusters import Arranged, Clusters, begins_of, count_lists, sample_size, slots_of
from nearmt.retrieval.lists.index import ListIndex, Part

LIST_PROBES = 4  # lists that are read for a row; more find more, but do not translate better
_FEWEST_ENTRIES = 8192  # with fewer, comparing all of them takes no longer
_MOST_ENTRIES = 1 << 32
_READ = 1 << 16  # keys at a time
_WRITTEN = 1 << 12  # blocks at a time
_ARRAYS = {"groups": "u1", "per-group": "<i8", "centroids": "u1", "sizes": "<i8"}
_COLUMNS = {"keys": "u1", "norms": "<f4", "ids": "<u4"}  # as in Arranged


def is_lists(factory: str | None) -> bool:
    """True if an index is one of lists: lists or lists:NUMBER."""
    return factory is not None and factory.partition(":")[0] == LISTS


def checked_lists(factory: str) -> str:
    """The name of an index of lists, without zeros before its number; refuses a malformed one."""
    _, colon, given = factory.partition(":")
    if colon and not (given.isdecimal() and int(given) > 0):
        raise SettingError(f"`index` must be lists or lists:NUMBER, with the number of lists, not {factory}")
    return f"{LISTS}:{int(given)}" if colon else LISTS


def check_keys(key_type: str, *, is_reduced: bool) -> None:
    """Refuse keys whose differences in bytes are not distances."""
    if key_type != "int8" or not is_reduced:
        found = "whole states" if key_type == "int8" else key_type
        raise SettingError(f"`index` lists needs keys of type int8 with reduced dimensions, not {found}")


def lists_factory(factory: str | None, num_entries: int) -> str:
    """The name of an index as its record has it; without one, the number of lists is chosen by size."""
    return factory or f"{LISTS}:{count_lists(num_entries)}"


def can_be_in_lists(snapshot: Snapshot) -> bool:
    """True if the keys are bytes whose differences are distances."""
    return snapshot.key_code.level is not None


def suits_lists(snapshot: Snapshot) -> bool:
    """True if lists are the default index of a store, which then has more than a few entries."""
    return can_be_in_lists(snapshot) and len(snapshot) > _FEWEST_ENTRIES


def build_lists(
    snapshot: Snapshot, factory: str | None, num_probes: int, path: Path, progress: Progress = silent, seed: int = 1
) -> IndexRecord:
    """Index all entries of a snapshot in files whose names begin with that of `path`."""
    total = len(snapshot)
    check_keys(snapshot.manifest.key_type, is_reduced=can_be_in_lists(snapshot))
    if total >= _MOST_ENTRIES:
        raise SettingError(f"`index` lists holds fewer than {_MOST_ENTRIES:,} entries, and the store has {total:,}")
    given = (factory or LISTS).partition(":")[2]
    num_lists = min(int(given), total) if given else count_lists(total)
    rows = np.random.default_rng(seed).choice(total, sample_size(num_lists, total), replace=False)
    clusters = Clusters.trained(np.asarray(snapshot.keys[np.sort(rows)]), num_lists, seed)
    lists = np.empty(total, np.int32)
    for start in range(0, total, _READ):
        lists[start : start + _READ] = clusters.assign(snapshot.keys[start : start + _READ])
        progress("indexing", min(start + _READ, total), total)
    sizes = np.bincount(lists, minlength=len(clusters))
    begins, (order, slots) = begins_of(sizes), slots_of(lists, sizes)
    paths = {array: path.with_name(f"{path.name}-{array}.npy") for array in (*_ARRAYS, *_COLUMNS)}
    small = {"groups": clusters.groups, "per-group": clusters.lists_per_group, "centroids": clusters.lists}
    for array, content in {**small, "sizes": sizes}.items():
        with ArrayFile(paths[array], _ARRAYS[array]) as file:
            file.append(content.reshape(-1))
    with ExitStack() as stack:
        columns = [stack.enter_context(ArrayFile(paths[name], dtype)) for name, dtype in _COLUMNS.items()]
        for first in range(0, int(begins[-1]), _WRITTEN):
            blocks = Arranged.empty(min(_WRITTEN, int(begins[-1]) - first), clusters.dims)
            low, high = np.searchsorted(slots, [LANES * first, LANES * (first + _WRITTEN)])
            own = order[low:high]
            arranging.arrange(snapshot.keys, own, slots[low:high] - LANES * first, own, *blocks)
            for column, content in zip(columns, blocks, strict=True):
                column.append(content.reshape(-1))
    checksums = {path.name: sha256_of(path) for path in paths.values()}
    size = sum(path.stat().st_size for path in paths.values())
    return IndexRecord(LISTS, lists_factory(factory, total), num_probes, total, checksums, reranked=0, bytes=size)


def load_lists(snapshot: Snapshot, record: IndexRecord, folder: Path) -> ListIndex:
    """Map the files of an index."""
    dims = snapshot.key_code.dims
    try:
        groups, per_group, centroids, sizes, keys, norms, ids = map_arrays(folder, record.files)
        clusters = Clusters(groups.reshape(-1, dims), np.asarray(per_group), centroids.reshape(-1, dims))
        begins = begins_of(sizes)
        slots = LANES * int(begins[-1])
        blocks = keys.reshape(slots // LANES, -(-dims // 2), 2 * LANES)
        arranged = Arranged(blocks, norms.reshape(slots), ids.reshape(slots))
    except ValueError as error:
        raise StoreDamagedError(f"the index of {folder} does not match the store: run nearmt verify") from error
    return ListIndex.starting_with(clusters, Part(begins, arranged), record.num_entries, record.num_probes)
