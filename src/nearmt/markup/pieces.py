"""Marked text as a row of pieces: words, tags that open or close, tags that stand alone, and breaks."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from nearmt.markup.entities import decode
from nearmt.markup.placeholders import EMBEDDED_TAG, count_placeholders, find_accelerator
from nearmt.markup.rules import Rules, attributes
from nearmt.markup.scan import CDATA_END, CDATA_START, Token, check_xml, scan

PieceKind = Literal["text", "open", "close", "single", "break"]


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of marked text. `source` is its exact spelling; `text` is what a reader sees of it."""

    kind: PieceKind
    source: str
    text: str = ""
    starts: Sequence[int] | None = None  # where in the source each character of the text begins
    is_raw: bool = False  # inside CDATA, where nothing is escaped
    is_glued: bool = False  # stands inside a word without parting it
    name: str = ""
    group: str = ""  # which tags can be a pair: those of the markup, or those spelt as text, or milestones

    def part(self, start: int, end: int) -> "Piece":
        """A part of a text."""
        if self.starts is None:
            return Piece("text", self.source[start:end], self.text[start:end], None, self.is_raw)
        first, last = self.starts[start], self.starts[end]
        starts = [at - first for at in self.starts[start : end + 1]]
        return Piece("text", self.source[first:last], self.text[start:end], starts, self.is_raw)


@dataclass(frozen=True, slots=True)
class Parsed:
    """The pieces, and for each that opens or closes where its partner is (-1 for others)."""

    pieces: list[Piece]
    partners: list[int]


def parse(text: str, rules: Rules) -> Parsed:
    """Marked text in pieces; every tag that opens has a partner, and pairs are well nested."""
    return paired(split_pieces(text, rules), rules)


def split_pieces(text: str, rules: Rules) -> list[Piece]:
    """The pieces one after the other; joined, their sources are the text."""
    if rules.kind == "text":
        return list(_accelerated(list(_embedded(Piece("text", text, text))), rules))
    if rules.kind == "xml":
        check_xml(text)
    tokens = scan(text, is_html=rules.kind == "html")
    pieces: list[Piece] = []
    at = 0
    while at < len(tokens):
        token = tokens[at]
        at += 1
        if token.kind == "open" and rules.is_locked(token.name, text[token.start : token.end]):
            at = _element_end(tokens, at, rules)
            pieces.append(_locked(token, text[token.start : tokens[at - 1].end], rules))
        else:
            pieces += _of_token(token, text[token.start : token.end], rules)
    return list(_accelerated(pieces, rules))


def _element_end(tokens: list[Token], at: int, rules: Rules) -> int:
    """The index behind the end tag of the element whose start tag is before `at`; all the rest if there is none."""
    name = rules.local(tokens[at - 1].name)
    if name in rules.void:
        return at
    depth = 1
    for index in range(at, len(tokens)):
        token = tokens[index]
        if token.kind in ("open", "close") and rules.local(token.name) == name:
            depth += 1 if token.kind == "open" else -1
            if depth == 0:
                return index + 1
    return len(tokens)


def _of_token(token: Token, source: str, rules: Rules) -> Iterator[Piece]:
    if token.kind == "text":
        yield from _embedded(Piece("text", source, *decode(source, is_html=rules.kind == "html")))
    elif token.kind == "cdata":
        content = source[len(CDATA_START) : -len(CDATA_END)]
        yield Piece("break", CDATA_START)
        if content:
            yield from _embedded(Piece("text", content, content, is_raw=True))
        yield Piece("break", CDATA_END)
    elif token.kind == "other":
        yield Piece("single" if source.startswith(("<!--", "<?")) else "break", source, is_glued=True)
    else:
        yield _tag(token, source, rules)


def _tag(token: Token, source: str, rules: Rules) -> Piece:
    name = rules.local(token.name)
    if name in rules.breaks:
        return Piece("break", source)
    if name in rules.milestones:
        return _milestone(source, source, name, rules)
    if token.kind == "single" or name in rules.void:
        return Piece("single", source)
    return Piece("open" if token.kind == "open" else "close", source, name=token.name.lower(), group="tag")


def _locked(token: Token, source: str, rules: Rules) -> Piece:
    name = rules.local(token.name)
    if name in rules.milestones:
        return _milestone(source[: token.end - token.start], source, name, rules)
    return Piece("break" if name in rules.breaks else "single", source)


def _milestone(tag: str, source: str, name: str, rules: Rules) -> Piece:
    pair, keys = rules.milestones[name]
    found = attributes(tag)
    which = next((found[key] for key in keys if key in found), "")
    return Piece("open" if name == pair else "close", source, name=f"{pair} {which}", group="milestone")


def _embedded(piece: Piece) -> Iterator[Piece]:
    """A text parted at the tags that it spells as text, as software strings and escaped HTML do."""
    done = 0
    for found in EMBEDDED_TAG.finditer(piece.text) if "<" in piece.text else ():
        if found.start() > done:
            yield piece.part(done, found.start())
        tag = piece.part(*found.span())
        is_close, is_single = found[0].startswith("</"), found[0].endswith("/>")
        name = found[0].strip("</>").split()[0].lower()
        kind: PieceKind = "close" if is_close else "single" if is_single or name in ("br", "img", "hr") else "open"
        yield Piece(kind, tag.source, name=name, group="embedded")
        done = found.end()
    if done < len(piece.text):
        yield piece.part(done, len(piece.text)) if done else piece


def _accelerated(pieces: list[Piece], rules: Rules) -> Iterator[Piece]:
    texts = [piece for piece in pieces if piece.kind == "text"] if rules.has_accelerators else []
    marked = [piece for piece in texts if find_accelerator(piece.text)] if len(texts) <= 10 else []
    for piece in pieces:
        span = find_accelerator(piece.text) if len(marked) == 1 and piece is marked[0] else None
        if span is None:
            yield piece
            continue
        yield from (part for part in (piece.part(0, span[0]),) if part.text)
        yield Piece("single", piece.part(*span).source, is_glued=True)
        yield piece.part(span[1], len(piece.text))


class _Frame:
    """An open tag of the markup, and the open tags of looser groups inside it."""

    def __init__(self, index: int, name: str) -> None:
        self.index, self.name = index, name
        self.loose: list[tuple[int, str]] = []
        self.counts: Counter[str] = Counter()


def paired(pieces: list[Piece], rules: Rules) -> Parsed:
    """Find partners. A tag of HTML without one becomes a break, one of a looser group stands alone."""
    pieces = list(pieces)
    partners = [-1] * len(pieces)
    frames, names = [_Frame(-1, "")], Counter[str]()
    for index, piece in enumerate(pieces):
        is_tag, key = piece.group == "tag", f"{piece.group} {piece.name}"
        if piece.kind == "open" and is_tag:
            frames.append(_Frame(index, piece.name))
            names[piece.name] += 1
        elif piece.kind == "open":
            frames[-1].loose.append((index, key))
            frames[-1].counts[key] += 1
        elif piece.kind == "close" and is_tag and names[piece.name]:
            while (frame := frames.pop()).name != piece.name:
                names[frame.name] -= 1
            names[frame.name] -= 1
            partners[index], partners[frame.index] = frame.index, index
        elif piece.kind == "close" and not is_tag and frames[-1].counts[key]:
            frame = frames[-1]
            while (last := frame.loose.pop())[1] != key:
                frame.counts[last[1]] -= 1
            frame.counts[key] -= 1
            partners[index], partners[last[0]] = last[0], index
    for index, piece in enumerate(pieces):
        if piece.kind in ("open", "close") and partners[index] < 0:
            pieces[index] = Piece("break" if piece.group == "tag" else "single", piece.source)
    return Parsed(pieces, partners)


def signature(text: str, rules: Rules) -> Counter[str]:
    """Every tag and placeholder of a text with its number: what a translation must have as well."""
    counts: Counter[str] = Counter()
    for piece in split_pieces(text, rules):
        if piece.kind == "text":
            counts.update({f"{{{name}": number for name, number in count_placeholders(piece.text).items()})
        else:
            counts[piece.source] += 1
    return counts
