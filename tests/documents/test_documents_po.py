"""PO files: untranslated entries are filled and flagged fuzzy."""

import shutil
import subprocess

import polib
import pytest
from document_samples import PO, Filler

from nearmt.errors import NearMTError


@pytest.fixture
def fill(tmp_path):
    return Filler(tmp_path)


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


def test_plural_rule_that_divides_by_zero_is_ignored(fill):
    header = 'msgid ""\nmsgstr "Plural-Forms: nplurals=2; plural=n%0;\\n"\n\n'
    out, _ = fill("a.po", header + 'msgid "Buch"\nmsgid_plural "Bücher"\nmsgstr[0] ""\nmsgstr[1] ""\n')
    assert polib.pofile(out.decode())[0].msgstr_plural == {0: "BUCH", 1: "BÜCHER"}
