"""A number for the origin of each sentence, for Milvus to filter by."""

import numpy as np

from nearmt.datastore import Snapshot

SEVERAL = 0  # a sentence that comes from several places: it may be any of them, so it is looked at in any case


def tags_of(origin_hashes: np.ndarray) -> np.ndarray:
    """Origins' hashes as numbers above 0 that a signed integer holds."""
    return (origin_hashes >> np.uint64(2)).astype(np.int64) + 1


def origin_tags(snapshot: Snapshot, num_units: int) -> np.ndarray:
    """(sentences,) the origin of each, as the first units tell it; removed units count too, and do no harm."""
    units = snapshot.units[:num_units]
    tags = np.zeros(len(snapshot.sentences), np.int64)
    own, sentences, is_first = tags_of(units["origin_hash"]), units["sentence"], units["is_first"] != 0
    tags[sentences[is_first]] = own[is_first]
    further, theirs = sentences[~is_first], own[~is_first]
    tags[further[tags[further] != theirs]] = SEVERAL
    return tags
