"""64-bit hashes of texts, by which duplicates, corrections and removals are found."""

import hashlib

from nearmt.corpus import SentencePair


def text_hash(*texts: str) -> int:
    """Hash one text, or several in order."""
    digest = hashlib.blake2b(digest_size=8)
    for text in texts:
        encoded = text.encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(8, "little"))
        digest.update(encoded)
    return int.from_bytes(digest.digest(), "little")


def pair_hash(pair: SentencePair) -> int:
    """Hash of both texts. Pairs with the same hash are duplicates."""
    return text_hash(pair.source, pair.target)


def name_hash(name: str | None) -> int:
    """Hash of a unit id or an origin; 0 for None."""
    return 0 if name is None else text_hash(name) or 1


def identity_hash(pair: SentencePair) -> int:
    """Hash of what identifies a unit: its id, origin and source. A later pair with the same hash replaces it.

    Without a unit id the target is part of the identity.
    """
    if pair.unit_id is None:
        return text_hash("pair", pair.origin or "", pair.source, pair.target)
    return text_hash("unit", pair.origin or "", pair.unit_id, pair.source)
