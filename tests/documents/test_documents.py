"""Untranslated units are filled and marked for review; every other byte stays the same."""

import pytest
from document_samples import DE_EN, PO, TMX, XLIFF_1, XLIFF_2, Filler, shout

from nearmt.corpus import DropCounts, read_pairs
from nearmt.documents import translate_document
from nearmt.errors import NearMTError


@pytest.fixture
def fill(tmp_path):
    return Filler(tmp_path)


def test_filled_units_are_not_built_from(fill, tmp_path):
    for name, content in (("a.xlf", XLIFF_1), ("b.xlf", XLIFF_2), ("c.tmx", TMX)):
        out, _ = fill(name, content)
        (tmp_path / name).write_bytes(out)
        drops = DropCounts()
        pairs = list(read_pairs([tmp_path / name], source_lang="de", target_lang="en", drops=drops))
        assert not any(pair.target.isupper() and pair.target != "OK" for pair in pairs)
        for path in tmp_path.iterdir():
            path.unlink()


def test_tmx_gets_the_missing_language_as_a_draft(fill):
    out, summary = fill("a.tmx", TMX.encode("latin-1"))
    created = 'creationtool="nearmt" creationid="nearmt"'
    draft = '<prop type="x-ConfirmationLevel">Draft</prop>'
    expected = TMX.replace(
        "</ept></seg></tuv>\n",
        f'</ept></seg></tuv>\n    <tuv xml:lang="EN-gb" {created}>{draft}<seg>GRÖSSE <bpt i="1">&lt;b></bpt>NEU'
        '<ept i="1">&lt;/b></ept></seg></tuv>\n',
    ).replace('<tuv xml:lang="EN-gb"><seg></seg>', f'<tuv xml:lang="EN-gb" {created}>{draft}<seg>LEER</seg>')
    assert out == expected.encode("latin-1")
    assert (summary.filled, summary.left) == (2, {"translated": 1, "empty": 1})
    out, _ = fill("a.tmx", TMX.encode("latin-1"), lambda texts: ["łoś"] * len(texts))
    assert b"&#322;o&#347;" in out


@pytest.mark.parametrize("target", ["", '<tuv xml:lang="en"><seg/></tuv>'])
def test_filled_tmx_unit_is_not_built_from_even_if_its_other_languages_are_confirmed(fill, tmp_path, target):
    level = '<prop type="x-ConfirmationLevel">ApprovedSignOff</prop>'
    confirmed = '<tuv xml:lang="de"><seg>Hund</seg></tuv><tuv xml:lang="fr"><seg>chien</seg></tuv>'
    other = '<tu><tuv xml:lang="de"><seg>Katze</seg></tuv><tuv xml:lang="en"><seg>cat</seg></tuv></tu>'
    out, _ = fill("a.tmx", f'<tmx version="1.4"><body><tu>{level}{confirmed}{target}</tu>{other}</body></tmx>')
    (tmp_path / "out.tmx").write_bytes(out)
    drops = DropCounts()
    pairs = list(read_pairs([tmp_path / "out.tmx"], source_lang="de", target_lang="en", drops=drops))
    assert [pair.target for pair in pairs] == ["cat"]
    assert drops.as_dict() == {"unconfirmed": 1}


def test_finished_file_is_unchanged(fill):
    for name, content in (("a.xlf", XLIFF_1), ("b.xlf", XLIFF_2), ("c.po", PO), ("d.tmx", TMX.encode("latin-1"))):
        once, _ = fill(name, content)
        twice, summary = fill(name, once)
        assert twice == once
        assert summary.filled == 0


BOMB = '<!DOCTYPE xliff [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>'
HOSTILE: dict[str, list[tuple[str | bytes, str]]] = {
    "a.xlf": [
        ("", "is empty"),
        ("<xliff", "not well-formed"),
        ("<tmx/>", "is not XLIFF"),
        ('<xliff version="3.0"/>', "XLIFF 3.0"),
        (BOMB + '<xliff version="1.2">&b;</xliff>', "declares XML entities"),
        ('<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]><xliff>&a;</xliff>', "declares XML entities"),
        ("<xliff>" + "<g>" * 300 + "</g>" * 300 + "</xliff>", "nested too deeply"),
        (b"<xliff>\xff</xliff>", "not utf-8: byte 0xff"),
        ('<?xml version="1.0" encoding="klingon"?><xliff/>', "unknown encoding klingon"),
        ('<xliff version="1.2"><file source-language="en" target-language="de"/></xliff>', "swapped"),
        (
            '<!DOCTYPE xliff SYSTEM "x.dtd"><xliff version="1.2"><file source-language="de"><trans-unit id="1">'
            "<source>&a;b</source></trans-unit></file></xliff>",
            "undefined entity",
        ),
    ],
    "a.po": [
        ('msgid "a"\n', "no msgstr"),
        ('msgid "a\nmsgstr ""\n', "line 1 is not PO syntax"),
        ("hallo", "not PO syntax"),
        ('msgid "a"\nmsgid "b"\nmsgstr ""', "more than one msgid"),
        ('msgid ""\nmsgstr "Language: fr\\n"\n', "translation into fr"),
    ],
    "a.tmx": [("<xliff/>", "is not TMX"), ('<tmx><tu><tuv xml:lang="fr"><seg>a</seg></tuv></tu></tmx>', "has no de")],
    "a.txt": [("x", "file name does not end like")],
}


@pytest.mark.parametrize(
    ("name", "content", "why"), [(name, *case) for name, cases in HOSTILE.items() for case in cases]
)
def test_bad_files_are_refused(tmp_path, name, content, why):
    path, out = tmp_path / name, tmp_path / "out"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(NearMTError, match=why):
        translate_document(path, out, shout, DE_EN)
    assert not out.exists()


def test_existing_file_is_replaced_only_on_request(tmp_path):
    path, out = tmp_path / "a.po", tmp_path / "b.po"
    path.write_text('msgid "a"\nmsgstr ""\n')
    out.write_text("old")
    with pytest.raises(NearMTError, match=r"b\.po exists$"):
        translate_document(path, out, shout, DE_EN)
    assert out.read_text() == "old"
    translate_document(path, out, shout, DE_EN, overwrite=True)
    assert 'msgstr "A"' in out.read_text()
    with pytest.raises(NearMTError, match="not a folder"):
        translate_document(path, tmp_path / "none" / "b.po", shout, DE_EN)


def test_utf_16_stays_utf_16(fill):
    text = XLIFF_1.replace('encoding="UTF-8"', 'encoding="UTF-16"')
    out, _ = fill("a.xlf", b"\xff\xfe" + text.encode("utf-16-le"))
    assert out.startswith(b"\xff\xfe<\x00?\x00")
    assert "LÖSCHEN" in out.decode("utf-16")
