"""Reads the confirmed segments of XLIFF 1.2 (with the dialects of Trados, Phrase and memoQ) and of XLIFF 2.

Only a unit's own source and target are used: suggestions (alt-trans, matches) never become pairs. The languages that
a <file> states must be the wanted ones.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lxml import etree

from nearmt.corpus.confirmation import (
    Attributes,
    Status,
    is_untranslatable,
    trados_segment_status,
    xliff_1_status,
    xliff_2_status,
)
from nearmt.corpus.languages import LanguagePair, check_languages
from nearmt.corpus.pairs import PairSieve, SentencePair, normalise_space, utc_date
from nearmt.corpus.streams import origin_name
from nearmt.corpus.xml import XmlReader, attribute, children, local_name, open_xml, visible_text
from nearmt.errors import CorpusError

# Groups, headers and files are requested only so that they are freed: a file may have one group per unit.
_TAGS = ("file", "trans-unit", "unit", "group", "header")


@dataclass(frozen=True, slots=True)
class _File:
    """The properties a unit inherits from its <file>."""

    name: str  # for errors
    original: str  # prefix of the unit ids
    origin: str
    changed_at: str | None


@dataclass(frozen=True, slots=True)
class _Segment:
    """A source and a target that may become a pair."""

    unit_id: str
    source: str
    target: str
    is_unconfirmed: bool


def read_xliff(path: str | Path, languages: LanguagePair, sieve: PairSieve) -> Iterator[SentencePair]:
    with open_xml(path, "xliff") as reader:
        unit_tag, segments_of = ("unit", _segments_2) if _major_version(reader) == 2 else ("trans-unit", _segments_1)
        file = _File(reader.name, origin_name(path), origin_name(path), None)
        number = 0
        for event, element in reader.elements(("start", "end"), _TAGS):
            tag = local_name(element)
            if event == "start" and tag == "file":
                file = _open_file(element, reader, languages)
            elif event == "end" and tag == unit_tag:
                number += 1
                if is_untranslatable(each.get("translate") for each in (element, *element.iterancestors())):
                    sieve.drops.add("not translatable")
                    continue
                unit_id = f"{file.original}#{element.get('id') or number}"
                for segment in segments_of(element, unit_id, file.name):
                    if (pair := _pair(segment, file, sieve)) is not None:
                        yield pair


def _major_version(reader: XmlReader) -> int:
    version = reader.root.attributes.get("version") or ("2.0" if "srcLang" in reader.root.attributes else "1.2")
    major = version.strip().partition(".")[0]
    if major not in ("1", "2"):
        raise CorpusError(f"{reader.name} is XLIFF {version}; versions 1.2, 2.0 and 2.1 can be read.")
    return int(major)


def _open_file(element: etree._Element, reader: XmlReader, languages: LanguagePair) -> _File:
    name, attributes = origin_name(reader.path), reader.root.attributes
    original = element.get("original") or element.get("id") or name
    check_languages(
        f"{reader.name}, line {element.sourceline}: <file {original}>",
        languages,
        source=element.get("source-language") or attributes.get("srcLang"),
        target=element.get("target-language") or attributes.get("trgLang"),
    )
    origin = element.get("original") or name
    return _File(reader.name, original, origin, utc_date(element.get("date")))


def _pair(segment: _Segment, file: _File, sieve: PairSieve) -> SentencePair | None:
    # A missing translation is "empty" whatever its state; only an existing one can be unconfirmed.
    if segment.is_unconfirmed and normalise_space(segment.source) and normalise_space(segment.target):
        sieve.drops.add("unconfirmed")
        return None
    return sieve.pair(
        segment.source,
        segment.target,
        unit_id=segment.unit_id,
        origin=file.origin,
        changed_at=file.changed_at,
    )


def _segments_1(unit: etree._Element, unit_id: str, name: str) -> Iterator[_Segment]:
    """XLIFF 1.2: one segment per mid if both sides have the same mids, else the whole unit."""
    source = next(iter(children(unit, "source") + children(unit, "seg-source")), None)
    target = next(iter(children(unit, "target")), None)
    is_unconfirmed = xliff_1_status(_attributes(unit), _attributes(target)).is_unconfirmed
    statuses = _trados_statuses(unit)
    sources = _marked_segments(next(iter(children(unit, "seg-source")), None))
    targets = _marked_segments(target)
    if sources and sources.keys() == targets.keys():
        for mid, marked in sources.items():
            yield _Segment(
                f"{unit_id}/{mid}",
                visible_text(marked, name),
                visible_text(targets[mid], name),
                is_unconfirmed or statuses.get(mid, Status()).is_unconfirmed,
            )
        return
    yield _Segment(
        unit_id,
        "" if source is None else visible_text(source, name),
        "" if target is None else visible_text(target, name),
        is_unconfirmed or any(status.is_unconfirmed for status in statuses.values()),
    )


def _attributes(element: etree._Element | None) -> Attributes:
    return lambda name: None if element is None else attribute(element, name)


def _trados_statuses(unit: etree._Element) -> dict[str, Status]:
    """The status of each segment by its id, where Trados states one."""
    return {
        segment.get("id") or "": trados_segment_status(segment.get)
        for definitions in children(unit, "seg-defs")
        for segment in children(definitions, "seg")
    }


def _marked_segments(element: etree._Element | None) -> dict[str, etree._Element]:
    """The <mrk mtype="seg"> by mid; none if a mid is missing or repeated, because they cannot be paired then."""
    marked: dict[str, etree._Element] = {}
    for mark in () if element is None else element.iter("{*}mrk"):
        if mark.get("mtype") == "seg":
            mid = mark.get("mid")
            if not mid or mid in marked:
                return {}
            marked[mid] = mark
    return marked


def _segments_2(unit: etree._Element, unit_id: str, name: str) -> Iterator[_Segment]:
    """XLIFF 2: its <segment>s; <ignorable>s hold the white space between them."""
    segments = children(unit, "segment")
    for number, segment in enumerate(segments, start=1):
        suffix = segment.get("id") or (str(number) if len(segments) > 1 else "")
        source, target = children(segment, "source"), children(segment, "target")
        yield _Segment(
            f"{unit_id}/{suffix}" if suffix else unit_id,
            visible_text(source[0], name) if source else "",
            visible_text(target[0], name) if target else "",
            xliff_2_status(segment.get("state")).is_unconfirmed,
        )
