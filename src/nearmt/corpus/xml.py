"""Reads XML safely and in constant memory, and extracts the visible text of segments with inline tags.

TMX and XLIFF are read only through this module. Documents are untrusted: no DTD is loaded, no entity is expanded,
nothing is fetched, and libxml2's limits on depth and size stay on.
"""

import re
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from lxml import etree

from nearmt.corpus.streams import CHUNK_BYTES, display_name, open_bytes
from nearmt.errors import CorpusError

Event = Literal["start", "end"]

_MAX_PROLOG_BYTES = 1024 * 1024  # the root element must start within these
_LOCATION = re.compile(r",? line \d+, column \d+\s*$")

# Tags that contain native code or nothing: a gap in the sentence.
_CODES = frozenset({"bpt", "ept", "ph", "it", "ut", "x", "bx", "ex", "sc", "ec", "cp"})
# Annotation marks, which are invisible and may be inside a word; `sub` is a text of its own.
_INVISIBLE = frozenset({"sm", "em", "sub"})
_GAP = "\0"  # cannot occur in XML
_GAPS = re.compile(_GAP + "+")
_LINE_BREAK_TYPES = frozenset({"lb", "x-lb", "xlf:lb", "x-br", "br", "linebreak"})
# Scripts written without spaces between words, by ranges of code points: Thai to Lao, Burmese, Khmer, then
# Kana and ideographs.
_UNSPACED = (
    (0x0E00, 0x0EFF),
    (0x1000, 0x109F),
    (0x1780, 0x17FF),
    (0x3040, 0x30FF),
    (0x3400, 0x9FFF),
    (0x20000, 0x3FFFF),
)


@dataclass(frozen=True, slots=True)
class Root:
    """The outermost element of a document."""

    name: str
    attributes: dict[str, str]


def local_name(element: etree._Element) -> str:
    """The tag without its namespace, which is missing or wrong in files of old tools."""
    return _without_namespace(str(element.tag))


@lru_cache(maxsize=1024)
def _without_namespace(tag: str) -> str:
    return tag.rpartition("}")[2]


def attribute(element: etree._Element, name: str) -> str | None:
    """An attribute by its local name: the one without a namespace first, else one in any namespace."""
    plain = element.get(name)
    if plain is not None:
        return plain
    return next((str(value) for key, value in element.attrib.items() if str(key).endswith("}" + name)), None)


def children(element: etree._Element, name: str) -> list[etree._Element]:
    """The child elements with this name, in any namespace."""
    return list(element.iterchildren("{*}" + name))


def _parser(events: tuple[Event, ...], tags: tuple[str, ...] | None) -> etree.XMLPullParser:
    # collect_ids=False looks like a saving, but makes libxml2 load the external DTD: it must stay at its default.
    return etree.XMLPullParser(
        events=events,
        tag=None if tags is None else tuple("{*}" + tag for tag in tags),
        resolve_entities=False,
        load_dtd=False,
        no_network=True,
        dtd_validation=False,
        huge_tree=False,
        remove_comments=True,
        remove_pis=True,
    )


def _events(parser: etree.XMLPullParser) -> Iterator[tuple[str, etree._Element]]:
    for event, element in parser.read_events():
        if isinstance(element, etree._Element):  # always true for start and end events; the type stubs do not say so
            yield str(event), element


def read_root(path: str | Path, stream: "_Source") -> Root:
    """The root element; raises if the document is empty, not XML, or declares entities."""
    parser = _parser(("start",), None)
    failure: etree.XMLSyntaxError | None = None
    while not failure and len(stream.head) < _MAX_PROLOG_BYTES and (chunk := stream.more_head()):
        try:
            parser.feed(chunk)
        except etree.XMLSyntaxError as error:
            failure = error  # if it is after the root, `elements` will raise it again
        for _, element in _events(parser):
            _refuse_entities(element, display_name(path))
            return Root(local_name(element), {str(key): str(value) for key, value in element.attrib.items()})
    if failure is not None:
        raise _syntax_error(failure, display_name(path)) from failure
    if not stream.head:
        raise CorpusError(f"{display_name(path)} is empty.")
    raise CorpusError(f"{display_name(path)} is not XML or is truncated: it has no root element.")


def _refuse_entities(root: etree._Element, name: str) -> None:
    dtd = root.getroottree().docinfo.internalDTD
    if dtd is not None and any(True for _ in dtd.iterentities()):  # type: ignore[attr-defined]  # missing in the stubs
        raise CorpusError(f"{name} declares XML entities, which is refused: they can expand without bound.")


def _syntax_error(error: etree.XMLSyntaxError, name: str) -> CorpusError:
    reason = _LOCATION.sub("", error.msg or "").strip().rstrip(".")
    if "amplification" in reason or "entity reference loop" in reason.lower():
        return CorpusError(f"{name} has XML entities that expand without bound, which is refused.")
    if "XML_PARSE_HUGE" in reason:
        reason = "an element is nested too deeply or holds more than 10 MB of text"
    line = f", line {error.lineno}" if error.lineno else ""
    return CorpusError(f"{name}{line}: not well-formed XML ({reason}).")


class _Source:
    """A byte stream whose beginning can be read in advance."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self.head = b""

    def more_head(self) -> bytes:
        chunk = next(self._chunks, b"")
        self.head += chunk
        return chunk

    def __iter__(self) -> Iterator[bytes]:
        if self.head:
            yield self.head
        yield from self._chunks


class XmlReader:
    """An open document: its root, then its elements one after the other; each is freed after use."""

    def __init__(self, path: str | Path, chunks: Iterator[bytes], expected_root: str) -> None:
        self.path = path
        self.name = display_name(path)
        self._source = _Source(chunks)
        self.root = read_root(path, self._source)
        if self.root.name != expected_root:
            raise CorpusError(f"{self.name} is not {expected_root.upper()}: its root element is <{self.root.name}>.")

    def elements(self, events: tuple[Event, ...], tags: tuple[str, ...]) -> Iterator[tuple[str, etree._Element]]:
        """The events of the given tags. An element is valid only until the next one is requested."""
        parser = _parser(events, tags)
        try:
            for chunk in self._source:
                parser.feed(chunk)
                for event, element in _events(parser):
                    yield event, element
                    if event == "end":
                        _free(element)
            parser.close()
        except etree.XMLSyntaxError as error:
            raise _syntax_error(error, self.name) from error


def _free(element: etree._Element) -> None:
    """Free an element and its earlier siblings; `clear` alone would leave an empty element per unit."""
    element.clear()
    parent = element.getparent()
    if parent is not None:
        while element.getprevious() is not None:
            del parent[0]


@contextmanager
def open_xml(path: str | Path, expected_root: str) -> Iterator[XmlReader]:
    """An open document; read errors inside the block become `CorpusError`."""
    with open_bytes(path) as stream:
        yield XmlReader(path, iter(lambda: stream.read(CHUNK_BYTES), b""), expected_root)


def visible_text(element: etree._Element, name: str) -> str:
    """The text of a segment without its codes; a space replaces a code that separated two words."""
    if len(element) == 0:
        return element.text or ""
    parts: list[str] = []
    _collect(element, parts, name)
    text, *rest = _GAPS.split("".join(parts))
    for part in rest:
        text += " " + part if text and part and _would_join(text[-1], part[0]) else part
    return text


def _collect(element: etree._Element, parts: list[str], name: str) -> None:
    # Recursion is safe: libxml2 refuses documents deeper than 256 elements.
    parts.append(element.text or "")
    for child in element:
        if child.tag is etree.Entity:
            raise CorpusError(f"{name}, line {child.sourceline}: the entity {child.text} is not defined.")
        if isinstance(child.tag, str):
            tag = local_name(child)
            if tag in _CODES:
                parts.append(" " if _is_line_break(child) else _GAP)
            elif tag not in _INVISIBLE and child.get("mtype") != "x-sdl-deleted":  # a tracked deletion
                _collect(child, parts, name)
        parts.append(child.tail or "")


def _is_line_break(code: etree._Element) -> bool:
    kind = code.get("ctype") or code.get("subType") or code.get("type")
    return kind is not None and kind.lower() in _LINE_BREAK_TYPES


def _would_join(left: str, right: str) -> bool:
    return _is_word(left) and _is_word(right) and not (_is_unspaced(left) or _is_unspaced(right))


def _is_word(char: str) -> bool:
    # Combining marks are part of words, as in Hindi.
    return char.isalnum() or char == "_" or (not char.isascii() and unicodedata.category(char).startswith("M"))


def _is_unspaced(char: str) -> bool:
    return not char.isascii() and any(low <= ord(char) <= high for low, high in _UNSPACED)
