"""File endings mean the same wherever a file is read, filled or uploaded."""

import re
from pathlib import Path

import pytest

import nearmt.server
from nearmt.corpus import detect_format
from nearmt.corpus.extensions import FORMATS, UPLOAD_EXTENSIONS, document_format, format_by_name
from nearmt.corpus.formats import READERS
from nearmt.errors import CorpusError
from nearmt.server.http.errors import ApiError
from nearmt.server.service.jobs import format_of

XLIFF = [".xlf", ".xliff", ".sdlxliff", ".mxliff", ".mqxliff"]
DOCUMENTS = [*XLIFF, ".po", ".tmx"]


@pytest.mark.parametrize("extension", XLIFF)
def test_every_xliff_ending_can_be_read_filled_and_uploaded(extension):
    name = f"Manual.docx{extension.upper()}"
    assert detect_format(name) == document_format(name) == format_of(name, None) == "xliff"


@pytest.mark.parametrize("extension", DOCUMENTS)
def test_what_can_be_filled_can_be_read_and_uploaded(extension):
    name = f"manual{extension}"
    assert document_format(name) == detect_format(name) == format_of(name, None)


@pytest.mark.parametrize("extension", [*DOCUMENTS, ".tsv", ".jsonl", ".ndjson"])
def test_compressed_files_are_read_and_uploaded_but_not_filled(extension):
    name = f"memory{extension}.gz"
    assert detect_format(name) == format_of(name, None) == format_by_name(f"memory{extension}")
    assert document_format(name) is None


@pytest.mark.parametrize("name", ["memory.tsv", "memory.jsonl", "memory.txt", "memory", "memory.docx", "memory.pot"])
def test_other_files_are_not_documents(name):
    assert document_format(name) is None


@pytest.mark.parametrize("name", ["memory", "memory.docx", "memory.pot", "memory.gz"])
def test_unknown_endings_are_refused(name):
    with pytest.raises(CorpusError):
        detect_format(name)
    with pytest.raises(ApiError):
        format_of(name, None)


def test_every_format_has_a_reader():
    assert {*READERS, "lines"} == set(FORMATS)


def test_page_offers_every_ending_that_can_be_uploaded():
    page = (Path(nearmt.server.__file__).parent / "page" / "index.html").read_text(encoding="utf-8")
    offered = re.search(r'id="upload-file" accept="([^"]*)"', page)
    assert offered is not None
    assert offered[1].split(",") == list(UPLOAD_EXTENSIONS)
