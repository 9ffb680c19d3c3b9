"""Gettext PO: states, plurals, contexts, encodings."""

import contextlib
from pathlib import Path

import polib
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from test_corpus_reading import read_all, texts, write

from nearmt.corpus.pairs import normalise_space
from nearmt.errors import CorpusError
from properties import examples

HEADER = """msgid ""
msgstr ""
"Language: {language}\\n"
"PO-Revision-Date: {date}\\n"
"Content-Type: text/plain; charset={charset}\\n"
"Plural-Forms: nplurals=3; plural=(n>1);\\n"

"""


def header(language: str = "de", charset: str = "UTF-8", date: str = "2024-05-01 14:00+0200") -> str:
    return HEADER.format(language=language, charset=charset, date=date)


def read(path: Path, target: str | None = "de") -> tuple[list[tuple[str, str]], dict[str, int]]:
    pairs, drops = read_all(path, source="en", target=target)
    return texts(pairs), drops


def test_confirmed_entries_pass_and_others_are_counted(tmp_path: Path) -> None:
    content = header() + (
        '#: main.c:1\nmsgid "_File"\nmsgstr "_Datei"\n\n'
        'msgid ""\n"two\\n"\n"lines"\nmsgstr ""\n"zwei\\n"\n"Zeilen"\n\n'
        '#, fuzzy\n#| msgid "Old"\nmsgid "Open"\nmsgstr "Schließen"\n\n'
        'msgid "Save"\nmsgstr ""\n\n'
        'msgid "OK"\nmsgstr "OK"\n\n'
        '#~ msgid "Gone"\n#~ msgstr "Weg"\n'
    )
    path = write(tmp_path / "de.po", content)
    assert read(path) == (
        [("_File", "_Datei"), ("two lines", "zwei Zeilen")],
        {"empty": 1, "identical": 1, "obsolete": 1, "unconfirmed": 1},
    )
    pairs, _ = read_all(path, source="en", target="de")
    assert {(pair.origin, pair.changed_at) for pair in pairs} == {("de.po", "2024-05-01T12:00:00Z")}


def test_plural_forms_are_pairs_of_their_own(tmp_path: Path) -> None:
    content = header() + (
        'msgid "%d file"\nmsgid_plural "%d files"\n'
        'msgstr[0] "%d Datei"\nmsgstr[1] "%d Dateien"\nmsgstr[2] "viele %d Dateien"\n\n'
        'msgid "%d dog"\nmsgid_plural "%d dogs"\nmsgstr[0] "%d Hund"\nmsgstr[1] ""\n'
    )
    pairs, drops = read_all(write(tmp_path / "de.po", content), source="en", target="de")
    assert [(pair.unit_id, pair.source, pair.target) for pair in pairs] == [
        ("%d file[0]", "%d file", "%d Datei"),
        ("%d file[1]", "%d files", "%d Dateien"),
        ("%d file[2]", "%d files", "viele %d Dateien"),
        ("%d dog[0]", "%d dog", "%d Hund"),
    ]
    assert drops == {"empty": 1}


@pytest.mark.parametrize(
    ("plural_forms", "sources"),
    [
        ("nplurals=1; plural=0;", ["%d files"]),
        ("nplurals=3; plural=(n==0 ? 0 : n==1 ? 1 : 2);", ["%d files", "%d file", "%d files"]),
        ("nplurals=2; plural=n%0;", ["%d file", "%d files"]),
    ],
)
def test_singular_is_paired_with_the_form_of_the_header_for_one(
    tmp_path: Path, plural_forms: str, sources: list[str]
) -> None:
    forms = "".join(f'msgstr[{number}] "form {number}"\n' for number in range(len(sources)))
    content = f'msgid ""\nmsgstr "Plural-Forms: {plural_forms}\\n"\n\n'
    content += f'msgid "%d file"\nmsgid_plural "%d files"\n{forms}'
    pairs, _ = read_all(write(tmp_path / "x.po", content), source="en", target="de")
    assert [pair.source for pair in pairs] == sources


def test_unit_ids_keep_contexts_apart(tmp_path: Path) -> None:
    long = "word " * 100
    content = header() + (
        'msgid "May"\nmsgstr "Mai"\n\n'
        'msgctxt "verb"\nmsgid "May"\nmsgstr "Darf"\n\n'
        'msgctxt ""\nmsgid "May"\nmsgstr "Mai?"\n\n'
        'msgid "verb|May"\nmsgstr "Verb|Mai"\n\n'
        f'msgid "{long}1"\nmsgstr "lang 1"\n\n'
        f'msgid "{long}2"\nmsgstr "lang 2"\n'
    )
    pairs, _ = read_all(write(tmp_path / "de.po", content), source="en", target="de")
    ids = [pair.unit_id or "" for pair in pairs]
    assert ids[:4] == ["May", "verb|May", "|May", r"verb\|May"]
    assert len(set(ids)) == 6
    assert max(map(len, ids)) < 130


def test_stated_encoding_is_honoured(tmp_path: Path) -> None:
    content = header(charset="ISO-8859-1") + 'msgid "miller"\nmsgstr "Müller"\n'
    assert read(write(tmp_path / "de.po", content.encode("iso-8859-1")))[0] == [("miller", "Müller")]
    template = header(charset="CHARSET") + 'msgid "miller"\nmsgstr "Müller"\n'
    assert read(write(tmp_path / "de.po", template.encode("utf-8-sig")))[0] == [("miller", "Müller")]


def test_header_is_optional_and_its_date_too(tmp_path: Path) -> None:
    entry = 'msgid "dog"\nmsgstr "Hund"\n'
    for content in (entry, header(language="", date="YEAR-MO-DA HO:MI+ZONE") + entry):
        pairs, _ = read_all(write(tmp_path / "x.po", content), source="en", target="de")
        assert [(pair.target, pair.changed_at) for pair in pairs] == [("Hund", None)]


def test_other_language_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "x.po", header(language="pt_BR") + 'msgid "dog"\nmsgstr "cão"\n')
    with pytest.raises(CorpusError, match="is a translation into pt_BR, but de was requested"):
        read(path)
    for target in ("pt-PT", "pt", None):
        assert read(path, target)[0] == [("dog", "cão")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'msgid "dog"\nmsgstr "Hund\n', "line 2 is not PO syntax: a string is not closed"),
        (b'msgid "dog"\nmsgstr Hund\n', "line 2 is not PO syntax"),
        (b'msgid "a "dog" b"\nmsgstr "Hund"\n', "line 1 is not PO syntax"),
        (b'msgid "dog"\nmsgstr "Hund"\nhello world\n', "line 3 is not PO syntax"),
        (b'msgstr "Hund"\nmsgstr "Katze"\n', "line 1 is not PO syntax"),
        (b'msgid "miller"\nmsgstr "M\xfcller"\n', "line 2 is not utf-8: byte 0xfc"),
        (header(charset="klingon").encode(), "unknown encoding klingon"),
        ('msgid "dog"\n'.encode("utf-16"), "is UTF-16"),
        (b" \n\n", "is empty"),
    ],
)
def test_bad_po_is_one_clear_sentence(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        read(write(tmp_path / "x.po", content))


strings = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1).filter(lambda text: bool(text.strip()))
reuse_tmp_path = examples(60, suppressed=(HealthCheck.function_scoped_fixture,))


@reuse_tmp_path
@given(st.dictionaries(strings, strings, min_size=1))
def test_catalogue_reads_back_what_polib_wrote(tmp_path: Path, rows: dict[str, str]) -> None:
    catalogue = polib.POFile(wrapwidth=0)
    catalogue.metadata = {"Content-Type": "text/plain; charset=utf-8"}
    for msgid, msgstr in rows.items():
        catalogue.append(polib.POEntry(msgid=msgid, msgstr=msgstr))
    path = write(tmp_path / "x.po", str(catalogue))
    pairs, drops = read_all(path, source="en", target="de", keep_identical=True)
    assert texts(pairs) == [(normalise_space(msgid), normalise_space(msgstr)) for msgid, msgstr in rows.items()]
    assert drops == {}


@reuse_tmp_path
@given(st.binary(max_size=60), st.integers(min_value=0, max_value=200))
def test_damaged_catalogue_raises_nothing_but_corpus_errors(tmp_path: Path, noise: bytes, position: int) -> None:
    whole = (header() + 'msgctxt "c"\nmsgid "dog"\nmsgid_plural "dogs"\nmsgstr[0] "Hund"\n').encode()
    with contextlib.suppress(CorpusError):
        read(write(tmp_path / "x.po", whole[:position] + noise + whole[position:]))
