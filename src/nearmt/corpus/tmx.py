"""Reads the translation units of TMX 1.4 and older, for any two languages of the file.

The user says which language is the source; the order of the variants and the header's srclang do not matter.
"""

import itertools
from collections.abc import Iterator
from pathlib import Path

from lxml import etree

from nearmt.corpus.confirmation import trados_status
from nearmt.corpus.languages import LanguagePair, PairFinder, list_languages
from nearmt.corpus.pairs import PairSieve, SentencePair, utc_date
from nearmt.corpus.streams import origin_name
from nearmt.corpus.xml import XmlReader, children, open_xml, visible_text
from nearmt.errors import CorpusError

_XML_LANG = "{http://www.w3.org/XML/1998/namespace}lang"
_UNITS_SEARCHED_FOR_LANGUAGES = 1000
# The most specific origin first. creationtool is not one: it names a program.
_ORIGIN_PROPS = ("project", "document", "file", "origin")


def read_tmx(path: str | Path, languages: LanguagePair, sieve: PairSieve) -> Iterator[SentencePair]:
    with open_xml(path, "tmx") as reader:
        if not languages.source or not languages.target:
            raise _missing_languages(reader)
        finder = PairFinder(reader.name, languages.source, languages.target)
        file_origin = origin_name(path)
        for _, unit in reader.elements(("end",), ("tu",)):
            variants = children(unit, "tuv")
            found = finder.find([_language(variant) for variant in variants])
            if found is None:
                sieve.drops.add("missing language")
                continue
            pair = _pair(unit, variants[found[0]], variants[found[1]], reader.name, file_origin, sieve)
            if pair is not None:
                yield pair
        finder.finish()


def _pair(
    unit: etree._Element,
    source: etree._Element,
    target: etree._Element,
    name: str,
    file_origin: str,
    sieve: PairSieve,
) -> SentencePair | None:
    props = _props(unit, target)
    # Trados exports a level for the unit; nearmt marks the target that it filled in. One draft is enough.
    if any(trados_status(level).is_unconfirmed for level in props.get("confirmationlevel", ())):
        sieve.drops.add("unconfirmed")
        return None
    return sieve.pair(
        _segment(source, name),
        _segment(target, name),
        unit_id=unit.get("tuid") or None,
        origin=next((props[key][0] for key in _ORIGIN_PROPS if key in props), file_origin),
        changed_at=_latest(unit, target, "changedate") or _latest(unit, target, "creationdate"),
    )


def _language(variant: etree._Element) -> str:
    return variant.get(_XML_LANG) or variant.get("lang") or ""  # TMX before 1.4 has lang


def _segment(variant: etree._Element, name: str) -> str:
    segments = children(variant, "seg")
    return visible_text(segments[0], name) if segments else ""


def _props(*elements: etree._Element) -> dict[str, list[str]]:
    """The non-empty <prop>s by their bare type: x-Project:SingleString of Trados and project of memoQ are `project`."""
    props: dict[str, list[str]] = {}
    for element in elements:
        for prop in children(element, "prop"):
            value = (prop.text or "").strip()
            if not value or prop.get("type") == "x-Origin":  # in Trados the kind of a unit: TM, Alignment …
                continue
            kind = (prop.get("type") or "").lower().partition(":")[0].removeprefix("x-")
            props.setdefault(kind, []).append(value)
    return props


def _latest(unit: etree._Element, target: etree._Element, key: str) -> str | None:
    """The later date of unit and target. Tools sometimes write impossible dates, which are ignored."""
    dates = [date for date in (utc_date(unit.get(key)), utc_date(target.get(key))) if date is not None]
    return max(dates, default=None)


def _missing_languages(reader: XmlReader) -> CorpusError:
    seen: dict[str, None] = {}
    for _, unit in itertools.islice(reader.elements(("end",), ("tu",)), _UNITS_SEARCHED_FOR_LANGUAGES):
        seen.update(dict.fromkeys(_language(variant) for variant in children(unit, "tuv")))
    return CorpusError(f"{reader.name} needs `source_lang` and `target_lang`: {list_languages(seen)}.")
