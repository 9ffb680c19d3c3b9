"""XML documents as elements with positions, for finding units and splicing text into them.

Documents are untrusted: they must be well-formed, must not declare entities, and must not be nested too deeply.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.parsers import expat

from nearmt.errors import DocumentError
from nearmt.markup.entities import decode, escape
from nearmt.markup.rules import attributes
from nearmt.markup.scan import scan

_MAX_DEPTH = 256
_SPACE_BEFORE = re.compile(r"[^\S\r\n]*\Z")


@dataclass(slots=True)
class Element:
    """An element: text[start:end] is the whole of it, text[inner_start:inner_end] its content."""

    name: str  # as written, with its prefix
    start: int
    inner_start: int
    attributes: dict[str, str]
    parent: "Element | None"
    inner_end: int = -1
    end: int = -1
    children: list["Element"] = field(default_factory=list)

    @property
    def local(self) -> str:
        return self.name.rpartition(":")[2]

    @property
    def prefix(self) -> str:
        return self.name[: -len(self.local)]

    @property
    def is_self_closed(self) -> bool:
        return self.inner_start == self.end

    def get(self, name: str) -> str | None:
        """An attribute by its local name: the one without a prefix first, else one with any prefix."""
        value = self.attributes.get(name)
        if value is None:
            value = next((v for key, v in self.attributes.items() if key.endswith(f":{name}")), None)
        return None if value is None else decode(value, is_html=False)[0]

    def child(self, name: str) -> "Element | None":
        return next((child for child in self.children if child.local == name), None)

    def named(self, name: str) -> list["Element"]:
        return [child for child in self.children if child.local == name]

    def ancestors(self) -> Iterator["Element"]:
        """The element itself and its ancestors, from the inside out."""
        element: Element | None = self
        while element is not None:
            yield element
            element = element.parent

    def descendants(self) -> Iterator["Element"]:
        """All elements inside, in document order."""
        for child in self.children:
            yield child
            yield from child.descendants()


def check_document(data: bytes, name: str) -> None:
    """Raise unless the bytes are a well-formed XML document that declares no entities."""
    parser = expat.ParserCreate(namespace_separator=" ")
    depth = 0

    def start(*_: object) -> None:
        nonlocal depth
        depth += 1
        if depth > _MAX_DEPTH:
            raise DocumentError(f"{name}, line {parser.CurrentLineNumber}: elements are nested too deeply.")

    def end(*_: object) -> None:
        nonlocal depth
        depth -= 1

    def refuse(*_: object) -> None:
        raise DocumentError(f"{name} declares XML entities, which is refused: they can expand without bound.")

    parser.StartElementHandler, parser.EndElementHandler, parser.EntityDeclHandler = start, end, refuse
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        reason = expat.ErrorString(error.code) or "not XML"
        raise DocumentError(f"{name}, line {error.lineno}: not well-formed XML ({reason}).") from error


def read_elements(text: str, name: str) -> Element:
    """The root of a document that `check_document` has accepted."""
    root: Element | None = None
    inside: Element | None = None
    for token in scan(text, is_html=False):
        if token.kind in ("open", "single"):
            tag = text[token.start : token.end]
            element = Element(token.name, token.start, token.end, attributes(tag), inside)
            if inside is not None:
                inside.children.append(element)
            root = root or element
            if token.kind == "open":
                inside = element
            else:
                element.inner_end = element.end = token.end
        elif token.kind == "close" and inside is not None:
            inside.inner_end, inside.end = token.start, token.end
            inside = inside.parent
    if root is None:
        raise DocumentError(f"{name} has no root element.")
    return root


def with_attributes(tag: str, wanted: dict[str, str]) -> str:
    """A start tag with the given attributes: existing values are replaced, new attributes go to the end."""
    for name, value in wanted.items():
        quoted = escape(value, is_html=False).replace('"', "&quot;")
        there = re.compile(rf"""(\s{re.escape(name)}\s*=\s*)("[^"]*"|'[^']*')""")
        if there.search(tag):
            tag = there.sub(lambda found, quoted=quoted: f'{found[1]}"{quoted}"', tag, count=1)  # type: ignore[misc]
        else:
            end = re.search(r"\s*/?>\Z", tag)
            at = end.start() if end else len(tag)
            tag = f'{tag[:at]} {name}="{quoted}"{tag[at:]}'
    return tag


def line_start(text: str, at: int) -> str:
    """The line end and the indentation before a position; empty if there is anything else before it on its line."""
    indentation = _SPACE_BEFORE.search(text, max(0, text.rfind("\n", 0, at) + 1, text.rfind("\r", 0, at) + 1), at)
    begun = indentation.start() if indentation else at
    if begun == 0 or text[begun - 1] not in "\r\n":
        return ""
    end = "\r\n" if text[begun - 2 : begun] == "\r\n" else text[begun - 1]
    return end + text[begun:at]
