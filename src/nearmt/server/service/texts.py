"""A text as the server sees it: sentences to translate, and what stands between them, which is kept as it is."""

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
class Plan:
    """What of a text is translated: `parts` are the sentences' numbers and the strings that stay."""

    sentences: tuple[str, ...]
    parts: tuple[str | int, ...]

    def fill(self, translations: Sequence[str]) -> str:
        """The text with its sentences replaced."""
        return "".join(self._pieces(translations))

    def spans(self, translations: Sequence[str]) -> list[tuple[int, int]]:
        """Where each translated sentence stands in the filled text."""
        found, at = [(0, 0)] * len(self.sentences), 0
        for part, piece in zip(self.parts, self._pieces(translations), strict=True):
            if isinstance(part, int):
                found[part] = (at, at + len(piece))
            at += len(piece)
        return found

    def _pieces(self, translations: Sequence[str]) -> list[str]:
        return [part if isinstance(part, str) else translations[part] for part in self.parts]


def plan_text(text: str, language: str, *, splits_sentences: bool = True) -> Plan:
    """The sentences of a plain text, or its lines."""
    sentences: list[str] = []
    parts: list[str | int] = []
    for piece in split_sentences(text, language) if splits_sentences else _LINES.findall(text):
        content = piece.strip()
        if not content:
            parts.append(piece)
            continue
        start = piece.index(content)
        parts += [piece[:start], len(sentences), piece[start + len(content) :]]
        sentences.append(content)
    return Plan(tuple(sentences), tuple(part for part in parts if part != ""))


def refuse_deep_tags(text: str, name: str) -> None:
    """Tags within tags within tags: no text for people is nested without end."""
    depth = 0
    for tag in _TAG.finditer(text):
        closes, element, is_single = tag.groups()
        if is_single or element.lower() in _VOID:
            continue
        depth = max(0, depth - 1) if closes else depth + 1
        if depth > MAX_DEPTH:
            raise ApiError(400, "too_deep", f"the tags of {name} are nested more than {MAX_DEPTH} deep")


def refuse_bad_text(text: str, name: str) -> None:
    """Control characters and halves of characters are no text."""
    found = _CONTROL.search(text)
    if found:
        raise ApiError(
            400, "bad_text", f"{name} has the control character U+{ord(found.group()):04X} at position {found.start()}"
        )
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ApiError(400, "bad_text", f"{name} has half a character at position {error.start}") from None
