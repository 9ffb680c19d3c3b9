"""Writes sentence pairs as TMX 1.4."""

import re
from collections.abc import Iterable
from pathlib import Path

from lxml import etree

from nearmt.corpus.pairs import SentencePair
from nearmt.outputs import check_output, writing

_UNWRITABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_XML_LANG = "{http://www.w3.org/XML/1998/namespace}lang"


def write_tmx(
    path: Path,
    pairs: Iterable[SentencePair],
    source_lang: str,
    target_lang: str,
    version: str,
    *,
    overwrite: bool = False,
) -> int:
    """Write pairs with their unit ids, origins and dates; return their number. The file appears once it is complete."""
    check_output(path, overwrite=overwrite)
    count = 0
    with writing(path, overwrite=overwrite) as out, etree.xmlfile(out, encoding="utf-8") as file:
        file.write_declaration()
        with file.element("tmx", version="1.4"):
            file.write("\n")
            file.write(_header(source_lang, version))
            with file.element("body"):
                file.write("\n")
                for pair in pairs:
                    file.write(_unit(pair, source_lang, target_lang))
                    file.write("\n")
                    count += 1
    return count


def _header(source_lang: str, version: str) -> etree._Element:
    return etree.Element(
        "header",
        {
            "creationtool": "nearmt",
            "creationtoolversion": version,
            "segtype": "sentence",
            "o-tmf": "nearmt",
            "adminlang": "en",
            "srclang": source_lang,
            "datatype": "plaintext",
        },
    )


def _unit(pair: SentencePair, source_lang: str, target_lang: str) -> etree._Element:
    unit = etree.Element("tu")
    if pair.unit_id is not None:
        unit.set("tuid", _writable(pair.unit_id))
    if pair.changed_at is not None:
        unit.set("changedate", pair.changed_at.replace("-", "").replace(":", ""))
    if pair.origin is not None:
        prop = etree.SubElement(unit, "prop", {"type": "x-origin"})
        prop.text = _writable(pair.origin)
    for lang, text in ((source_lang, pair.source), (target_lang, pair.target)):
        variant = etree.SubElement(unit, "tuv", {_XML_LANG: lang})
        etree.SubElement(variant, "seg").text = _writable(text)
    return unit


def _writable(text: str) -> str:
    """The text without the characters that XML forbids."""
    return _UNWRITABLE.sub("", text)
