"""Finds placeholders: format directives, variables, entities, addresses and tags written as text."""

import re
from collections import Counter

_REST = r"""
    \$\{[^{}\s]{1,80}\}                                        # ${x}
  | \{\{\{?[^{}]{1,80}\}\}\}?                                  # {{x}}
  | \{[\w.:\#!,$@\[\]-]{0,60}\}                                # {0} {name} {0:d} {}
  | %\([^()\s]{1,60}\)[\#0+-]*\d*(?:\.\d+)?[a-zA-Z]            # %(name)s
  | %[A-Za-z_][\w.-]{0,40}%(?!\w)                              # %name%
  | (?<!\d)%(?:\d{1,2}\$)?[\#0+-]*(?:\d{1,4}|\*)?(?:\.(?:\d{1,4}|\*))?(?:hh|h|ll|l|L|q|j|z|t)?[diouxXeEfFgGcrsSaAp@]
  | (?<!\d)%L?\d{1,2}                                          # %1 of Qt
  | %%
  | &(?:\#\d{1,7}|\#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});
  | (?<!\w)[A-Za-z]:\\[^\s<>"|?*]+                             # C:\Path
  | \\[nrt]
  | (?<!\w)(?:https?|ftp|file)://[^\s<>"']*[^\s<>"'.,;:!?)\]]
  | (?<!\w)www\.[^\s<>"']*[^\s<>"'.,;:!?)\]]
  | (?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+
"""
_MESSAGE_HEAD = r"\{\s*\w{1,60}\s*,\s*(?:plural|select|selectordinal)\s*,"
_PLACEHOLDER = re.compile(rf"(?P<message>{_MESSAGE_HEAD}) | {_REST}", re.VERBOSE)
_BRACE = re.compile(r"[{}]")
EMBEDDED_TAG = re.compile(
    r"""<(?:/[A-Za-z][\w:.-]*+\s*+|[A-Za-z][\w:.-]*+"""
    r"""(?:\s++[\w:.-]++\s*+=\s*+(?:"[^"<>]*+"|'[^'<>]*+'|[^\s"'<>=]++))*+\s*+/?)>"""
)
# "&" may be inside a word (D&atei) if a small letter follows; R&D has no accelerator.
_ACCELERATOR = re.compile(
    r"(?<![\w&])&(?=[^\W\d_])|(?<=\w)&(?=[^\W\d_A-Z])|(?<![\w~])~(?=[^\W\d_])|(?<!\w)_(?=[^\W\d_])"
)
_MAX_LABEL = 100  # characters; a text with an accelerator is a label


def find_placeholders(text: str) -> list[tuple[int, int]]:
    """The start and end of each placeholder, from left to right."""
    spans: list[tuple[int, int]] = []
    at, are_closed = 0, True
    while found := _PLACEHOLDER.search(text, at):
        end = found.end()
        if found["message"] and are_closed:
            whole = _message_end(text, found.start())
            are_closed = whole > 0  # if not, do not search the whole text again for each later one
            end = whole if whole > 0 else end
        spans.append((found.start(), end))
        at = end
    return spans


def _message_end(text: str, at: int) -> int:
    """The position after the brace that closes an ICU message; 0 if it is not closed."""
    depth = 0
    for brace in _BRACE.finditer(text, at):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return brace.end()
    return 0


def count_placeholders(text: str) -> Counter[str]:
    """The number of times each placeholder occurs."""
    return Counter(text[start:end] for start, end in find_placeholders(text))


def without_placeholders(text: str) -> str:
    """The text without anything that looks like a placeholder or a tag."""
    while spans := find_placeholders(text) + [found.span() for found in EMBEDDED_TAG.finditer(text)]:
        start, end = spans[0]
        kept, done = [], 0
        for start, end in sorted(spans):
            if start >= done:
                kept.append(text[done:start])
                done = end
        text = "".join(kept) + text[done:]
    return text


def find_accelerator(text: str) -> tuple[int, int] | None:
    """The accelerator mark of a label (&Datei, ~Datei, _Datei); None unless there is exactly one."""
    if len(text) > _MAX_LABEL:
        return None
    found = [match.span() for match in _ACCELERATOR.finditer(text)]
    taken = find_placeholders(text)
    found = [span for span in found if not any(start <= span[0] < end for start, end in taken)]
    if len(found) != 1 or text.count(text[found[0][0]]) != 1:
        return None
    return found[0]
