"""The rules of each kind of markup: which elements are not translated, which end a sentence, which form pairs."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from nearmt.errors import SettingError

Kind = Literal["text", "xml", "html"]

_ATTRIBUTE = re.compile(r"""([^\s=<>"'/]+)\s*=\s*("[^"]*"|'[^']*'|[^\s"'>]+)""")


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_BLOCKS = _names("""
    address article aside blockquote body br button caption center col colgroup dd details dialog div dl dt fieldset
    figcaption figure footer form frameset h1 h2 h3 h4 h5 h6 head header hgroup hr html legend li link main menu meta
    nav noscript ol optgroup option p pre script search section select style summary table tbody td template textarea
    tfoot th thead title tr ul
""")
_LEFT_ALONE = _names("canvas code kbd math object pre samp script style svg template textarea var")
_VOID = _names("area base br col embed hr img input link meta param source track wbr")


@dataclass(frozen=True, slots=True)
class Rules:
    """How the tags of one kind of text are treated. Names have no prefix and are in lower case for HTML."""

    kind: Kind
    locked: frozenset[str] = frozenset()  # not translated, with all their content
    breaks: frozenset[str] = frozenset()  # no sentence continues across them
    void: frozenset[str] = frozenset()  # without an end tag
    # Single tags that open and close a span: name → name of the opening tag, attributes with the id of the pair.
    milestones: Mapping[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    locked_values: frozenset[tuple[str, str]] = frozenset({("translate", "no")})
    has_accelerators: bool = False  # & ~ _ before the accelerator key of a label
    is_newline_break: bool = True

    def local(self, name: str) -> str:
        """The name as it is in the sets above."""
        return name.lower() if self.kind == "html" else name.rpartition(":")[2]

    def is_locked(self, name: str, tag: str) -> bool:
        """True if the element with this start tag is not translated."""
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
    """The rules of a kind, with further elements to leave untranslated (`ignored`) and to split at (`splitting`)."""
    known: dict[str, Rules] = {rules.kind: rules for rules in (TEXT, XML, HTML)}
    if kind not in known:
        raise SettingError(f"unknown kind of markup {kind!r}: use text, xml or html")
    rules = known[kind]
    return replace(
        rules,
        locked=rules.locked | frozenset(ignored),
        breaks=rules.breaks | frozenset(splitting),
        is_newline_break=rules.is_newline_break if is_newline_break is None else is_newline_break,
    )


def attributes(tag: str) -> dict[str, str]:
    """The attributes of a tag, without quotes and not unescaped."""
    return {name: value[1:-1] if value[0] in "\"'" else value for name, value in _ATTRIBUTE.findall(tag)}
