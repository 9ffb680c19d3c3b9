"""TSV, JSON lines and line-aligned files."""

import json
import os
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from test_corpus_reading import read_all, texts, write

from nearmt.corpus.pairs import normalise_space
from nearmt.errors import CorpusError
from properties import examples

sentences = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\t\n\r\0"), min_size=1).filter(
    lambda text: bool(text.strip()) and not text.startswith("\ufeff")
)
reuse_tmp_path = examples(60, suppressed=(HealthCheck.function_scoped_fixture,))


@reuse_tmp_path
@given(st.lists(st.tuples(sentences, sentences), min_size=1))
def test_tsv_reads_back_what_was_written(tmp_path: Path, rows: list[tuple[str, str]]) -> None:
    path = write(tmp_path / "m.tsv", "".join(f"{source}\t{target}\n" for source, target in rows))
    pairs, drops = read_all(path, keep_identical=True)
    assert texts(pairs) == [(normalise_space(source), normalise_space(target)) for source, target in rows]
    assert drops == {}


def test_tsv_columns_are_source_target_id_origin_date(tmp_path: Path) -> None:
    path = write(
        tmp_path / "m.tsv",
        "\ufeffHund\tdog\r\n"
        "Katze \t cat\tu7\tmanual\t2024-05-01T14:00+02:00\tignored\n"
        "\n"
        "nur Quelle\t\n"
        "OK\tOK\n"
        "Maus\tmouse\t\t\t",
    )
    pairs, drops = read_all(path, source=None, target=None)
    assert [(p.source, p.target, p.unit_id, p.origin, p.changed_at) for p in pairs] == [
        ("Hund", "dog", None, "m.tsv", None),
        ("Katze", "cat", "u7", "manual", "2024-05-01T12:00:00Z"),
        ("Maus", "mouse", None, "m.tsv", None),
    ]
    assert drops == {"empty": 2, "identical": 1}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"Hund\tdog\nonly one column\n", "line 2 has no tab"),
        (b"Hund\tdog\t\t\tyesterday\n", "line 1: 'yesterday' is not an ISO 8601 date"),
        (b"Hund\tdog\nM\xfcller\tmiller\n", "line 2 is not UTF-8: byte 0xfc at position 2"),
        ("Hund\tdog\n".encode("utf-16"), "iconv -f UTF-16"),
        (b"\0\1\2\t\n", "zero byte"),
    ],
)
def test_bad_tsv_names_the_line(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        read_all(write(tmp_path / "m.tsv", content))


@pytest.mark.parametrize(
    "record",
    [
        {"source": "Hund", "target": "dog"},
        {"src": "Hund", "tgt": "dog"},
        {"de": "Hund", "en": "dog"},
        {"en_GB": "dog", "de-DE": "Hund", "fr": "chien"},
        {"translation": {"de": "Hund", "en": "dog"}},
        {"source": "web", "translation": {"de": "Hund", "en": "dog"}},
        {"source": "web", "de": "Hund", "en": "dog"},
        {"translation": {"en-US": "dog", "en": "dog", "de-AT": "Hund"}},
    ],
)
def test_json_sides_may_have_several_names(tmp_path: Path, record: dict[str, object]) -> None:
    pairs, drops = read_all(write(tmp_path / "m.jsonl", json.dumps(record)))
    assert texts(pairs) == [("Hund", "dog")]
    assert drops == {}


def test_json_details_are_optional(tmp_path: Path) -> None:
    records: list[dict[str, object]] = [
        {"source": "Hund", "target": "dog", "unit_id": "u1", "origin": "o", "changed_at": "2024-05-01"},
        {"translation": {"de": "Katze\nKater", "en": "cat"}, "id": 42},
        {"source": "Maus", "target": None},
        {"translation": {"de": "Igel", "fr": "hérisson"}},
        {"source": "Wal", "target": "whale"},
    ]
    path = write(tmp_path / "m.jsonl", "\n".join(json.dumps(record) for record in records) + "\n\n")
    pairs, drops = read_all(path)
    assert [(p.source, p.target, p.unit_id, p.origin, p.changed_at) for p in pairs] == [
        ("Hund", "dog", "u1", "o", "2024-05-01T00:00:00Z"),
        ("Katze Kater", "cat", "42", "m.jsonl", None),
        ("Wal", "whale", None, "m.jsonl", None),
    ]
    assert drops == {"empty": 2, "missing language": 1}


def test_json_by_language_needs_the_languages(tmp_path: Path) -> None:
    path = write(tmp_path / "m.jsonl", '{"de": "Hund", "en": "dog"}')
    with pytest.raises(
        CorpusError, match="keys de, en; if they are language codes, set `source_lang` and `target_lang`"
    ):
        read_all(path, source=None, target=None)
    with pytest.raises(CorpusError, match="has no fr: its languages are de, en"):
        read_all(path, source="fr")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2 is not JSON"),
        ('["Hund", "dog"]', "line 2 is not a JSON object"),
        ('{"source": "a"}', "line 2 has 'source' but no 'target'"),
        ('{"tgt": "a", "de": "b"}', "line 2 has 'tgt' but no 'src'"),
        ('{"source": "a", "target": 7}', "line 2: 7 is not a string"),
        ('{"source": "a", "target": ["b"]}', "is not a string"),
        ('{"source": "a", "target": "b", "id": {}}', "is not a string"),
        ('{"source": "a", "target": "b", "changed_at": "soon"}', "'soon' is not an ISO 8601 date"),
        ('{"source": "a\\ud800", "target": "b"}', "line 2 has half of a surrogate pair"),
        ("[" * 100_000, "line 2 cannot be read as JSON"),
        ('{"source": ' + "9" * 5000 + "}", "line 2 cannot be read as JSON"),
    ],
)
def test_bad_json_names_the_line(tmp_path: Path, line: str, message: str) -> None:
    path = write(tmp_path / "m.jsonl", '{"source": "Hund", "target": "dog"}\n' + line + "\n")
    with pytest.raises(CorpusError, match=message):
        read_all(path)


@pytest.mark.parametrize("names", [("corpus.de", "corpus.en"), ("a.txt", "b.txt")])
def test_two_unnamed_files_are_line_aligned(tmp_path: Path, names: tuple[str, str]) -> None:
    source = write(tmp_path / names[0], "Hund\r\n\nKat\u2028ze\n")
    target = write(tmp_path / names[1], "\ufeffdog\nrabbit\ncat")
    pairs, drops = read_all(source, target, source=None, target=None)
    assert texts(pairs) == [("Hund", "dog"), ("Kat ze", "cat")]
    assert [pair.unit_id for pair in pairs] == [None, None]
    assert {pair.origin for pair in pairs} == {names[0]}
    assert drops == {"empty": 1}


def test_lines_format_overrides_tabs(tmp_path: Path) -> None:
    source, target = write(tmp_path / "a.tsv", "der\tHund\n"), write(tmp_path / "b.tsv", "the dog\n")
    assert texts(read_all(source, target, format="lines")[0]) == [("der Hund", "the dog")]


@pytest.mark.parametrize(("first", "second", "counts"), [("a\nb\nc\n", "x\n", (3, 1)), ("a", "x\ny\nz\n\n", (1, 4))])
def test_unequal_line_counts_raise_with_both(tmp_path: Path, first: str, second: str, counts: tuple[int, int]) -> None:
    source, target = write(tmp_path / "c.de", first), write(tmp_path / "c.en", second)
    with pytest.raises(CorpusError, match=rf"c\.de has {counts[0]} lines but .*c\.en has {counts[1]}"):
        read_all(source, target)


def test_unequal_pipes_raise_at_the_end(tmp_path: Path) -> None:
    # The lines of a pipe cannot be counted in advance.
    pipe, target = tmp_path / "pipe", write(tmp_path / "c.en", "x\ny\n")
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(b"a\nb\nc\nd\ne\n",))
    writer.start()
    with pytest.raises(CorpusError, match=r"pipe has 5 lines but .*c\.en has 2"):
        read_all(pipe, target, format="lines")
    writer.join()


@pytest.mark.parametrize("count", [1, 3])
def test_line_aligned_text_needs_two_files(tmp_path: Path, count: int) -> None:
    paths = [write(tmp_path / f"{number}.txt", "a\n") for number in range(count)]
    with pytest.raises(CorpusError, match="exactly two files"):
        read_all(*paths)
    with pytest.raises(CorpusError, match="exactly two files"):
        read_all(*paths, format="lines")
