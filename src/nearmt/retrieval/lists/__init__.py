"""Searching all entries by inverted lists of their keys: exact distances, of the entries in the few nearest lists."""
