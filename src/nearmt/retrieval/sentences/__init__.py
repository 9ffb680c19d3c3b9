"""Retrieval in two steps: stored sentences that are like the source, then the nearest entries among theirs.

The cost of a decoding step depends on the number of chosen sentences, not on the size of the store.
"""
