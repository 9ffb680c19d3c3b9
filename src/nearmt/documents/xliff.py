"""XLIFF 1.2 (with the dialects of Trados, Phrase and memoQ) and XLIFF 2: fills units without a target.

A filled target of 1.2 has state="needs-review-translation" and state-qualifier="leveraged-mt". XLIFF 2 has no such
state; `translated` would look like a human translation, so a filled segment stays `initial`, with a sub-state.
"""

from nearmt.corpus.confirmation import (
    is_locked,
    is_untranslatable,
    trados_segment_status,
    xliff_1_status,
    xliff_2_status,
)
from nearmt.corpus.languages import LanguagePair, check_languages
from nearmt.documents.elements import Element, read_elements, with_attributes
from nearmt.documents.inline import TargetMaker, is_blank, is_same
from nearmt.documents.units import Document, Splice, Unit
from nearmt.errors import CorpusError, DocumentError

REVIEW_1 = {"state": "needs-review-translation", "state-qualifier": "leveraged-mt"}
REVIEW_2 = {"state": "initial", "subState": "nearmt:mt"}
_REVIEW_TRADOS = {"conf": "Draft", "origin": "mt", "origin-system": "nearmt"}
_UNTRANSLATED_STATES = ("new", "needs-translation")


def read_xliff(text: str, name: str, languages: LanguagePair) -> Document:
    """The units of an XLIFF document that are to be filled."""
    root = read_elements(text, name)
    if root.local != "xliff":
        raise DocumentError(f"{name} is not XLIFF: its root element is <{root.name}>.")
    version = root.get("version") or ("2.0" if root.get("srcLang") else "1.2")
    major = version.strip().partition(".")[0]
    if major not in ("1", "2"):
        raise DocumentError(f"{name} is XLIFF {version}; versions 1.2, 2.0 and 2.1 can be translated.")
    document = Document(text)
    for file in root.named("file"):
        _check_file(file, root, name, languages)
        for unit in file.descendants():
            if unit.local == "unit" and major == "2":
                _read_unit_2(document, unit)
            elif unit.local == "trans-unit" and major == "1":
                _read_unit_1(document, unit)
    if major == "2" and root.get("trgLang") is None and languages.target:
        tag = text[root.start : root.inner_start]
        document.always.append(
            Splice(root.start, root.inner_start, with_attributes(tag, {"trgLang": languages.target}))
        )
    return document


def _check_file(file: Element, root: Element, name: str, languages: LanguagePair) -> None:
    original = file.get("original") or file.get("id") or "?"
    try:
        check_languages(
            f"{name}: <file {original}>",
            languages,
            source=file.get("source-language") or root.get("srcLang"),
            target=file.get("target-language") or root.get("trgLang"),
        )
    except CorpusError as error:
        raise DocumentError(str(error)) from error


def _must_stay(unit: Element) -> bool:
    stated = (each.attributes.get("translate") for each in unit.ancestors())
    return is_untranslatable(stated) or is_locked(unit.get("locked"))


def _read_unit_1(document: Document, unit: Element) -> None:
    text, source, target = document.text, unit.child("source"), unit.child("target")
    if _must_stay(unit):
        return document.leave("not translatable")
    state = target.get("state") if target is not None else None
    if xliff_1_status(unit.get, (lambda name: None) if target is None else target.get).is_confirmed:
        return document.leave("confirmed")
    if source is None or is_blank(text, source):
        return document.leave("empty")
    segmented = unit.child("seg-source")
    sources, targets = _segments(segmented), _segments(target)
    if sources and target is not None and sources.keys() <= targets.keys():
        return _fill_segments(document, target, _definitions(unit), sources, targets)
    is_copy = target is not None and state in _UNTRANSLATED_STATES and is_same(text, source, target)
    if not (is_blank(text, target) or is_copy):
        return document.leave("translated")
    around = source if segmented is None else segmented
    made = TargetMaker(text, around, list(sources.values()) or [around])
    splices = [made.splice(target, REVIEW_1), *_dialect_marks(document, unit, set(sources))]
    document.units.append(Unit(made.gaps, splices))
    return None


def _segments(element: Element | None) -> dict[str, Element]:
    """The <mrk mtype="seg"> by mid; none if a mid is missing or repeated."""
    found: dict[str, Element] = {}
    for mark in () if element is None else element.descendants():
        if mark.local == "mrk" and mark.get("mtype") == "seg":
            mid = mark.get("mid")
            if not mid or mid in found:
                return {}
            found[mid] = mark
    return found


def _fill_segments(
    document: Document,
    whole: Element,
    definitions: dict[str, Element],
    sources: dict[str, Element],
    targets: dict[str, Element],
) -> None:
    """Fill the empty segments of a target that has a <mrk> for each segment of the source."""
    text, has_state = document.text, False
    for mid, source in sources.items():
        target = targets[mid]
        defined = definitions.get(mid)
        is_done = defined is not None and trados_segment_status(defined.get).is_confirmed
        if is_blank(text, source):
            document.leave("empty")
        elif defined is not None and is_locked(defined.get("locked")):
            document.leave("not translatable")
        elif is_done or not is_blank(text, target):
            document.leave("confirmed" if is_done else "translated")
        else:
            made = TargetMaker(text, source, [source])
            marks = [] if defined is None else [_marked(text, defined, _REVIEW_TRADOS)]
            if not definitions and not has_state:
                marks, has_state = [_marked(text, whole, REVIEW_1)], True
            document.units.append(Unit(made.gaps, [made.splice(target, {}), *marks]))


def _definitions(unit: Element) -> dict[str, Element]:
    return {each.get("id") or "": each for holder in unit.named("seg-defs") for each in holder.named("seg")}


def _marked(text: str, element: Element, review: dict[str, str]) -> Splice:
    return Splice(
        element.start, element.inner_start, with_attributes(text[element.start : element.inner_start], review)
    )


def _dialect_marks(document: Document, unit: Element, mids: set[str]) -> list[Splice]:
    """The attributes of Trados, Phrase and memoQ that mark a machine translation."""
    text = document.text
    marks = [_marked(text, each, _REVIEW_TRADOS) for mid, each in _definitions(unit).items() if mid in mids]
    own = {key: "mt" for key in unit.attributes if key.endswith(":trans-origin")}
    own |= {
        key: "MachineTranslated"
        for key, value in unit.attributes.items()
        if key.endswith(":status") and value == "NotStarted"
    }
    return [*marks, _marked(text, unit, own)] if own else marks


def _read_unit_2(document: Document, unit: Element) -> None:
    text = document.text
    for segment in unit.named("segment"):
        source, target = segment.child("source"), segment.child("target")
        state = segment.get("state")
        if _must_stay(unit):
            document.leave("not translatable")
        elif xliff_2_status(state).is_confirmed:
            document.leave("confirmed")
        elif source is None or is_blank(text, source):
            document.leave("empty")
        elif not is_blank(text, target) and not (
            target is not None and state == "initial" and is_same(text, source, target)
        ):
            document.leave("translated")
        else:
            made = TargetMaker(text, source, [source])
            splices = [_marked(text, segment, REVIEW_2), made.splice(target, {})]
            document.units.append(Unit(made.gaps, splices))
