"""Formats by file name, unreadable files, and standard input.

The other tests of the package import `write`, `read_all` and `texts` from here.
"""

import gzip
import io
import os
import sys
from pathlib import Path

import pytest

import nearmt.corpus
from nearmt.corpus import DropCounts, SentencePair, detect_format, read_lines, read_pairs
from nearmt.errors import CorpusError, SettingError


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
    return path


def read_all(
    *paths: Path | str,
    source: str | None = "de",
    target: str | None = "en",
    format: str | None = None,
    keep_identical: bool = False,
) -> tuple[list[SentencePair], dict[str, int]]:
    drops = DropCounts()
    pairs = read_pairs(
        paths,
        source_lang=source,
        target_lang=target,
        drops=drops,
        format=format,
        keep_identical=keep_identical,
    )
    return list(pairs), drops.as_dict()


def texts(pairs: list[SentencePair]) -> list[tuple[str, str]]:
    return [(pair.source, pair.target) for pair in pairs]


TMX = """<tmx version="1.4"><body><tu>
  <tuv xml:lang="de"><seg>Hund</seg></tuv>
  <tuv xml:lang="en"><seg>dog</seg></tuv>
</tu></body></tmx>"""
XLIFF = """<xliff version="1.2"><file original="f"><body>
  <trans-unit id="1"><source>Hund</source><target>dog</target></trans-unit>
</body></file></xliff>"""
PO = 'msgid "Hund"\nmsgstr "dog"\n'
TSV = "Hund\tdog\n"
JSONL = '{"source": "Hund", "target": "dog"}\n'
SAMPLES = {"m.tmx": TMX, "m.xlf": XLIFF, "m.po": PO, "m.tsv": TSV, "m.jsonl": JSONL}


def set_stdin(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def test_public_names() -> None:
    assert set(nearmt.corpus.__all__) == {
        "FORMATS",
        "DropCounts",
        "SentencePair",
        "detect_format",
        "read_lines",
        "read_pairs",
        "PairSieve",
        "check_readable",
        "normalise_space",
        "write_tmx",
    }
    assert all(hasattr(nearmt.corpus, name) for name in nearmt.corpus.__all__)


@pytest.mark.parametrize("name", SAMPLES)
def test_packed_file_reads_like_the_plain_one(tmp_path: Path, name: str) -> None:
    plain = write(tmp_path / name, SAMPLES[name])
    packed = write(tmp_path / f"{name}.gz", gzip.compress(SAMPLES[name].encode()))
    assert texts(read_all(plain)[0]) == texts(read_all(packed)[0]) == [("Hund", "dog")]


def test_gzip_is_recognised_by_its_content(tmp_path: Path) -> None:
    assert texts(read_all(write(tmp_path / "m.tmx", gzip.compress(TMX.encode())))[0]) == [("Hund", "dog")]


def test_files_of_several_formats_follow_each_other(tmp_path: Path) -> None:
    paths = [write(tmp_path / name, content) for name, content in SAMPLES.items()]
    pairs, _ = read_all(*paths)
    assert texts(pairs) == [("Hund", "dog")] * len(SAMPLES)
    assert [pair.origin for pair in pairs] == ["m.tmx", "f", "m.po", "m.tsv", "m.jsonl"]


@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("a.tmx", "tmx"),
        ("A.TMX.GZ", "tmx"),
        ("a.xlf", "xliff"),
        ("a.xliff", "xliff"),
        ("a.docx.sdlxliff", "xliff"),
        ("a.mxliff", "xliff"),
        ("de.po", "po"),
        ("a.tsv", "tsv"),
        ("a.jsonl.gz", "jsonl"),
        ("-", "tsv"),
    ],
)
def test_format_is_found_by_name(name: str, format: str) -> None:
    assert detect_format(name) == format


def test_txt_is_tsv_if_its_first_line_has_a_tab(tmp_path: Path) -> None:
    assert detect_format(write(tmp_path / "a.txt", "\nHund\tdog\n")) == "tsv"
    assert detect_format(write(tmp_path / "b.txt", "Hund\n")) == "lines"


def test_unknown_extension_lists_the_formats(tmp_path: Path) -> None:
    path = write(tmp_path / "memory.docx", "x")
    for call in (lambda: detect_format(path), lambda: read_all(path)):
        with pytest.raises(CorpusError, match="set `format` to one of tmx, xliff, po, tsv, jsonl, lines"):
            call()


def test_given_format_overrides_the_name(tmp_path: Path) -> None:
    assert texts(read_all(write(tmp_path / "m.xml", TMX), format="tmx")[0]) == [("Hund", "dog")]


def test_unknown_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"`format` must be one of tmx, .*, not 'xls'"):
        read_all(write(tmp_path / "m.tsv", TSV), format="xls")


def test_template_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="template: it has no translations"):
        read_all(write(tmp_path / "app.pot", PO))


@pytest.mark.parametrize("name", [*SAMPLES, "m.txt"])
def test_missing_file_raises_before_anything_is_read(tmp_path: Path, name: str) -> None:
    with pytest.raises(CorpusError, match=rf"{name} does not exist"):
        read_pairs([tmp_path / name], source_lang="de", target_lang="en", drops=DropCounts())


@pytest.mark.parametrize("format", ["tmx", "xliff", "po", "tsv", "jsonl"])
def test_directory_is_refused(tmp_path: Path, format: str) -> None:
    with pytest.raises(CorpusError, match="is a directory"):
        read_all(tmp_path, format=format)


def test_forbidden_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "m.tsv", TSV)
    monkeypatch.setattr(os, "access", lambda *_: False)  # chmod would not stop a test run by root
    with pytest.raises(CorpusError, match="permission denied"):
        read_all(path)


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("is_packed", [False, True])
def test_empty_file_is_refused(tmp_path: Path, name: str, is_packed: bool) -> None:
    path = write(tmp_path / name, gzip.compress(b"") if is_packed else b"")
    with pytest.raises(CorpusError, match=f"{name} is empty"):
        read_all(path)


@pytest.mark.parametrize("name", SAMPLES)
def test_truncated_gzip_is_refused(tmp_path: Path, name: str) -> None:
    whole = gzip.compress(SAMPLES[name].encode() * 50)
    with pytest.raises(CorpusError, match=r"truncated|not well-formed"):
        read_all(write(tmp_path / f"{name}.gz", whole[: len(whole) // 2]))


@pytest.mark.parametrize("name", SAMPLES)
def test_damaged_gzip_is_refused(tmp_path: Path, name: str) -> None:
    damaged = bytearray(gzip.compress(SAMPLES[name].encode()))
    damaged[-6] ^= 0xFF  # in the checksum
    with pytest.raises(CorpusError, match="damaged gzip data"):
        read_all(write(tmp_path / f"{name}.gz", bytes(damaged)))


@pytest.mark.parametrize("name", SAMPLES)
def test_file_named_gz_that_is_not_gzip_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(CorpusError, match=r"named \.gz but is not gzip data"):
        read_all(write(tmp_path / f"{name}.gz", SAMPLES[name]))


def test_nothing_to_read_is_an_error() -> None:
    with pytest.raises(CorpusError, match="No file"):
        read_all()


@pytest.mark.parametrize("name", SAMPLES)
def test_standard_input_takes_every_format(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    set_stdin(monkeypatch, SAMPLES[name].encode())
    format = detect_format(name)
    pairs, _ = read_all("-", format=None if format == "tsv" else format)
    assert texts(pairs) == [("Hund", "dog")]


def test_standard_input_cannot_be_both_sides() -> None:
    with pytest.raises(CorpusError, match="only once"):
        read_all("-", "-", format="lines")


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"a\nb", ["a", "b"]),
        (b"\xef\xbb\xbfa\r\n\n b \n", ["a", "", " b "]),
        ("a\u2028b\x0bc\x85\rd\r\n".encode(), ["a\u2028b\x0bc\x85\rd"]),
    ],
)
def test_only_line_feeds_end_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes, lines: list[str]
) -> None:
    assert list(read_lines(write(tmp_path / "in.txt", data))) == lines
    assert list(read_lines(write(tmp_path / "in.txt.gz", gzip.compress(data)))) == lines
    set_stdin(monkeypatch, data)
    assert list(read_lines("-")) == lines


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"gut\nM\xfcller\n", "line 2 is not UTF-8: byte 0xfc at position 2"),
        ("Hund".encode("utf-16"), "is UTF-16, not UTF-8; convert it first: iconv -f UTF-16"),
        ("Hund".encode("utf-32"), "is UTF-32"),
        ("Hund".encode("utf-16-le"), "line 1 has a zero byte"),
        (b"x" * (16 * 2**20 + 1), "line 1 is longer than 16 MiB"),
    ],
)
def test_text_that_is_not_utf8_lines_is_refused(tmp_path: Path, data: bytes, message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        list(read_lines(write(tmp_path / "in.txt", data)))


def test_missing_text_raises_at_once(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="does not exist"):
        read_lines(tmp_path / "none.txt")
