"""Splits markup into tags and text in one pass, even if it is broken."""

import re
from typing import Literal, NamedTuple
from xml.parsers import expat

from nearmt.errors import MarkupError

TokenKind = Literal["text", "open", "close", "single", "cdata", "other"]

_NAME = re.compile(r"</?([^\W\d][^\s/>\"'<=]*)")
_STOP = re.compile(r"[<>\"']")
_RAW_TEXT = frozenset({"script", "style", "textarea", "title"})
CDATA_START, CDATA_END = "<![CDATA[", "]]>"


class Token(NamedTuple):
    """A range of the input. `name` is the name of a tag, as it is written."""

    kind: TokenKind
    start: int
    end: int
    name: str = ""


def check_xml(text: str, what: str = "the text") -> None:
    """Raise unless the text is well-formed XML: a fragment, or a document that declares no entities."""
    parser = expat.ParserCreate()
    parser.EntityDeclHandler = _refuse_entity
    is_document = text.lstrip().startswith(("<?xml", "<!DOCTYPE"))
    content = text.lstrip() if is_document else f"<r>{text}</r>"
    try:
        parser.Parse(content.encode("utf-8", "surrogatepass"), True)
    except expat.ExpatError as error:
        reason = expat.ErrorString(error.code) or "not XML"
        raise MarkupError(f"{what} is not well-formed XML, line {error.lineno}: {reason}.") from error


def _refuse_entity(name: str, *_: object) -> None:
    raise MarkupError(f"the text declares the XML entity {name}, which is refused: entities can expand without bound.")


def scan(text: str, *, is_html: bool) -> list[Token]:
    """The tokens of the whole text. XML must have been checked; HTML may be broken."""
    return _Scanner(text, is_html).run()


class _Scanner:
    def __init__(self, text: str, is_html: bool) -> None:
        self._text, self._is_html = text, is_html
        self._tokens: list[Token] = []
        self._missing: dict[str, int] = {}  # what does not occur from some position on
        # Characters that may be read in search of the ends of broken tags, so that scanning stays linear.
        self._lookahead_left = 4 * len(text) + 65536

    def run(self) -> list[Token]:
        text, done, at = self._text, 0, 0
        while (at := text.find("<", at)) >= 0:
            token = self._token_at(at)
            if token is None:
                at += 1
                continue
            if token.start > done:
                self._tokens.append(Token("text", done, token.start))
            self._tokens.append(token)
            done = at = token.end
            if self._is_html and token.kind == "open" and token.name.lower() in _RAW_TEXT:
                at = self._raw_end(token.name, done)
                kind: TokenKind = "text" if token.name.lower() == "title" else "other"
                if at > done:
                    self._tokens.append(Token(kind, done, at))
                done = at
        if done < len(text):
            self._tokens.append(Token("text", done, len(text)))
        return self._tokens

    def _token_at(self, at: int) -> Token | None:
        text = self._text
        if text.startswith("<!--", at):
            return self._until("-->", at, at + 4)
        if text.startswith(CDATA_START, at) and not self._is_html:
            end = self._find(CDATA_END, at)
            return None if end < 0 else Token("cdata", at, end + 3)
        if text.startswith("<?", at):
            return self._until(">" if self._is_html else "?>", at, at + 2)
        if text.startswith("<!", at):
            return self._until(">", at, at + 2)
        found = _NAME.match(text, at)
        end = self._tag_end(found.end()) if found else -1
        if found is None or end < 0:
            return None
        if text.startswith("/", at + 1):
            return Token("close", at, end, found[1])
        return Token("single" if text[end - 2] == "/" else "open", at, end, found[1])

    def _until(self, mark: str, start: int, at: int) -> Token | None:
        end = self._find(mark, at)
        return None if end < 0 else Token("other", start, end + len(mark))

    def _find(self, what: str, at: int) -> int:
        if self._missing.get(what, len(self._text) + 1) <= at:
            return -1
        found = self._text.find(what, at)
        if found < 0:
            self._missing[what] = at
        return found

    def _tag_end(self, at: int) -> int:
        """The position after the > that ends the tag; a quoted > does not."""
        begun = at
        while self._lookahead_left > 0 and (stop := _STOP.search(self._text, at)):
            if stop[0] == ">":
                return stop.end()
            at = 0 if stop[0] == "<" else self._find(stop[0], stop.end()) + 1
            if at == 0:
                at = stop.end()
                break
        self._lookahead_left -= max(at - begun, 1)
        return -1

    def _raw_end(self, name: str, at: int) -> int:
        found = re.compile(rf"</{re.escape(name)}(?=[\s/>])", re.IGNORECASE).search(self._text, at)
        return found.start() if found else len(self._text)
