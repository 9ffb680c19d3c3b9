"""Translates XLIFF, PO and TMX files: fills their untranslated units and marks them for review.

Files are not parsed and written again: translations are spliced in at the positions of the units, and every other
byte stays the same.
"""

from nearmt.corpus.extensions import document_format
from nearmt.documents.filling import Summary, translate_document

__all__ = ["Summary", "document_format", "translate_document"]
