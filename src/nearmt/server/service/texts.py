"""Checks the texts that clients send."""

import re

from nearmt.server.http.errors import ApiError

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_TAG = re.compile(r"<(/?)([A-Za-z][\w:.-]*)[^<>]*?(/?)>")
_VOID = frozenset(
    {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
)
MAX_DEPTH = 200


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
