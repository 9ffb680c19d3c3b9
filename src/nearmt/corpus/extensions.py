"""The only table of file endings: which format each one stands for, and which formats are used where.

Reading pairs, filling documents and uploads all look here, so a file that can be translated can also be built from.
"""

from pathlib import Path

FORMATS = ("tmx", "xliff", "po", "tsv", "jsonl", "lines")
DOCUMENT_FORMATS = ("xliff", "po", "tmx")
UPLOAD_FORMATS = tuple(name for name in FORMATS if name != "lines")  # line-aligned text takes two files

_EXTENSIONS = {
    "tmx": (".tmx",),
    "xliff": (".xlf", ".xliff", ".sdlxliff", ".mxliff", ".mqxliff"),
    "po": (".po",),
    "tsv": (".tsv", ".txt"),  # a .txt file without tabs is line-aligned text
    "jsonl": (".jsonl", ".ndjson"),
}
_FORMATS = {extension: name for name, extensions in _EXTENSIONS.items() for extension in extensions}

GZIP = ".gz"
PO_TEMPLATE = ".pot"
UPLOAD_EXTENSIONS = (*_FORMATS, GZIP)
DOCUMENT_EXTENSIONS = tuple(extension for name in DOCUMENT_FORMATS for extension in _EXTENSIONS[name])


def extension_of(path: str | Path) -> str:
    """The file's ending in lower case; the one before `.gz` if the file is compressed."""
    return Path(Path(path).name.lower().removesuffix(GZIP)).suffix


def format_by_name(path: str | Path) -> str | None:
    """The format that the file's ending stands for, compressed or not; None if it is unknown."""
    return _FORMATS.get(extension_of(path))


def document_format(path: str | Path) -> str | None:
    """`xliff`, `po` or `tmx` if the file is a document that can be filled; None for any other or a compressed file."""
    found = _FORMATS.get(Path(path).suffix.lower())
    return found if found in DOCUMENT_FORMATS else None
