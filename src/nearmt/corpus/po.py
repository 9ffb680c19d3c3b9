"""Reads the confirmed entries of gettext PO files; polib parses the whole file at once.

Accelerators (`_File`, `&File`) and format directives stay in the text, because they are translated with it.
"""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import polib

from nearmt.corpus.languages import LanguagePair, match_rank
from nearmt.corpus.pairs import PairSieve, SentencePair, utc_date
from nearmt.corpus.plurals import PluralForms
from nearmt.corpus.streams import display_name, open_bytes, origin_name, refuse_foreign_encoding
from nearmt.errors import CorpusError

_CHARSET = re.compile(rb'"Content-Type:[^"]*charset=([\w.:-]+)', re.IGNORECASE)
# polib splits its input with str.splitlines, which would end a line at these inside a string.
_FALSE_LINE_ENDS = re.compile("[\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
_POLIB_LINE = re.compile(r"\(line (\d+)\)(?:: (.*))?")
_WHOLE_STRING = re.compile(r'(?:msg\w+(?:\[\d+\])?\s*)?"(?:[^"\\]|\\.)*"')
_MAX_ID_CHARS = 100


def read_po(path: str | Path, languages: LanguagePair, sieve: PairSieve) -> Iterator[SentencePair]:
    name = display_name(path)
    catalogue = _parse(_read_text(path), name)
    _check_language(catalogue.metadata.get("Language"), languages.target, name)
    origin = origin_name(path)
    plurals = PluralForms(catalogue.metadata.get("Plural-Forms", ""))
    changed_at = utc_date(catalogue.metadata.get("PO-Revision-Date"))
    for entry in catalogue:
        if entry.obsolete:
            sieve.drops.add("obsolete")
            continue
        for unit_id, source, target in _forms(entry, plurals):
            if entry.fuzzy and target.strip():
                sieve.drops.add("unconfirmed")
                continue
            pair = sieve.pair(source, target, unit_id=unit_id, origin=origin, changed_at=changed_at)
            if pair is not None:
                yield pair


def _read_text(path: str | Path) -> str:
    name = display_name(path)
    with open_bytes(path) as stream:
        data = stream.read()
    if not data.strip():
        raise CorpusError(f"{name} is empty.")
    refuse_foreign_encoding(data, name)
    match = _CHARSET.search(data)
    charset = match[1].decode("ascii") if match else "utf-8"
    if charset.lower() in ("charset", "utf-8", "utf8"):  # CHARSET is the placeholder of msginit
        charset = "utf-8-sig"
    try:
        return data.decode(charset)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        encoding = charset.removesuffix("-sig")
        raise CorpusError(f"{name}, line {line} is not {encoding}: byte 0x{data[error.start]:02x}.") from error
    except LookupError as error:
        raise CorpusError(f"{name} states the unknown encoding {charset}.") from error


def _parse(text: str, name: str) -> polib.POFile:
    text = _FALSE_LINE_ENDS.sub(" ", text)
    _refuse_open_strings(text, name)
    try:
        # The line end in front prevents polib from reading the text as a file name.
        return polib.pofile("\n" + text)
    except OSError as error:
        match = _POLIB_LINE.search(str(error))
        where = f", line {int(match[1]) - 1}" if match else ""
        reason = f": {match[2]}" if match and match[2] else ""
        raise CorpusError(f"{name}{where} is not PO syntax{reason}.") from error


def _refuse_open_strings(text: str, name: str) -> None:
    """Raise for an unclosed string: polib drops the last character of a string as its quote, so text would be lost."""
    for number, line in enumerate(text.splitlines(), start=1):
        line = line.strip()
        if line.startswith(("msg", '"')) and not _WHOLE_STRING.fullmatch(line):
            raise CorpusError(f"{name}, line {number} is not PO syntax: a string is not closed or not quoted.")


def _check_language(stated: str | None, wanted: str | None, name: str) -> None:
    if stated and wanted and match_rank(wanted, stated) is None:
        raise CorpusError(f"{name} is a translation into {stated}, but {wanted} was requested.")


def _forms(entry: polib.POEntry, plurals: PluralForms) -> Iterator[tuple[str, str, str]]:
    """Unit id, source and target of an entry, or of each of its plural forms."""
    unit_id = _unit_id(entry.msgctxt, entry.msgid)
    if not entry.msgid_plural:
        yield unit_id, entry.msgid, entry.msgstr
        return
    for number, target in sorted((entry.msgstr_plural or {0: ""}).items()):
        yield f"{unit_id}[{number}]", entry.msgid if plurals.is_singular(number) else entry.msgid_plural, target


def _unit_id(context: str | None, msgid: str) -> str:
    """`context|msgid` or `msgid`, escaped so that it is unique and on one line; a long one is cut and hashed."""
    parts = [msgid] if context is None else [context, msgid]
    full: str = "|".join(polib.escape(part).replace("|", r"\|") for part in parts)
    if len(full) <= _MAX_ID_CHARS:
        return full
    digest = hashlib.sha256(full.encode()).hexdigest()[:16]
    return f"{full[:_MAX_ID_CHARS]}…{digest}"
