"""Translating text that carries tags and placeholders, so that each of them survives exactly once.

Text, XML and HTML come in as strings and leave as strings; the model behind `translate` never sees a tag. What
comes out is checked against what went in, and where a check fails the text is translated around its tags, piece by
piece. Nothing in here knows models, stores or files.
"""

from nearmt.markup.rules import HTML, TEXT, XML, Kind, Rules, rules_for
from nearmt.markup.splitting import SplitText, split_sentences, split_text, translate_long
from nearmt.markup.translation import Marked, Way, translate_marked, translate_with_ways

__all__ = [
    "HTML",
    "TEXT",
    "XML",
    "Kind",
    "Marked",
    "Rules",
    "SplitText",
    "Way",
    "rules_for",
    "split_sentences",
    "split_text",
    "translate_long",
    "translate_marked",
    "translate_with_ways",
]
