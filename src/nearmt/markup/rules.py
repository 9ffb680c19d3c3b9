"""What a kind of markup means: which elements are left alone, which part sentences, which stand for a pair."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from nearmt.errors import SettingError

Kind = Literal["text", "xml", "html"]

_ATTRIBUTE = re.compile(r"""([^\s=<>"'/]+)\s*=\s*("[^"]*"|'[^']*'|[^\s"'>]+)""")
_BLOCKS = frozenset({
    "address", "article", "aside", "blockquote", "body", "br", "button", "caption", "center", "col", "colgroup", "dd",
    "details", "dialog", "div", "dl", "dt", "fieldset", "figcaption", "figure", "footer", "form", "frameset", "h1",
    "h2", "h3", "h4", "h5", "h6", "head", "header", "hgroup", "hr", "html", "legend", "li", "link", "main", "menu",
    "meta", "nav", "noscript", "ol", "optgroup", "option", "p", "search", "section", "select", "summary", "table",
    "tbody", "td", "tfoot", "th", "thead", "title", "tr", "ul", "script", "style", "pre", "template", "textarea",
})  # fmt: skip
_LEFT_ALONE = frozenset({
    "script", "style", "pre", "code", "kbd", "samp", "var", "math", "svg", "canvas", "object", "template", "textarea",
})  # fmt: skip
_VOID = frozenset({
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rules:
    """How tags of one kind of text are treated. Names are local ones, in lower case for HTML."""

    kind: Kind
    locked: frozenset[str] = frozenset()  # left alone with all that they hold
    breaks: frozenset[str] = frozenset()  # no sentence goes across them
    void: frozenset[str] = frozenset()  # without an end tag
    # Single tags that open and close a span: name → the name of the one that opens, attributes that say which.
    milestones: Mapping[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    locked_values: frozenset[tuple[str, str]] = frozenset({("translate", "no")})
    has_accelerators: bool = False  # & ~ _ before the letter of a short cut, as menus have them
    is_newline_break: bool = True

    def local(self, name: str) -> str:
        """The name that the sets above know."""
        return name.lower() if self.kind == "html" else name.rpartition(":")[2]

    def is_locked(self, name: str, tag: str) -> bool:
        """Whether the element that begins with this tag is left alone."""
        if self.local(name) in self.locked:
            return True
        found = {key.lower(): value for key, value in attributes(tag).items()} if "=" in tag else {}
        if any((key, value.lower()) in self.locked_values for key, value in found.items()):
            return True
        return self.kind == "html" and "notranslate" in found.get("class", "").split()


TEXT = Rules("text", has_accelerators=True)
XML = Rules("xml")
HTML = Rules("html", locked=_LEFT_ALONE, breaks=_BLOCKS, void=_VOID, is_newline_break=False)


def rules_for(
    kind: str, *, ignored: Collection[str] = (), splitting: Collection[str] = (), is_newline_break: bool | None = None
) -> Rules:
    """The rules of a kind, with more elements to leave alone and to split at."""
    known: dict[str, Rules] = {rules.kind: rules for rules in (TEXT, XML, HTML)}
    if kind not in known:
        raise SettingError(f"{kind} is no kind of markup: it is text, xml or html")
    rules = known[kind]
    return replace(
        rules,
        locked=rules.locked | frozenset(ignored),
        breaks=rules.breaks | frozenset(splitting),
        is_newline_break=rules.is_newline_break if is_newline_break is None else is_newline_break,
    )


def attributes(tag: str) -> dict[str, str]:
    """The attributes of a tag as they are spelt, without their quotes."""
    return {name: value[1:-1] if value[0] in "\"'" else value for name, value in _ATTRIBUTE.findall(tag)}
