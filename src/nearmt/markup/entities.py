"""Character references of XML and HTML."""

import re
from collections.abc import Sequence
from html.entities import html5

_REFERENCE = re.compile(r"&(?:#(\d{1,7})|#[xX]([0-9a-fA-F]{1,6})|([A-Za-z][A-Za-z0-9]{1,31}));")
_XML_NAMES = {"lt": "<", "gt": ">", "amp": "&", "quot": '"', "apos": "'"}
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def _meaning(found: re.Match[str], is_html: bool) -> str | None:
    decimal, hexadecimal, name = found.groups()
    if name:
        return html5.get(f"{name};") if is_html else _XML_NAMES.get(name)
    number = int(decimal) if decimal else int(hexadecimal, 16)
    is_character = 0 < number < 0x110000 and not 0xD800 <= number < 0xE000
    return chr(number) if is_character else None


def decode(source: str, *, is_html: bool) -> tuple[str, Sequence[int] | None]:
    """The plain text, and the position in the source of each of its characters (None if the positions are the same)."""
    if "&" not in source:
        return source, None
    parts: list[str] = []
    starts: list[int] = []
    done = 0
    for found in _REFERENCE.finditer(source):
        meaning = _meaning(found, is_html)
        if meaning is None:
            continue
        parts += [source[done : found.start()], meaning]
        starts += range(done, found.start())
        starts += [found.start()] * len(meaning)
        done = found.end()
    starts += range(done, len(source) + 1)
    return "".join(parts) + source[done:], starts


def escape(text: str, *, is_html: bool) -> str:
    """Text escaped for use between tags, without the characters that XML forbids."""
    text = _FORBIDDEN.sub("", text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return text.replace("\xa0", "&nbsp;") if is_html else text
