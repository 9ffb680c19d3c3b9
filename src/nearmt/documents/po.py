"""Gettext PO: fills entries without a translation and flags them fuzzy, which means that they need a review."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from nearmt.corpus.languages import LanguagePair, match_rank
from nearmt.corpus.plurals import PluralForms
from nearmt.documents.units import Document, Gap, Splice, Unit
from nearmt.errors import DocumentError
from nearmt.markup import TEXT

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|\Z)")
_STRING = r'"(?:[^"\\]|\\.)*"'
_FIELD = re.compile(rf"\s*(msgctxt|msgid_plural|msgid|msgstr(?:\[\d+\])?)\s*({_STRING})\s*\Z")
_MORE = re.compile(rf"\s*({_STRING})\s*\Z")
_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|x([0-9a-fA-F]{1,2})|(.))")
_ESCAPED_CHARS = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_ESCAPES = {"\\": "\\\\", '"': '\\"', **{char: f"\\{letter}" for letter, char in _ESCAPED_CHARS.items()}}


@dataclass(slots=True)
class _Field:
    """A keyword with its string: text[start:end], without the last line end."""

    start: int
    end: int
    value: str
    num_lines: int = 1


@dataclass(slots=True)
class _Entry:
    """A message: its fields by keyword, and the position of its flags."""

    line: int
    fields: dict[str, _Field] = field(default_factory=dict)
    flags_at: int = -1  # after the "#," of its flags; -1 if it has none
    flags: set[str] = field(default_factory=set)
    new_flags_at: int = -1  # where a line of flags would be inserted

    @property
    def translations(self) -> dict[str, _Field]:
        return {key: each for key, each in self.fields.items() if key.startswith("msgstr")}


def read_po(text: str, name: str, languages: LanguagePair) -> Document:
    """The entries of a PO file that are to be filled."""
    entries = list(_entries(text, name))
    document = Document(text)
    plurals = PluralForms("")
    end_of_line = "\r\n" if "\r\n" in text else "\n"
    for entry in entries:
        if not entry.fields["msgid"].value and "msgctxt" not in entry.fields:
            header = entry.translations.get("msgstr", _Field(0, 0, "")).value
            _check_language(header, languages.target, name)
            plurals = PluralForms(header)
        elif all(each.value for each in entry.translations.values()):
            document.leave("awaiting review" if "fuzzy" in entry.flags else "translated")
        elif not entry.fields["msgid"].value.strip():
            document.leave("empty")
        else:
            document.units.append(_unit(entry, plurals, end_of_line))
    return document


def _entries(text: str, name: str) -> Iterator[_Entry]:
    entry: _Entry | None = None
    last: _Field | None = None
    for number, found in enumerate(_LINE.finditer(text), start=1):
        line, start = found[0], found.start()
        mark = line.lstrip()[:2]
        keyword = _FIELD.match(line)
        begins = mark.startswith("#") or (keyword is not None and keyword[1] in ("msgctxt", "msgid"))
        if entry is not None and (not line.strip() or mark == "#~" or (begins and entry.translations)):
            yield from _finished(entry, name)
            entry = last = None
        if not line.strip() or mark == "#~":
            last = None
            continue
        entry = entry or _Entry(number)
        if mark.startswith("#"):
            _read_comment(entry, line, start, mark)
        elif keyword is not None:
            last = _Field(start, start + len(line.rstrip()), _unescape(keyword[2]))
            if keyword[1] in entry.fields:
                raise DocumentError(f"{name}, line {number} is not PO syntax: an entry has more than one {keyword[1]}.")
            entry.fields[keyword[1]] = last
            entry.new_flags_at = start if entry.new_flags_at < 0 else entry.new_flags_at
        elif last is not None and (more := _MORE.match(line)):
            last.end, last.value = start + len(line.rstrip()), last.value + _unescape(more[1])
            last.num_lines += 1
        else:
            raise DocumentError(f"{name}, line {number} is not PO syntax: a string is not closed or not quoted.")
    if entry is not None:
        yield from _finished(entry, name)


def _finished(entry: _Entry, name: str) -> Iterator[_Entry]:
    if "msgid" in entry.fields and entry.translations:
        yield entry
    elif entry.fields:
        raise DocumentError(f"{name}, line {entry.line} is not PO syntax: the entry has no msgid or no msgstr.")


def _read_comment(entry: _Entry, line: str, start: int, mark: str) -> None:
    if mark == "#,":
        entry.flags_at = start + line.index("#,") + 2
        entry.flags |= {flag.strip() for flag in line.strip()[2:].split(",")}
    elif mark == "#|" and entry.new_flags_at < 0:
        entry.new_flags_at = start


def _unescape(quoted: str) -> str:
    def unescaped(found: re.Match[str]) -> str:
        octal, hexadecimal, letter = found.groups()
        if letter is None:
            return chr(int(octal, 8) if octal else int(hexadecimal, 16))
        return _ESCAPED_CHARS.get(letter, letter)

    return _ESCAPE.sub(unescaped, quoted[1:-1])


def _check_language(header: str, wanted: str | None, name: str) -> None:
    stated = re.search(r"^Language:[^\S\n]*(\S+)", header, re.MULTILINE)
    if stated and wanted and match_rank(wanted, stated[1]) is None:
        raise DocumentError(f"{name} is a translation into {stated[1]}, but the store translates into {wanted}.")


def _unit(entry: _Entry, plurals: PluralForms, end_of_line: str) -> Unit:
    gaps: list[Gap] = []
    splices = [] if "fuzzy" in entry.flags else [_flag(entry, end_of_line)]
    for key, start, end, before in _missing(entry, plurals, end_of_line):
        form = re.search(r"\d+", key)
        is_plural = form is not None and "msgid_plural" in entry.fields and not plurals.is_singular(int(form[0]))
        source = entry.fields["msgid_plural" if is_plural else "msgid"]
        splices.append(Splice(start, end, _writer(key, len(gaps), source.num_lines > 1, end_of_line, before)))
        gaps.append(Gap(source.value, TEXT))
    return Unit(gaps, splices)


def _missing(entry: _Entry, plurals: PluralForms, end_of_line: str) -> Iterator[tuple[str, int, int, str]]:
    """Keyword, start, end and prefix of each translation that is empty or missing."""
    present = entry.translations
    for key, each in present.items():
        if not each.value:
            yield key, each.start, each.end, ""
    if "msgid_plural" in entry.fields:
        end = max(each.end for each in present.values())
        for number in range(plurals.number):
            if f"msgstr[{number}]" not in present:
                yield f"msgstr[{number}]", end, end, end_of_line


def _flag(entry: _Entry, end_of_line: str) -> Splice:
    if entry.flags_at >= 0:
        return Splice(entry.flags_at, entry.flags_at, " fuzzy,")
    return Splice(entry.new_flags_at, entry.new_flags_at, f"#, fuzzy{end_of_line}")


def _writer(key: str, number: int, is_multiline: bool, end_of_line: str, before: str) -> Callable[[Sequence[str]], str]:
    return lambda texts: before + _keyword_with_string(key, texts[number], is_multiline, end_of_line)


def _keyword_with_string(key: str, value: str, is_multiline: bool, end_of_line: str) -> str:
    """A keyword with its string, on several lines if its source is or if the string has line ends inside."""
    lines = re.findall(r"[^\n]*\n|[^\n]+", value) if "\n" in value[:-1] or is_multiline else []
    quoted = ['"' + "".join(_ESCAPES.get(char, char) for char in line) + '"' for line in lines or [value]]
    if not lines:
        return f"{key} {quoted[0]}"
    return end_of_line.join([f'{key} ""', *quoted])
