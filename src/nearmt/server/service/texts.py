"""Splits plain text into sentences, keeping the white space between them, and checks text for faults."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from nearmt.markup import split_sentences
from nearmt.server.http.errors import ApiError

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_LINES = re.compile(r"[^\r\n]+|[\r\n]+")
_TAG = re.compile(r"<(/?)([A-Za-z][\w:.-]*)[^<>]*?(/?)>")
_VOID = frozenset(
    {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
)
MAX_DEPTH = 200


@dataclass(frozen=True)
class SplitText:
    """A text as sentences and what lies between them. An integer part is the number of a sentence."""

    sentences: tuple[str, ...]
    parts: tuple[str | int, ...]

    def fill(self, translations: Sequence[str]) -> str:
        """The text with its sentences replaced by translations."""
        return "".join(self._filled(translations))

    def spans(self, translations: Sequence[str]) -> list[tuple[int, int]]:
        """Start and end of each translated sentence in the filled text."""
        found, at = [(0, 0)] * len(self.sentences), 0
        for part, text in zip(self.parts, self._filled(translations), strict=True):
            if isinstance(part, int):
                found[part] = (at, at + len(text))
            at += len(text)
        return found

    def _filled(self, translations: Sequence[str]) -> list[str]:
        return [part if isinstance(part, str) else translations[part] for part in self.parts]


def split_text(text: str, language: str, *, splits_sentences: bool = True) -> SplitText:
    """Split a plain text into sentences, or into lines."""
    sentences: list[str] = []
    parts: list[str | int] = []
    for chunk in split_sentences(text, language) if splits_sentences else _LINES.findall(text):
        content = chunk.strip()
        if not content:
            parts.append(chunk)
            continue
        start = chunk.index(content)
        parts += [chunk[:start], len(sentences), chunk[start + len(content) :]]
        sentences.append(content)
    return SplitText(tuple(sentences), tuple(part for part in parts if part != ""))


def check_length(text: str, name: str, max_characters: int) -> None:
    """Refuse a text that is too long; `name` is what the error calls the text."""
    if len(text) > max_characters:
        raise ApiError(413, "too_long", f"{name} has {len(text)} characters: the limit is {max_characters}")


def check_tag_depth(text: str, name: str) -> None:
    """Refuse tags that are nested too deeply; `name` is what the error calls the text."""
    depth = 0
    for tag in _TAG.finditer(text):
        closes, element, is_empty = tag.groups()
        if is_empty or element.lower() in _VOID:
            continue
        depth = max(0, depth - 1) if closes else depth + 1
        if depth > MAX_DEPTH:
            raise ApiError(400, "too_deep", f"the tags of {name} are nested more than {MAX_DEPTH} levels deep")


def check_characters(text: str, name: str) -> None:
    """Refuse control characters and lone surrogates; `name` is what the error calls the text."""
    found = _CONTROL.search(text)
    if found:
        code = f"U+{ord(found.group()):04X}"
        raise ApiError(400, "bad_text", f"{name} has the control character {code} at position {found.start()}")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ApiError(400, "bad_text", f"{name} has a lone surrogate at position {error.start}") from None
