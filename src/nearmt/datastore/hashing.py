"""64 bits that stand for a text: how duplicates, corrections and removals find what they mean."""

import hashlib

from nearmt.corpus import SentencePair


def text_hash(*texts: str) -> int:
    """64 bits that stand for a text, or for several in order."""
    digest = hashlib.blake2b(digest_size=8)
    for text in texts:
        encoded = text.encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(8, "little"))
        digest.update(encoded)
    return int.from_bytes(digest.digest(), "little")


def pair_hash(pair: SentencePair) -> int:
    """What makes two pairs duplicates: both texts."""
    return text_hash(pair.source, pair.target)


def name_hash(name: str | None) -> int:
    """Of a unit id or an origin; 0 stands for none."""
    return 0 if name is None else text_hash(name) or 1


def identity_hash(pair: SentencePair) -> int:
    """What a later pair replaces: the same unit of the same origin with the same source.

    A pair without a unit id can be repeated but not corrected, so its target belongs to it too.
    """
    if pair.unit_id is None:
        return text_hash("pair", pair.origin or "", pair.source, pair.target)
    return text_hash("unit", pair.origin or "", pair.unit_id, pair.source)
