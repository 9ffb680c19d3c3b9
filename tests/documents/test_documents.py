"""Untranslated units are filled and marked for review; every other byte stays the same."""

import shutil
import subprocess

import polib
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearmt.corpus import DropCounts, read_pairs
from nearmt.corpus.languages import LanguagePair
from nearmt.documents import Summary, document_format, translate_document
from nearmt.documents.elements import with_attributes
from nearmt.errors import NearMTError
from properties import examples

DE_EN = LanguagePair("de", "en")


def shout(texts):
    return [text.upper() for text in texts]


@pytest.fixture
def fill(tmp_path):
    """Fill a file of the given name and content; its new bytes and the summary."""

    def run(name, content, translate=shout, languages=DE_EN):
        path, out = tmp_path / name, tmp_path / f"out-{name}"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        out.unlink(missing_ok=True)
        summary = translate_document(path, out, translate, languages)
        assert not list(tmp_path.glob(".*"))  # nothing is left beside it
        return out.read_bytes(), summary

    return run


XLIFF_1 = """<?xml version='1.0'  encoding="UTF-8"?>\r
<!-- Grüße -->\r
<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">\r
 <file original='a.html' source-language="de" target-language="en-US" datatype="html"><body>\r
  <trans-unit  id="1" resname='x &amp; y'>\r
   <source>Die &quot;Datei&quot; &#252;ber <g id="1">%s</g>&#160;l&#xF6;schen.</source>\r
   <note>Nicht <b>anfassen</b></note>\r
  </trans-unit>\r
  <trans-unit id="2"><source>Fertig</source><target state="translated">Done</target></trans-unit>\r
  <trans-unit id="2b"><source>Still</source><target state="final"></target></trans-unit>\r
  <trans-unit id="3" approved="yes"><source>Gut</source><target/></trans-unit>\r
  <trans-unit id="4" translate="no"><source>Fest</source></trans-unit>\r
  <group translate="no"><trans-unit id="4b"><source>Fest</source></trans-unit>\r
   <trans-unit id="4c" translate="yes"><source>Lose</source></trans-unit></group>\r
  <trans-unit id="5"><source>Leer</source><target xml:lang="en" state='new' /><alt-trans><target>Alt</target></alt-trans></trans-unit>\r
  <trans-unit id="6"><source>Kopie</source><target state="needs-translation">Kopie</target></trans-unit>\r
  <trans-unit id="7"><source>OK</source><target>OK</target></trans-unit>\r
  <trans-unit id="8"><source> </source></trans-unit>\r
  <trans-unit id="9"><source><![CDATA[Wert <b>fett</b> & mehr]]></source></trans-unit>\r
 </body></file>\r
 <file original="b" source-language="de-DE"><body>
  <trans-unit id="1"><source>Bild <ph id="2">&lt;img alt="<sub>Ein Hund</sub>"/&gt;</ph> hier</source></trans-unit>
 </body></file>
</xliff>"""  # noqa: E501
REVIEW = 'state="needs-review-translation" state-qualifier="leveraged-mt"'


def test_xliff_1_is_filled_and_otherwise_the_same_bytes(fill):
    out, summary = fill("a.xlf", XLIFF_1)
    expected = XLIFF_1
    for old, new in [
        (
            "l&#xF6;schen.</source>\r\n",
            f'l&#xF6;schen.</source>\r\n   <target {REVIEW}>DIE "DATEI" ÜBER '
            '<g id="1">%s</g>&#160;LÖSCHEN.</target>\r\n',
        ),
        ("<source>Lose</source>", f"<source>Lose</source><target {REVIEW}>LOSE</target>"),
        (
            """<target xml:lang="en" state='new' />""",
            """<target xml:lang="en" state="needs-review-translation" state-qualifier="leveraged-mt">LEER</target>""",
        ),
        ('<target state="needs-translation">Kopie</target>', f"<target {REVIEW}>KOPIE</target>"),
        ("mehr]]></source>", f"mehr]]></source><target {REVIEW}><![CDATA[WERT <b>FETT</b> & MEHR]]></target>"),
        (
            "</ph> hier</source>",
            f'</ph> hier</source><target {REVIEW}>BILD <ph id="2">&lt;img alt="<sub>EIN HUND</sub>"'
            "/&gt;</ph> HIER</target>",
        ),
    ]:
        assert expected.count(old) == 1
        expected = expected.replace(old, new)
    assert out.decode() == expected
    assert summary == Summary(
        6, {"translated": 2, "confirmed": 2, "not translatable": 2, "empty": 1}, summary.piecewise, 0
    )


def test_filled_units_are_not_built_from(fill, tmp_path):
    for name, content in (("a.xlf", XLIFF_1), ("b.xlf", XLIFF_2), ("c.tmx", TMX)):
        out, _ = fill(name, content)
        (tmp_path / name).write_bytes(out)
        drops = DropCounts()
        pairs = list(read_pairs([tmp_path / name], source_lang="de", target_lang="en", drops=drops))
        assert not any(pair.target.isupper() and pair.target != "OK" for pair in pairs)
        for path in tmp_path.iterdir():
            path.unlink()


XLIFF_2 = """\ufeff<?xml version="1.0"?>
<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.1" srcLang="de">
  <file id="f"><unit id="1">
      <originalData><data id="d">&lt;br/&gt;</data></originalData>
      <segment id="s1">
        <source>Ein <pc id="1">neues</pc> Wort<ph id="2" dataRef="d"/></source>
      </segment>
      <ignorable><source> </source></ignorable>
      <segment state="final"><source>Fertig</source><target>Done</target></segment>
      <segment state="initial"><source>Kopie</source><target>Kopie</target></segment>
      <segment><source>Da</source><target>There</target></segment>
    </unit>
    <unit id="2" translate="no"><segment><source>Fest</source></segment></unit>
    <unit id="3"><segment><source><mrk id="m" translate="no">Fest</mrk> und <sc id="1"/>lose<ec startRef="1"/>.</source></segment></unit>
  </file>
</xliff>
"""  # noqa: E501


def test_xliff_2_keeps_filled_segments_open_for_review(fill):
    out, summary = fill("a.xliff", XLIFF_2)
    expected = XLIFF_2
    for old, new in [
        ('srcLang="de">', 'srcLang="de" trgLang="en">'),
        ('<segment id="s1">', '<segment id="s1" state="initial" subState="nearmt:mt">'),
        (
            'dataRef="d"/></source>\n',
            'dataRef="d"/></source>\n        <target>EIN <pc id="1">NEUES</pc> WORT<ph id="2" dataRef="d"/></target>\n',
        ),
        (
            '<segment state="initial"><source>Kopie</source><target>Kopie',
            '<segment state="initial" subState="nearmt:mt"><source>Kopie</source><target>KOPIE',
        ),
        ('<unit id="3"><segment>', '<unit id="3"><segment state="initial" subState="nearmt:mt">'),
        (
            'startRef="1"/>.</source>',
            'startRef="1"/>.</source><target><mrk id="m" translate="no">Fest</mrk> UND '
            '<sc id="1"/>LOSE<ec startRef="1"/>.</target>',
        ),
    ]:
        assert expected.count(old) == 1
        expected = expected.replace(old, new)
    assert out.decode() == expected
    assert (summary.filled, summary.left) == (3, {"confirmed": 1, "translated": 1, "not translatable": 1})


def test_trados_segments_are_filled_one_by_one_as_drafts(fill):
    unit = (
        '<xliff version="1.2" xmlns:sdl="http://sdl.com/x"><file original="a" source-language="de-DE">'
        '<body><trans-unit id="u"><source>Eins. Zwei. Drei.</source><seg-source><mrk mtype="seg" mid="1">Eins.</mrk> '
        '<mrk mtype="seg" mid="2">Zwei.</mrk> <mrk mtype="seg" mid="3">Drei.</mrk></seg-source>{target}'
        '<sdl:seg-defs><sdl:seg id="1" conf="Translated" /><sdl:seg id="2" /><sdl:seg id="3" locked="true"/>'
        "</sdl:seg-defs></trans-unit></body></file></xliff>"
    )
    present = unit.format(
        target='<target><mrk mtype="seg" mid="1">One.</mrk> <mrk mtype="seg" mid="2"/> '
        '<mrk mtype="seg" mid="3"></mrk></target>'
    )
    out, summary = fill("a.sdlxliff", present)
    expected = present.replace('<mrk mtype="seg" mid="2"/>', '<mrk mtype="seg" mid="2">ZWEI.</mrk>')
    expected = expected.replace(
        '<sdl:seg id="2" />', '<sdl:seg id="2" conf="Draft" origin="mt" origin-system="nearmt" />'
    )
    assert out.decode() == expected
    assert (summary.filled, summary.left) == (1, {"confirmed": 1, "not translatable": 1})
    out, _ = fill("b.sdlxliff", unit.format(target=""))
    assert '<mrk mtype="seg" mid="1">EINS.</mrk> <mrk mtype="seg" mid="2">ZWEI.</mrk> <mrk' in out.decode()
    assert out.count(b'conf="Draft"') == 3


def test_phrase_and_memoq_have_marks_of_their_own(fill):
    text = (
        '<xliff version="1.2" xmlns:m="M" xmlns:mq="Q"><file original="a" source-language="de"><body>'
        '<trans-unit id="1" m:confirmed="0" m:trans-origin="null" m:locked="false"><source>Eins</source>'
        '<target></target></trans-unit><trans-unit id="2" m:confirmed="0" m:locked="true"><source>Zwei</source>'
        "</trans-unit>"
        '<trans-unit id="3" mq:status="NotStarted"><source>Drei</source></trans-unit></body></file></xliff>'
    )
    out, summary = fill("a.mqxliff", text)
    assert b'm:trans-origin="mt"' in out
    assert b'mq:status="MachineTranslated"' in out
    assert (summary.filled, summary.left) == (2, {"not translatable": 1})


PO = r"""# Übersetzung
msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\n"
"Language: en\n"
"Plural-Forms: nplurals=2; plural=(n != 1);\n"

#. Hinweis
#: a.c:1
msgid "&Datei \"%s\" öffnen"
msgstr ""

#: a.c:2
#, c-format
msgctxt "Menü"
msgid ""
"Erste Zeile.\n"
"Zweite %d Zeile.\n"
msgstr ""
msgid "Fertig"
msgstr "Done"

#, fuzzy
#| msgid "Alt"
msgid "Neu"
msgstr "Old"

#| msgid "Alt"
msgid "%d Tabelle"
msgid_plural "%d Tabellen"
msgstr[0] ""
msgstr[1] ""

#~ msgid "Weg"
#~ msgstr ""
"""


def test_po_is_filled_flagged_and_otherwise_the_same_bytes(fill):
    out, summary = fill("a.po", PO)
    expected = PO
    for old, new in [
        (
            'msgid "&Datei \\"%s\\" öffnen"\nmsgstr ""',
            '#, fuzzy\nmsgid "&Datei \\"%s\\" öffnen"\nmsgstr "&DATEI \\"%s\\" ÖFFNEN"',
        ),
        ("#, c-format", "#, fuzzy, c-format"),
        ('Zeile.\\n"\nmsgstr ""', 'Zeile.\\n"\nmsgstr ""\n"ERSTE ZEILE.\\n"\n"ZWEITE %d ZEILE.\\n"'),
        ('#| msgid "Alt"\nmsgid "%d', '#, fuzzy\n#| msgid "Alt"\nmsgid "%d'),
        ('msgstr[0] ""', 'msgstr[0] "%d TABELLE"'),
        ('msgstr[1] ""', 'msgstr[1] "%d TABELLEN"'),
    ]:
        assert expected.count(old) == 1
        expected = expected.replace(old, new)
    assert out.decode() == expected
    assert (summary.filled, summary.left) == (3, {"translated": 1, "awaiting review": 1})
    assert [entry.fuzzy for entry in polib.pofile(out.decode())] == [True, True, False, True, True, False]


@pytest.mark.parametrize(
    ("plural_forms", "expected"),
    [
        ("nplurals=1; plural=0;", ["BÜCHER"]),
        ("nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : n%10>=2 ? 1 : 2);", ["BUCH", "BÜCHER", "BÜCHER"]),
        ("nplurals=3; plural=(n==0 ? 0 : n==1 ? 1 : 2);", ["BÜCHER", "BUCH", "BÜCHER"]),
    ],
)
def test_every_plural_form_of_the_target_is_filled(fill, plural_forms, expected):
    text = f'msgid ""\nmsgstr "Plural-Forms: {plural_forms}\\n"\n\nmsgid "Buch"\nmsgid_plural "Bücher"\nmsgstr[0] ""\n'
    out, _ = fill("a.po", text)
    entry = polib.pofile(out.decode())[0]
    assert [entry.msgstr_plural[number] for number in range(len(expected))] == expected


def test_po_keeps_its_encoding_and_line_ends(fill):
    text = 'msgid ""\r\nmsgstr "Content-Type: text/plain; charset=ISO-8859-1\\n"\r\n\r\nmsgid "für"\r\nmsgstr ""\r\n'
    out, _ = fill("a.po", text.encode("latin-1"))
    added = text.replace('msgid "für"\r\nmsgstr ""', '#, fuzzy\r\nmsgid "für"\r\nmsgstr "FÜR"')
    assert out == added.encode("latin-1")
    with pytest.raises(NearMTError, match="does not have 'ł'"):
        fill("a.po", text.encode("latin-1"), lambda texts: ["ł"] * len(texts))


@pytest.mark.part("gettext")
@pytest.mark.skipif(shutil.which("msgfmt") is None, reason="there is no msgfmt: install gettext")
def test_gettext_itself_accepts_the_result(fill, tmp_path):
    out, _ = fill("a.po", PO)
    (tmp_path / "out-a.po").write_bytes(out)
    command = ["msgfmt", "-c", "--check-accelerators", "--use-fuzzy", "-o", tmp_path / "a.mo", tmp_path / "out-a.po"]
    subprocess.run(command, check=True, capture_output=True)


TMX = """<?xml version="1.0" encoding="ISO-8859-1"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header srclang="*all*" adminlang="en"/><body>
  <tu tuid="1">
    <tuv xml:lang="DE-de"><seg>Größe <bpt i="1">&lt;b></bpt>neu<ept i="1">&lt;/b></ept></seg></tuv>
  </tu>
  <tu><tuv xml:lang="de"><seg>Da</seg></tuv><tuv xml:lang="EN-gb"><seg>There</seg></tuv></tu>
  <tu><tuv xml:lang="de"><seg>Leer</seg></tuv><tuv xml:lang="EN-gb"><seg></seg></tuv></tu>
  <tu><tuv xml:lang="fr"><seg>Rien</seg></tuv></tu>
</body></tmx>
"""


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


def test_plural_rule_that_divides_by_zero_is_ignored(fill):
    header = 'msgid ""\nmsgstr "Plural-Forms: nplurals=2; plural=n%0;\\n"\n\n'
    out, _ = fill("a.po", header + 'msgid "Buch"\nmsgid_plural "Bücher"\nmsgstr[0] ""\nmsgstr[1] ""\n')
    assert polib.pofile(out.decode())[0].msgstr_plural == {0: "BUCH", 1: "BÜCHER"}


def test_finished_file_is_unchanged(fill):
    for name, content in (("a.xlf", XLIFF_1), ("b.xlf", XLIFF_2), ("c.po", PO), ("d.tmx", TMX.encode("latin-1"))):
        once, _ = fill(name, content)
        twice, summary = fill(name, once)
        assert twice == once
        assert summary.filled == 0


INLINE = [
    "Wort",
    "<x id='1'/>",
    '<g id="2">fett</g>',
    "&amp;",
    "&lt;i&gt;",
    "{0}",
    " ",
    "\r\n",
    "Satz. ",
    "<!-- n -->",
    "<![CDATA[<]]>",
]


@examples(60)
@given(text=st.lists(st.sampled_from(INLINE), min_size=1, max_size=8).map("".join))
def test_only_a_target_is_added(tmp_path_factory, text):
    folder = tmp_path_factory.mktemp("units")
    head, tail = (
        '<xliff version="1.2"><file original="a" source-language="de"><body><trans-unit id="1">',
        "</trans-unit></body></file></xliff>",
    )
    content = f"{head}<source>{text}</source>{tail}"
    (folder / "a.xlf").write_bytes(content.encode())
    translate_document(folder / "a.xlf", folder / "b.xlf", shout, DE_EN)
    out = (folder / "b.xlf").read_bytes().decode()
    assert out.startswith(content.removesuffix(tail))
    assert out.endswith(tail)


BOMB = '<!DOCTYPE xliff [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>'
HOSTILE = {
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


def test_format_is_found_by_name():
    assert [document_format(name) for name in ("A.XLF", "b.po", "c.tmx", "d.txt", "-")] == [
        "xliff",
        "po",
        "tmx",
        None,
        None,
    ]


def test_attributes_are_set_in_place():
    assert with_attributes("<a b='1' c = \"2\" />", {"b": '"<', "d": "4"}) == '<a b="&quot;&lt;" c = "2" d="4" />'
