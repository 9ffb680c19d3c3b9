"""Safe XML and the visible text of segments with inline tags."""

import gzip
from pathlib import Path

import pytest
from lxml import etree
from test_corpus_reading import read_all, texts, write

from nearmt.corpus.xml import visible_text
from nearmt.errors import CorpusError

UNIT = '<tu><tuv xml:lang="de"><seg>{}</seg></tuv><tuv xml:lang="en"><seg>dog</seg></tuv></tu>'


def tmx(segment: str = "Hund", *, prolog: str = "") -> str:
    return f'{prolog}<tmx version="1.4"><header/><body>\n{UNIT.format(segment)}\n</body></tmx>'


@pytest.mark.parametrize(
    ("segment", "expected"),
    [
        # TMX
        ('Ein <bpt i="1">&lt;b></bpt>guter<ept i="1">&lt;/b></ept> Hund', "Ein guter Hund"),
        ('Zeile<ph x="1">&lt;br/></ph>zwei', "Zeile zwei"),
        ("Hund<it>&lt;i></it>, Katze<ut>{\\b</ut>.", "Hund, Katze."),
        ('Ein <hi type="x">guter</hi> Hund', "Ein guter Hund"),
        ('A <ph>&lt;img alt="<sub>Bild</sub>"></ph>B', "A B"),
        ("A <sub>Fußnote</sub> B", "A  B"),
        # XLIFF 1.2
        ('H<g id="1">2</g>O', "H2O"),
        ('Ein<x id="1"/><x id="2"/>Hund', "Ein Hund"),
        ('Ein<x id="1"/> <x id="2"/>Hund', "Ein Hund"),
        ('Ein<x id="1"/><g id="2">Hund</g>', "Ein Hund"),
        ('(<x id="1"/>)', "()"),
        ('Satz.<x id="1" ctype="lb"/>Satz', "Satz. Satz"),
        ('<bx id="1"/>Hund<ex id="1"/>', "Hund"),
        ('Ein <mrk mtype="term">Hund</mrk> bellt', "Ein Hund bellt"),
        ('Ein <mrk mtype="x-sdl-deleted">alter </mrk>Hund', "Ein Hund"),
        # XLIFF 2
        ('<pc id="1">Ein <pc id="2">guter</pc></pc> Hund', "Ein guter Hund"),
        ('Ein<sc id="1"/>Hund<ec startRef="1"/>', "Ein Hund"),
        ('A<cp hex="001F"/> B', "A B"),
        ('Do<sm id="1"/>nau<em startRef="1"/>dampf', "Donaudampf"),
        # scripts without spaces, and words with combining marks
        ('今日<x id="1"/>晴れ', "今日晴れ"),
        ("हिन्दी<x id='1'/>भाषा", "हिन्दी भाषा"),
        # nothing else is lost
        ("<b>fett</b> &amp; <![CDATA[<roh>]]> <!-- weg -->da", "fett & <roh> da"),
    ],
)
def test_only_visible_text_is_kept(segment: str, expected: str) -> None:
    parser = etree.XMLParser(remove_comments=True)
    assert visible_text(etree.fromstring(f"<seg>{segment}</seg>", parser), "test") == expected


def test_doctype_is_accepted_but_never_loaded(tmp_path: Path) -> None:
    write(tmp_path / "tmx14.dtd", "this is no DTD and would not parse")
    for system in ("tmx14.dtd", str(tmp_path / "tmx14.dtd"), "http://localhost:9/tmx14.dtd"):
        path = write(tmp_path / "m.tmx", tmx(prolog=f'<?xml version="1.0"?>\n<!DOCTYPE tmx SYSTEM "{system}">'))
        assert texts(read_all(path)[0]) == [("Hund", "dog")]


def bomb(levels: int) -> str:
    entities = '<!ENTITY e0 "lol">' + "".join(
        f'<!ENTITY e{level} "{f"&e{level - 1};" * 10}">' for level in range(1, levels)
    )
    return f"<!DOCTYPE tmx [{entities}]>"


@pytest.mark.parametrize(
    ("prolog", "segment"),
    [
        (bomb(12), "&e11;"),
        (bomb(12), "Hund"),
        ('<!DOCTYPE tmx [<!ENTITY x "Hund">]>', "&x;"),
        ('<!DOCTYPE tmx [<!ENTITY x SYSTEM "SECRET">]>', "&x;"),
        ('<!DOCTYPE tmx [<!ENTITY % p SYSTEM "SECRET"> %p;]>', "&leaked;"),
    ],
)
def test_entities_are_refused(tmp_path: Path, prolog: str, segment: str) -> None:
    secret = write(tmp_path / "secret.ent", '<!ENTITY leaked "geheim">')
    path = write(tmp_path / "m.tmx", tmx(segment, prolog=prolog.replace("SECRET", secret.as_uri())))
    with pytest.raises(CorpusError, match=r"m\.tmx (declares|has) XML entities.* refused"):
        read_all(path)


def test_entity_bomb_in_an_attribute_is_refused(tmp_path: Path) -> None:
    content = bomb(12) + '<tmx version="&e11;"><body/></tmx>'
    with pytest.raises(CorpusError, match=r"expand without bound, which is refused"):
        read_all(write(tmp_path / "m.tmx", content))


def test_entity_of_an_unloaded_dtd_is_not_lost_silently(tmp_path: Path) -> None:
    (secret := tmp_path / "tmx14.dtd").write_text('<!ENTITY leaked "geheim">')
    path = write(tmp_path / "m.tmx", tmx("Ein&leaked;Hund", prolog=f'<!DOCTYPE tmx SYSTEM "{secret}">'))
    with pytest.raises(CorpusError, match=r"line 2: the entity &leaked; is not defined"):
        read_all(path)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "iso-8859-1"])
def test_declared_and_marked_encodings_are_read(tmp_path: Path, encoding: str) -> None:
    prolog = f'<?xml version="1.0" encoding="{encoding.removesuffix("-sig")}"?>'
    path = write(tmp_path / "m.tmx", tmx("Müller", prolog=prolog).encode(encoding))
    assert texts(read_all(path)[0]) == [("Müller", "dog")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (tmx("Müller").encode("iso-8859-1"), r"line \d+: not well-formed XML \(.*(encod|UTF-8)"),
        (tmx(prolog='<?xml version="1.0" encoding="klingon"?>').encode(), "line 1: not well-formed XML"),
        (tmx().encode()[:-8], r"line 3: not well-formed XML \("),
        (tmx("<ph>").encode(), "line 2: not well-formed XML"),
        (tmx("&#x1F;").encode(), "line 2: not well-formed XML"),
        (tmx("<hi>" * 3000 + "</hi>" * 3000).encode(), "nested too deeply"),
        (tmx("x" * 11_000_000).encode(), "more than 10 MB of text"),
        (b"Hund\tdog\n", "line 1: not well-formed XML"),
        (b"<!-- nothing else -->", "is not XML or is truncated"),
        (b"\x00\x01\x02\x03", "not well-formed|not XML"),
        (b"<xliff version='1.2'/>", "is not TMX: its root element is <xliff>"),
    ],
)
def test_bad_xml_is_one_clear_sentence(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(CorpusError, match=message) as caught:
        read_all(write(tmp_path / "m.tmx", content))
    assert "\n" not in str(caught.value)


def test_document_cut_by_gzip_is_refused(tmp_path: Path) -> None:
    units = "".join(UNIT.format(f"Hund {number * 7919}") for number in range(5000))
    whole = gzip.compress(f'<tmx version="1.4"><body>{units}</body></tmx>'.encode())
    with pytest.raises(CorpusError, match="gzip data ends too early"):
        read_all(write(tmp_path / "m.tmx.gz", whole[:-100]))
