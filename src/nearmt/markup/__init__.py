"""Translates text with tags and placeholders so that each of them is in the translation exactly once.

Text, XML and HTML go in and come out as strings, and the model behind `translate` never sees a tag. Every result is
compared with its source; if a tag or placeholder is missing, the text between the tags is translated instead. This
package knows nothing of models, stores or files.
"""

from nearmt.markup.rules import HTML, TEXT, XML, Kind, Rules, rules_for
from nearmt.markup.splitting import SplitText, split_sentences, split_text, translate_long
from nearmt.markup.translation import Marked, Reuse, Way, translate_marked, translate_with_ways

__all__ = [
    "HTML",
    "TEXT",
    "XML",
    "Kind",
    "Marked",
    "Reuse",
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
