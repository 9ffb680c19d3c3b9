"""Decodes and encodes files so that unchanged text keeps exactly the same bytes."""

import codecs
import re
from dataclasses import dataclass

from nearmt.errors import DocumentError

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_XML_DECLARATION = re.compile(rb"""<\?xml[^>]*?encoding\s*=\s*["']([\w.:-]+)["']""")
_PO_CHARSET = re.compile(rb'"Content-Type:[^"]*charset=([\w.:-]+)', re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Encoded:
    """The text of a file, its encoding and its byte order mark."""

    text: str
    encoding: str
    mark: bytes

    def encode(self, text: str, *, is_xml: bool, name: str) -> bytes:
        """New text in the file's encoding; XML uses character references for characters the encoding does not have."""
        try:
            return self.mark + text.encode(self.encoding, "xmlcharrefreplace" if is_xml else "strict")
        except UnicodeEncodeError as error:
            missing = error.object[error.start]
            raise DocumentError(
                f"{name} is {self.encoding}, which does not have {missing!r}: convert it to UTF-8 first."
            ) from error


def decode(data: bytes, *, is_xml: bool, name: str) -> Encoded:
    """Decode a file in the encoding that it states, or in UTF-8 if it states none."""
    if not data.strip():
        raise DocumentError(f"{name} is empty.")
    mark, encoding = next(((mark, encoding) for mark, encoding in _MARKS if data.startswith(mark)), (b"", ""))
    if not encoding:
        found = (_XML_DECLARATION if is_xml else _PO_CHARSET).search(data[:4096] if is_xml else data)
        encoding = found[1].decode("ascii").lower() if found else "utf-8"
        encoding = "utf-8" if encoding == "charset" else encoding  # the placeholder of msginit
    try:
        text = data[len(mark) :].decode(encoding)
        is_reversible = text.encode(encoding) == data[len(mark) :]
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DocumentError(f"{name}, line {line} is not {encoding}: byte 0x{data[error.start]:02x}.") from error
    except LookupError as error:
        raise DocumentError(f"{name} states the unknown encoding {encoding}.") from error
    if not is_reversible:
        raise DocumentError(
            f"{name} cannot be decoded as {encoding} and encoded again without changes: convert it to UTF-8 first."
        )
    return Encoded(text, encoding, mark)
