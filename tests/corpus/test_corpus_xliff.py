"""XLIFF 1.2, its dialects, and XLIFF 2."""

from pathlib import Path

import pytest
from test_corpus_reading import read_all, texts, write

from nearmt.corpus.xml import open_xml
from nearmt.errors import CorpusError

NAMESPACE_1 = 'xmlns="urn:oasis:names:tc:xliff:document:1.2"'
NAMESPACE_2 = 'xmlns="urn:oasis:names:tc:xliff:document:2.0"'


def xliff_1(*units: str, attributes: str = 'original="a.html" source-language="de" target-language="en"') -> str:
    body = "\n".join(units)
    return (
        f'<?xml version="1.0"?>\n<xliff version="1.2" {NAMESPACE_1} xmlns:sdl="http://sdl.com/FileTypes/SdlXliff/1.0" '
        f'xmlns:m="http://www.memsource.com/mxlf/2.0">\n<file {attributes}><header><skl/></header>'
        f"<body>{body}</body></file></xliff>"
    )


def unit_1(number: int, source: str, target: str, *, unit: str = "", state: str = "", more: str = "") -> str:
    return (
        f'<trans-unit id="u{number}" {unit}><source>{source}</source><target {state}>{target}</target>'
        f"{more}</trans-unit>"
    )


def xliff_2(*units: str, root: str = 'srcLang="de" trgLang="en"', file: str = 'id="f1" original="a.md"') -> str:
    return f'<xliff version="2.1" {NAMESPACE_2} {root}><file {file}>' + "".join(units) + "</file></xliff>"


def segment_2(source: str, target: str | None, attributes: str = "") -> str:
    translated = "" if target is None else f"<target>{target}</target>"
    return f"<segment {attributes}><source>{source}</source>{translated}</segment>"


def test_units_carry_file_and_id(tmp_path: Path) -> None:
    content = xliff_1(
        unit_1(1, "Ein <g id='1'>Hund</g>", "A <g id='1'>dog</g>"),
        "<group><group>" + unit_1(2, "Zeile<x id='1'/>zwei", "line<x id='1'/>two") + "</group></group>",
        "<trans-unit><source>Katze</source><target>cat</target></trans-unit>",
        attributes='original="a.html" source-language="de-DE" date="2024-05-01T14:00:00+02:00"',
    )
    pairs, drops = read_all(write(tmp_path / "m.xlf", content))
    assert texts(pairs) == [("Ein Hund", "A dog"), ("Zeile zwei", "line two"), ("Katze", "cat")]
    assert [pair.unit_id for pair in pairs] == ["a.html#u1", "a.html#u2", "a.html#3"]
    assert {pair.origin for pair in pairs} == {"a.html"}
    assert {pair.changed_at for pair in pairs} == {"2024-05-01T12:00:00Z"}
    assert drops == {}


@pytest.mark.parametrize(
    ("unit", "state", "reason"),
    [
        ("", "", None),
        ("", 'state="translated"', None),
        ("", 'state="signed-off"', None),
        ("", 'state="final"', None),
        ('approved="yes"', "", None),
        ('m:confirmed="1"', "", None),
        ('approved="no"', "", "unconfirmed"),
        ('approved="no"', 'state="final"', "unconfirmed"),
        ('m:confirmed="0"', "", "unconfirmed"),
        ("", 'state="new"', "unconfirmed"),
        ("", 'state="needs-translation"', "unconfirmed"),
        ("", 'state-qualifier="mt-suggestion"', "unconfirmed"),
        ("", 'state="translated" state-qualifier="fuzzy-match"', "unconfirmed"),
        ("", 'state="final" state-qualifier="leveraged-mt"', None),
        ('approved="yes"', 'state-qualifier="mt-suggestion"', None),
        ("", 'state="needs-review-l10n"', "unconfirmed"),
        ('translate="no"', 'state="final"', "not translatable"),
    ],
)
def test_only_confirmed_units_pass(tmp_path: Path, unit: str, state: str, reason: str | None) -> None:
    content = xliff_1(unit_1(1, "Hund", "dog", unit=unit, state=state))
    pairs, drops = read_all(write(tmp_path / "m.xlf", content))
    assert len(pairs) == (reason is None)
    assert drops == ({} if reason is None else {reason: 1})


def test_untranslatable_group_covers_its_units(tmp_path: Path) -> None:
    inner = unit_1(1, "Hund", "dog") + unit_1(2, "Katze", "cat", unit='translate="yes"')
    pairs, drops = read_all(write(tmp_path / "m.xlf", xliff_1(f'<group translate="no">{inner}</group>')))
    assert texts(pairs) == [("Katze", "cat")]
    assert drops == {"not translatable": 1}


def test_suggestions_are_not_translations(tmp_path: Path) -> None:
    suggestion = "<alt-trans><source>Hund</source><target>wolf</target></alt-trans>"
    content = xliff_1(
        unit_1(1, "Hund", "dog", more=suggestion),
        f'<trans-unit id="u2"><source>Hund</source>{suggestion}</trans-unit>',
        unit_1(3, "Hund", "", state='state="needs-translation"'),
    )
    pairs, drops = read_all(write(tmp_path / "m.xlf", content))
    assert texts(pairs) == [("Hund", "dog")]
    assert drops == {"empty": 2}


def segmented(sources: dict[str, str], targets: dict[str, str], levels: dict[str, str] | None = None) -> str:
    def marks(segments: dict[str, str]) -> str:
        return " ".join(f'<mrk mtype="seg" mid="{mid}">{text}</mrk>' for mid, text in segments.items())

    definitions = ""
    if levels is not None:
        segs = "".join(f'<sdl:seg id="{mid}" {conf}/>' for mid, conf in levels.items())
        definitions = f"<sdl:seg-defs>{segs}</sdl:seg-defs>"
    return (
        f'<trans-unit id="u1"><source>{" ".join(sources.values())}</source>'
        f"<seg-source><g id='1'>{marks(sources)}</g></seg-source>"
        f"<target><g id='1'>{marks(targets)}</g></target>{definitions}</trans-unit>"
    )


def test_segments_are_paired_by_mid(tmp_path: Path) -> None:
    unit = segmented({"1": "Hund.", "2": "Katze."}, {"2": "Cat.", "1": "Dog."})
    pairs, _ = read_all(write(tmp_path / "m.xlf", xliff_1(unit)))
    assert texts(pairs) == [("Hund.", "Dog."), ("Katze.", "Cat.")]
    assert [pair.unit_id for pair in pairs] == ["a.html#u1/1", "a.html#u1/2"]


@pytest.mark.parametrize("targets", [{"1": "Dog. Cat."}, {"1": "Dog.", "3": "Cat."}])
def test_other_segmentation_makes_one_pair_of_the_unit(tmp_path: Path, targets: dict[str, str]) -> None:
    unit = segmented({"1": "Hund.", "2": "Katze."}, targets)
    pairs, _ = read_all(write(tmp_path / "m.xlf", xliff_1(unit)))
    assert texts(pairs) == [("Hund. Katze.", "Dog. Cat.")]
    assert pairs[0].unit_id == "a.html#u1"


def test_trados_confirmation_is_per_segment(tmp_path: Path) -> None:
    levels = {
        "1": 'conf="Draft"',
        "2": 'conf="Translated"',
        "3": 'conf="ApprovedTranslation"',
        "4": 'conf="ApprovedSignOff"',
        "5": 'conf="RejectedTranslation"',
        "6": 'conf="RejectedSignOff"',
        "7": 'conf="Unspecified"',
        "8": "",
    }
    unit = segmented({mid: f"Satz {mid}" for mid in levels}, {mid: f"sentence {mid}" for mid in levels}, levels)
    pairs, drops = read_all(write(tmp_path / "a.docx.sdlxliff", xliff_1(unit)))
    assert [pair.source for pair in pairs] == ["Satz 2", "Satz 3", "Satz 4"]
    assert drops == {"unconfirmed": 5}


def test_one_draft_segment_makes_the_whole_unit_unconfirmed(tmp_path: Path) -> None:
    unit = segmented({"1": "Hund.", "2": "Katze."}, {"1": "Dog. Cat."}, {"1": 'conf="Translated"', "2": 'conf="Draft"'})
    assert read_all(write(tmp_path / "m.sdlxliff", xliff_1(unit))) == ([], {"unconfirmed": 1})


def test_segments_of_xliff_2(tmp_path: Path) -> None:
    content = xliff_2(
        '<unit id="u1"><originalData><data id="d">&lt;b></data></originalData>'
        + segment_2('Ein <pc id="1">Hund</pc>.', 'A <pc id="1">dog</pc>.', 'id="s1" state="final"')
        + "<ignorable><source> </source></ignorable>"
        + segment_2("Eine Katze.", "A cat.", 'state="translated"')
        + "</unit>",
        '<group id="g"><unit id="u2">' + segment_2("Maus", "mouse") + "</unit></group>",
        '<unit id="u3">' + segment_2("Igel", "hedgehog", 'state="initial"') + "</unit>",
        '<unit id="u4">' + segment_2("Igel", None) + "</unit>",
        '<unit id="u5" translate="no">' + segment_2("Igel", "hedgehog", 'state="final"') + "</unit>",
    )
    pairs, drops = read_all(write(tmp_path / "m.xlf", content))
    assert [(pair.unit_id, pair.source, pair.target) for pair in pairs] == [
        ("a.md#u1/s1", "Ein Hund.", "A dog."),
        ("a.md#u1/2", "Eine Katze.", "A cat."),
        ("a.md#u2", "Maus", "mouse"),
    ]
    assert {(pair.origin, pair.changed_at) for pair in pairs} == {("a.md", None)}
    assert drops == {"empty": 1, "not translatable": 1, "unconfirmed": 1}


def test_matches_of_xliff_2_are_not_translations(tmp_path: Path) -> None:
    matches = (
        '<mtc:matches xmlns:mtc="urn:oasis:names:tc:xliff:matches:2.0"><mtc:match ref="#1">'
        "<source>Hund</source><target>wolf</target></mtc:match></mtc:matches>"
    )
    content = xliff_2(f'<unit id="u1">{matches}{segment_2("Hund", "dog")}</unit>', file='id="f1"')
    pairs, _ = read_all(write(tmp_path / "m.xlf", content))
    assert [(pair.target, pair.unit_id, pair.origin) for pair in pairs] == [("dog", "f1#u1", "m.xlf")]


@pytest.mark.parametrize(
    ("languages", "message"),
    [
        (("en", "de"), "from en to de, but de to en was requested: the languages are swapped"),
        (("de", "fr"), "from de to fr, but de to en was requested"),
        (("fr", "en"), "from fr to en, but de to en was requested"),
    ],
)
def test_other_languages_are_refused(tmp_path: Path, languages: tuple[str, str], message: str) -> None:
    source, target = languages
    attributes = f'original="b.html" source-language="{source}" target-language="{target}"'
    second = f"<file {attributes}><body>{unit_1(2, 'Hund', 'dog')}</body></file></xliff>"
    one = xliff_1(unit_1(1, "Hund", "dog")).replace("</xliff>", second)
    two = xliff_2(root=f'srcLang="{source}" trgLang="{target}"')
    for content in (one, two):
        path = write(tmp_path / "m.xlf", content)
        with pytest.raises(CorpusError, match=message):
            read_all(path)
        read_all(path, source=None, target=None)
    with pytest.raises(CorpusError, match=r"m\.xlf, line 4: <file b\.html>"):
        read_all(write(tmp_path / "m.xlf", one.replace('<file original="b', '\n<file original="b')))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('<xliff version="3.0"/>', "is XLIFF 3.0; versions 1.2, 2.0 and 2.1 can be read"),
        ('<tmx version="1.4"/>', "is not XLIFF: its root element is <tmx>"),
        (xliff_1(unit_1(1, "Hund", "dog"))[:-30], "not well-formed XML"),
    ],
)
def test_bad_xliff_is_refused(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        read_all(write(tmp_path / "m.xlf", content))


@pytest.mark.parametrize("namespace", [NAMESPACE_1, ""])
def test_version_and_namespace_may_be_missing(tmp_path: Path, namespace: str) -> None:
    content = xliff_1(unit_1(1, "Hund", "dog")).replace('version="1.2"', "").replace(NAMESPACE_1, namespace)
    assert texts(read_all(write(tmp_path / "m.xlf", content))[0]) == [("Hund", "dog")]


def test_read_units_leave_the_tree(tmp_path: Path) -> None:
    # One group around each unit, as memoQ and Trados write it, must not leave an empty element per group.
    groups = [f"<group>{unit_1(number, 'Hund', 'dog')}</group>" for number in range(5000)]
    path = write(tmp_path / "m.xlf", xliff_1(*groups))
    sizes = []
    with open_xml(path, "xliff") as reader:
        for number, (_, element) in enumerate(reader.elements(("end",), ("trans-unit", "group", "header", "file"))):
            if number % 500 == 0:
                sizes.append(sum(1 for _ in element.getroottree().iter()))
    # What was parsed ahead in one chunk of 64 KiB is still there; 5000 groups of 4 elements are not.
    assert len(sizes) > 15
    assert max(sizes) < 4000
