"""TMX: languages, ids, dates, origins, and constant memory."""

import subprocess
import sys
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from test_corpus_reading import read_all, texts, write

from nearmt.corpus.pairs import normalise_space
from nearmt.errors import CorpusError
from properties import examples


def variant(language: str, text: str, attributes: str = "") -> str:
    return f"<tuv xml:lang={quoteattr(language)} {attributes}><seg>{text}</seg></tuv>"


def unit(*variants: str, attributes: str = "", props: str = "") -> str:
    return f"<tu {attributes}>{props}{''.join(variants)}</tu>"


def tmx(*units: str) -> str:
    header = '<header creationtool="t" srclang="*all*" adminlang="en"><prop type="x">y</prop></header>'
    return f'<?xml version="1.0"?>\n<tmx version="1.4">{header}<body>\n' + "\n".join(units) + "\n</body></tmx>"


xml_text = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff"), min_size=1
).filter(lambda text: bool(text.strip()))


@examples(60, suppressed=(HealthCheck.function_scoped_fixture,))
@given(rows=st.lists(st.tuples(xml_text, xml_text)), is_reversed=st.booleans())
def test_escaped_pairs_read_back_the_same(tmp_path: Path, rows: list[tuple[str, str]], is_reversed: bool) -> None:
    units = []
    for number, (source, target) in enumerate(rows):
        variants = [variant("de-DE", escape(source)), variant("EN", escape(target))]
        units.append(unit(*(reversed(variants) if is_reversed else variants), attributes=f'tuid="u{number}"'))
    pairs, drops = read_all(write(tmp_path / "m.tmx", tmx(*units)), keep_identical=True)
    assert texts(pairs) == [(normalise_space(source), normalise_space(target)) for source, target in rows]
    assert [pair.unit_id for pair in pairs] == [f"u{number}" for number in range(len(rows))]
    assert drops == {}


def test_best_variant_of_a_language_is_taken(tmp_path: Path) -> None:
    content = tmx(
        unit(variant("de-AT", "Jänner"), variant("de-DE", "Januar"), variant("en-US", "January")),
        unit(variant("en_gb", "lift"), variant("en-US", "elevator"), variant("de", "Aufzug")),
        unit(variant("de-CH", "Velo"), variant("en", "bicycle")),
    )
    path = write(tmp_path / "m.tmx", content)
    assert texts(read_all(path, source="de-DE", target="en-GB")[0]) == [
        ("Januar", "January"),
        ("Aufzug", "lift"),
        ("Velo", "bicycle"),
    ]
    assert texts(read_all(path, source="en-US", target="de")[0])[1] == ("elevator", "Aufzug")


def test_old_lang_attribute_and_namespace_are_read(tmp_path: Path) -> None:
    content = '<tmx xmlns="http://www.lisa.org/tmx14" version="1.1"><body><tu><tuv lang="DE"><seg>Hund</seg></tuv>'
    content += '<tuv lang="EN"><seg>dog</seg></tuv></tu></body></tmx>'
    assert texts(read_all(write(tmp_path / "m.tmx", content))[0]) == [("Hund", "dog")]


def test_ids_origins_and_dates(tmp_path: Path) -> None:
    both = (variant("de", "Hund"), variant("en", "dog"))
    dated = (variant("de", "Hund"), variant("en", "dog", 'changedate="20240601T000000Z"'))
    path = write(
        tmp_path / "m.tmx",
        tmx(
            unit(*both),
            unit(*both, attributes='tuid="u9" creationdate="20200101T000000Z" changedate="20240501T120000Z"'),
            unit(*dated, attributes='changedate="20240501T120000Z"', props='<prop type="x-project">P1</prop>'),
            unit(*both, attributes='creationdate="20200101T000000Z"', props='<prop type="x-Project:Text">P2</prop>'),
            unit(*both, attributes='changedate="20249901T000000Z"', props='<prop type="file">a.html</prop>'),
        ),
    )
    assert [(pair.unit_id, pair.origin, pair.changed_at) for pair in read_all(path)[0]] == [
        (None, "m.tmx", None),
        ("u9", "m.tmx", "2024-05-01T12:00:00Z"),
        (None, "P1", "2024-06-01T00:00:00Z"),
        (None, "P2", "2020-01-01T00:00:00Z"),
        (None, "a.html", None),
    ]


def test_trados_kind_of_unit_is_not_an_origin(tmp_path: Path) -> None:
    both = (variant("de", "Hund"), variant("en", "dog"))
    props = '<prop type="x-Origin">TM</prop>', '<prop type="x-origin">client-a</prop>'
    path = write(tmp_path / "m.tmx", tmx(*(unit(*both, props=prop) for prop in props)))
    assert [pair.origin for pair in read_all(path)[0]] == ["m.tmx", "client-a"]


def test_drops_are_counted_by_reason(tmp_path: Path) -> None:
    path = write(
        tmp_path / "m.tmx",
        tmx(
            unit(variant("de", "Hund"), variant("en", "dog")),
            unit(variant("de", "Hund"), variant("fr", "chien")),
            unit(variant("de", "Hund"), variant("en", " \n ")),
            unit(variant("de", "Hund"), '<tuv xml:lang="en"/>'),
            unit(variant("de", "<ph>{1}</ph>"), variant("en", "dog")),
            unit(variant("de", "OK"), variant("en", "OK")),
            unit(
                variant("de", "Katze"),
                variant("en", "cat"),
                props='<prop type="x-ConfirmationLevel">Draft</prop>',
            ),
            unit(),
        ),
    )
    pairs, drops = read_all(path)
    assert texts(pairs) == [("Hund", "dog")]
    assert drops == {"empty": 3, "identical": 1, "missing language": 2, "unconfirmed": 1}


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("de", "it", "has no it: its languages are de-DE, fr, en-US."),
        ("es", "it", "has no es or it: its languages are de-DE, fr, en-US."),
        ("fr", "en", "has no unit with both fr and en: its languages are de-DE, fr, en-US."),
        (None, None, "needs `source_lang` and `target_lang`: its languages are de-DE, fr, en-US."),
        ("de", None, "needs `source_lang` and `target_lang`: its languages are de-DE, fr, en-US."),
    ],
)
def test_missing_language_error_lists_the_languages_of_the_file(
    tmp_path: Path, source: str | None, target: str | None, message: str
) -> None:
    content = tmx(
        unit(variant("de-DE", "Hund"), variant("fr", "chien")), unit(variant("de-DE", "Hund"), variant("en-US", "dog"))
    )
    with pytest.raises(CorpusError) as caught:
        read_all(write(tmp_path / "m.tmx", content), source=source, target=target)
    assert message in str(caught.value)


def test_memory_without_units_has_no_pairs(tmp_path: Path) -> None:
    assert read_all(write(tmp_path / "m.tmx", tmx())) == ([], {})


MEASURE = """
import resource, sys
from nearmt.corpus import DropCounts, read_pairs

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # KiB on Linux

def count(path):
    return sum(1 for _ in read_pairs([path], source_lang="de", target_lang="en", drops=DropCounts()))

count(sys.argv[1])  # so that imports and first allocations are not counted
before = peak()
print(count(sys.argv[2]), peak() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss has another unit elsewhere")
def test_large_memory_is_read_in_constant_space(tmp_path: Path) -> None:
    filler = "Wörter " * 140  # about 1 KB a side: few units, so that parsing and not Python takes the time
    units = [unit(variant("de", f"Hund {filler}"), variant("en", f"dog {filler}"))] * 1000
    num_repeats = 14
    small = write(tmp_path / "small.tmx", tmx(units[0]))
    with (large := tmp_path / "large.tmx").open("w", encoding="utf-8") as file:
        head, tail = tmx("SPLIT").split("SPLIT")
        file.write(head)
        for _ in range(num_repeats):
            file.write("\n".join(units))
        file.write(tail)
    assert large.stat().st_size > 28_000_000
    output = subprocess.run(
        [sys.executable, "-c", MEASURE, str(small), str(large)], capture_output=True, text=True, check=True, timeout=120
    ).stdout
    num_pairs, growth_kib = map(int, output.split())
    assert num_pairs == num_repeats * len(units)
    assert growth_kib < 10_000
