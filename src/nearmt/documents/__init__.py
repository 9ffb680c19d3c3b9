"""Files to translate: XLIFF, PO and TMX with their untranslated units filled and marked for review.

A file is never written anew: units are found by position, translations are spliced in, and every other byte stays.
"""

from nearmt.corpus.extensions import document_format
from nearmt.documents.filling import Summary, translate_document

__all__ = ["Summary", "document_format", "translate_document"]
