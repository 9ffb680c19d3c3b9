"""TMX: adds the target language to units that do not have it, marked as a machine translation and a draft.

TMX has no states. The new tuv has creationid and creationtool "nearmt" and, as in exports of Trados, the property
x-ConfirmationLevel with the value Draft. `nearmt build` drops such units.
"""

from nearmt.corpus.languages import LanguagePair, match_rank
from nearmt.documents.elements import Element, line_start, read_elements, with_attributes
from nearmt.documents.inline import TargetMaker, is_blank
from nearmt.documents.units import Document, Splice, Unit
from nearmt.errors import DocumentError

_CREATED = {"creationtool": "nearmt", "creationid": "nearmt"}
_DRAFT = '<prop type="x-ConfirmationLevel">Draft</prop>'


def read_tmx(text: str, name: str, languages: LanguagePair) -> Document:
    """The units of a TMX document that are to be filled."""
    root = read_elements(text, name)
    if root.local != "tmx":
        raise DocumentError(f"{name} is not TMX: its root element is <{root.name}>.")
    if not languages.source or not languages.target:
        raise DocumentError(f"{name} cannot be translated: the languages of the store are unknown.")
    document = Document(text)
    units = [unit for unit in root.descendants() if unit.local == "tu"]
    codes = dict.fromkeys(_language(variant) for unit in units for variant in unit.named("tuv"))
    if units and all(match_rank(languages.source, code) is None for code in codes):
        raise DocumentError(f"{name} has no {languages.source}: its languages are {', '.join(codes)}.")
    target_code = _best(languages.target, list(codes)) or languages.target
    for unit in units:
        _read_unit(document, unit, languages, target_code)
    return document


def _language(variant: Element) -> str:
    return variant.attributes.get("xml:lang") or variant.attributes.get("lang") or ""


def _best(wanted: str, codes: list[str]) -> str | None:
    ranked = [(rank, at, code) for at, code in enumerate(codes) if (rank := match_rank(wanted, code)) is not None]
    return min(ranked)[2] if ranked else None


def _variant(unit: Element, wanted: str, other_than: Element | None = None) -> Element | None:
    variants = [each for each in unit.named("tuv") if each is not other_than]
    best = _best(wanted, [_language(each) for each in variants])
    return next((each for each in variants if _language(each) == best), None)


def _read_unit(document: Document, unit: Element, languages: LanguagePair, target_code: str) -> None:
    text = document.text
    source = _variant(unit, languages.source or "")
    segment = source.child("seg") if source is not None else None
    if source is None or segment is None or is_blank(text, segment):
        return document.leave("empty")
    target = _variant(unit, languages.target or "", source)
    target_segment = target.child("seg") if target is not None else None
    if target_segment is not None and not is_blank(text, target_segment):
        return document.leave("translated")
    made = TargetMaker(text, segment, [segment])
    if target is not None and target_segment is not None:
        tag = with_attributes(text[target.start : target.inner_start], _CREATED)
        splices = [Splice(target.start, target.inner_start, tag), made.splice(target_segment, {}, before=_DRAFT)]
    else:
        splices = [_new_variant(text, unit, source, made, target_code)]
    document.units.append(Unit(made.gaps, splices))
    return None


def _new_variant(text: str, unit: Element, source: Element, made: TargetMaker, target_code: str) -> Splice:
    key = "xml:lang" if "xml:lang" in source.attributes else "lang"
    last, prefix = unit.named("tuv")[-1], source.prefix
    opening = line_start(text, last.start) + with_attributes(f"<{source.name}>", {key: target_code, **_CREATED})
    return Splice(
        last.end,
        last.end,
        lambda texts: f"{opening}{_DRAFT}<{prefix}seg>{made.content(texts)}</{prefix}seg></{source.name}>",
    )
