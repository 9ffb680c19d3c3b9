"""The origin of each sentence as a number, for filters in Milvus."""

import numpy as np

from nearmt.datastore import Snapshot

SEVERAL = 0  # a sentence with several origins, which every filter lets pass


def tags_of(origin_hashes: np.ndarray) -> np.ndarray:
    """Hashes of origins as positive signed integers."""
    return (origin_hashes >> np.uint64(2)).astype(np.int64) + 1


def origin_tags(snapshot: Snapshot, num_units: int) -> np.ndarray:
    """(sentences,) the tag of each sentence, by the first units. Removed units are included, which does no harm."""
    units = snapshot.units[:num_units]
    tags = np.zeros(len(snapshot.sentences), np.int64)
    own, sentences, is_first = tags_of(units["origin_hash"]), units["sentence"], units["is_first"] != 0
    tags[sentences[is_first]] = own[is_first]
    further, theirs = sentences[~is_first], own[~is_first]
    tags[further[tags[further] != theirs]] = SEVERAL
    return tags
