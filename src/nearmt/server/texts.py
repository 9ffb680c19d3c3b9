"""A text as the server sees it: sentences to translate, and what stands between them, which is kept as it is."""

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass

from nearmt.server.failures import ApiError

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_SENTENCE_END = re.compile(r"(?<=[.!?…])[\"'”’»)\]]*\s+(?=[\"'“‘«(\[]*[A-ZÀ-ÖØ-ÞА-Я0-9])|(?<=[。！？])")
_TAG = re.compile(r"<!--.*?-->|<!\[CDATA\[.*?\]\]>|<[!?/]?[A-Za-z][^<>]*>", re.DOTALL)
_TAG_NAME = re.compile(r"<(/?)([A-Za-z][\w:.-]*)")
_VOID = frozenset(
    ("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr")
)
_VERBATIM = frozenset({"script", "style", "code", "pre", "textarea"})
MAX_DEPTH = 200


@dataclass(frozen=True)
class Plan:
    """What of a text is translated: `parts` are the sentences' numbers and the strings that stay."""

    sentences: tuple[str, ...]
    parts: tuple[str | int, ...]
    is_markup: bool = False

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
        return [part if isinstance(part, str) else self._shown(translations[part]) for part in self.parts]

    def _shown(self, translation: str) -> str:
        return html.escape(translation, quote=False) if self.is_markup else translation


def plan_text(text: str, format: str = "text", *, splits_sentences: bool = True) -> Plan:
    """The sentences of a text; `format` is text, html or xml."""
    sentences: list[str] = []
    parts: list[str | int] = []
    if format == "text":
        _plan_plain(text, sentences, parts, splits_sentences)
        return Plan(tuple(sentences), tuple(parts))
    at = 0
    for tag, is_verbatim in _tags(text):
        run = text[at : tag.start()]
        if is_verbatim:
            parts.append(run)
        else:
            _plan_plain(html.unescape(run), sentences, parts, splits_sentences)
        parts.append(tag.group())
        at = tag.end()
    _plan_plain(html.unescape(text[at:]), sentences, parts, splits_sentences)
    return Plan(tuple(sentences), tuple(parts), is_markup=True)


def _tags(text: str) -> list[tuple[re.Match[str], bool]]:
    """The tags of a text, each with whether what stands before it is not to be touched."""
    found: list[tuple[re.Match[str], bool]] = []
    open_tags: list[str] = []
    for tag in _TAG.finditer(text):
        found.append((tag, any(name in _VERBATIM for name in open_tags)))
        named = _TAG_NAME.match(tag.group())
        if named is None or tag.group().endswith("/>"):
            continue
        closes, name = named.group(1), named.group(2).lower()
        if closes:
            while open_tags and name in open_tags and open_tags.pop() != name:
                pass
        elif name not in _VOID:
            open_tags.append(name)
            if len(open_tags) > MAX_DEPTH:
                raise ApiError(400, "too_deep", f"the tags are nested more than {MAX_DEPTH} deep")
    return found


def _plan_plain(text: str, sentences: list[str], parts: list[str | int], splits_sentences: bool) -> None:
    for line in re.split(r"(\r\n|\n|\r)", text):
        at = 0
        ends = [*(found.end() for found in _SENTENCE_END.finditer(line))] if splits_sentences else []
        for end in [*ends, len(line)]:
            _plan_sentence(line[at:end], sentences, parts)
            at = end


def _plan_sentence(piece: str, sentences: list[str], parts: list[str | int]) -> None:
    content = piece.strip()
    if not content:
        if piece:
            parts.append(piece)
        return
    start = piece.index(content)
    if start:
        parts.append(piece[:start])
    parts.append(len(sentences))
    sentences.append(content)
    if start + len(content) < len(piece):
        parts.append(piece[start + len(content) :])


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
