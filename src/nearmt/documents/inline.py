"""The inline tags of XLIFF and TMX, and targets that are made from several translations."""

from collections.abc import Sequence
from dataclasses import dataclass

from nearmt.documents.elements import Element, line_start, with_attributes
from nearmt.documents.units import Gap, Splice
from nearmt.markup import Rules
from nearmt.markup.scan import scan

# Native code: not translated, with all its content except <sub>.
_CODES = frozenset({"bpt", "ept", "ph", "it", "ut", "x", "bx", "ex", "sc", "ec", "cp", "sm", "em"})

INLINE = Rules(
    "xml",
    locked=_CODES,
    milestones={
        "bpt": ("bpt", ("i", "rid", "id")),
        "ept": ("bpt", ("i", "rid", "id")),
        "bx": ("bx", ("rid", "id")),
        "ex": ("bx", ("rid", "id")),
        "sc": ("sc", ("id",)),
        "ec": ("sc", ("startRef", "id")),
        "sm": ("sm", ("id",)),
        "em": ("sm", ("startRef",)),
    },
    locked_values=frozenset({("translate", "no"), ("mtype", "protected")}),
    has_accelerators=True,
)


@dataclass(frozen=True, slots=True)
class Content:
    """A segment to translate, and the sub-flows inside its codes, each of which is a separate text."""

    source: str
    subs: tuple[tuple[str, str, str], ...]  # start tag, content, end tag

    @property
    def gaps(self) -> list[Gap]:
        return [Gap(source, INLINE) for source in (self.source, *(sub[1] for sub in self.subs))]

    def filled(self, texts: Sequence[str]) -> str:
        """The translated segment with the translated sub-flows in its codes."""
        result = texts[0]
        for (opening, content, closing), text in zip(self.subs, texts[1:], strict=True):
            result = result.replace(opening + content + closing, opening + text + closing)
        return result


def content_of(text: str, element: Element) -> Content:
    """The content of a source element."""
    subs = []
    for inner in element.descendants():
        around = [each.local for each in inner.ancestors()][1:]
        if inner.local == "sub" and "sub" not in around and not inner.is_self_closed:
            subs.append(
                (
                    text[inner.start : inner.inner_start],
                    text[inner.inner_start : inner.inner_end],
                    text[inner.inner_end : inner.end],
                )
            )
    return Content(text[element.inner_start : element.inner_end], tuple(sub for sub in subs if sub[1].strip()))


class TargetMaker:
    """Makes a target element from a source element in which some parts, or all of it, are translated."""

    def __init__(self, text: str, source: Element, parts: Sequence[Element]) -> None:
        self._text, self._source, self._parts = text, source, parts
        self._contents = [content_of(text, part) for part in parts]
        self.gaps = [gap for content in self._contents for gap in content.gaps]

    def content(self, translations: Sequence[str]) -> str:
        """The content of the target, from the translations of all gaps."""
        written, done, at = [], self._source.inner_start, 0
        for part, content in zip(self._parts, self._contents, strict=True):
            end = at + len(content.gaps)
            written += [self._text[done : part.inner_start], content.filled(translations[at:end])]
            done, at = part.inner_end, end
        return "".join(written) + self._text[done : self._source.inner_end]

    def splice(self, target: Element | None, review: dict[str, str], before: str = "") -> Splice:
        """Fill a target, or insert one after the source."""
        if target is not None:
            opening, closing = with_attributes(_opened(self._text, target), review), f"</{target.name}>"
            start, end = target.start, target.end
        else:
            prefix = self._source.prefix
            start = end = self._source.end
            opening = line_start(self._text, self._source.start) + with_attributes(f"<{prefix}target>", review)
            closing = f"</{prefix}target>"
        return Splice(start, end, lambda texts: f"{before}{opening}{self.content(texts)}{closing}")


def _opened(text: str, element: Element) -> str:
    """The start tag of an element; an empty-element tag such as <target/> becomes <target>."""
    tag = text[element.start : element.inner_start]
    return tag[:-2].rstrip() + ">" if element.is_self_closed else tag


def is_blank(text: str, element: Element | None) -> bool:
    """True if an element is missing or has nothing but white space and empty <mrk>s."""
    if element is None:
        return True
    inner = text[element.inner_start : element.inner_end]
    if any(each.local != "mrk" for each in element.descendants()):
        return False
    return all(
        inner[token.start : token.end].isspace() or token.kind in ("open", "close", "single")
        for token in scan(inner, is_html=False)
        if not inner.startswith("<!--", token.start)
    )


def is_same(text: str, source: Element, target: Element) -> bool:
    """True if a target is a copy of its source."""
    return text[source.inner_start : source.inner_end] == text[target.inner_start : target.inner_end]
