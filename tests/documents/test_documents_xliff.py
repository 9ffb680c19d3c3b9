"""XLIFF files: units without a target are filled and marked for review."""

import pytest
from document_samples import DE_EN, XLIFF_1, XLIFF_2, Filler, shout
from hypothesis import given
from hypothesis import strategies as st

from nearmt.documents import Summary, translate_document
from nearmt.documents.elements import with_attributes
from properties import examples

REVIEW = 'state="needs-review-translation" state-qualifier="leveraged-mt"'


@pytest.fixture
def fill(tmp_path):
    return Filler(tmp_path)


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


def test_attributes_are_set_in_place():
    assert with_attributes("<a b='1' c = \"2\" />", {"b": '"<', "d": "4"}) == '<a b="&quot;&lt;" c = "2" d="4" />'
