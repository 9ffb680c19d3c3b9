"""Marked text in segments: what one sentence is to the model, with its tags, and what stands between unchanged."""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

from nearmt.markup.pieces import Parsed, Piece, paired
from nearmt.markup.placeholders import find_placeholders
from nearmt.markup.rules import Rules
from nearmt.markup.splitting import split_sentences

_CUT = Piece("break", "")


@dataclass(frozen=True, slots=True)
class Segment:
    """The pieces of one sentence; its pairs are all inside. What is around it is kept as it is."""

    before: str
    core: Parsed
    after: str

    @property
    def source(self) -> str:
        return "".join(piece.source for piece in self.core.pieces)


def split_segments(parsed: Parsed, rules: Rules, language: str) -> list[str | Segment]:
    """Segments and the unchanged text between them, in order."""
    cut = _broken_pairs(paired(list(_cut_sentences(parsed.pieces, rules, language)), rules))
    found: list[str | Segment] = []
    run: list[Piece] = []
    for piece in [*cut, _CUT]:
        if piece.kind != "break":
            run.append(piece)
            continue
        if run:
            found.append(_segment(_without_empty_pairs(paired(run, rules)), rules))
            run = []
        if piece.source:
            found.append(piece.source)
    return found


def _cut_sentences(pieces: list[Piece], rules: Rules, language: str) -> Iterator[Piece]:
    """The pieces with an empty break between any two sentences."""
    block: list[Piece] = []
    for piece in pieces:
        if piece.kind == "break":
            yield from _cut_block(block, rules, language)
            yield piece
            block = []
        else:
            block.append(piece)
    yield from _cut_block(block, rules, language)


def _cut_block(block: list[Piece], rules: Rules, language: str) -> Iterator[Piece]:
    text = "".join(piece.text for piece in block)
    lengths = [len(part) for part in split_sentences(text, language, is_newline_break=rules.is_newline_break)]
    held = find_placeholders(text)
    ends = [at for at in accumulate(lengths[:-1]) if not _is_inside(at, held)]
    done, next_end = 0, 0
    for piece in block:
        if next_end < len(ends) and ends[next_end] == done and piece.kind != "close":
            yield _CUT  # behind the tags that close there, before those that open
            next_end += 1
        if piece.kind != "text":
            yield piece
            continue
        start = 0
        while next_end < len(ends) and ends[next_end] < done + len(piece.text):
            at = ends[next_end] - done
            yield piece.part(start, at)
            yield _CUT
            start, next_end = at, next_end + 1
        yield piece.part(start, len(piece.text)) if start else piece
        done += len(piece.text)


def _is_inside(at: int, spans: list[tuple[int, int]]) -> bool:
    index = bisect_left(spans, (at, -1)) - 1
    return index >= 0 and spans[index][0] < at < spans[index][1]


def _broken_pairs(parsed: Parsed) -> list[Piece]:
    """The pieces; tags of a pair that goes across a break are breaks themselves."""
    breaks = list(accumulate((piece.kind == "break" for piece in parsed.pieces), initial=0))
    return [
        Piece("break", piece.source) if partner >= 0 and breaks[index] != breaks[partner] else piece
        for index, (piece, partner) in enumerate(zip(parsed.pieces, parsed.partners, strict=True))
    ]


def _without_empty_pairs(parsed: Parsed) -> Parsed:
    """Pairs without visible content, such as <x id="5"></x>, as single tags with all that is in them."""
    is_visible = (piece.kind == "text" and not piece.text.isspace() for piece in parsed.pieces)
    visible = list(accumulate(is_visible, initial=0))
    pieces: list[Piece] = []
    moved: dict[int, int] = {}
    index = 0
    while index < len(parsed.pieces):
        piece, end = parsed.pieces[index], parsed.partners[index]
        moved[index] = len(pieces)
        if piece.kind == "open" and visible[index] == visible[end]:
            piece = Piece("single", "".join(inner.source for inner in parsed.pieces[index : end + 1]))
            index = end
        pieces.append(piece)
        index += 1
    partners = [-1] * len(pieces)
    for old, new in moved.items():
        if pieces[new].kind in ("open", "close"):
            partners[new] = moved[parsed.partners[old]]
    return Parsed(pieces, partners)


def has_words(text: str) -> bool:
    """Whether there is a letter outside of placeholders: anything to translate."""
    if not any(map(str.isalpha, text)):
        return False
    done = 0
    for start, end in find_placeholders(text):
        if any(map(str.isalpha, text[done:start])):
            return True
        done = end
    return any(map(str.isalpha, text[done:]))


def _segment(parsed: Parsed, rules: Rules) -> Segment:
    """Peel off white space and tags at the edges that need no sentence to stand in."""
    pieces, partners = list(parsed.pieces), parsed.partners
    low, high = 0, len(pieces)
    before: list[str] = []
    after: list[str] = []
    while low < high:
        first, last = pieces[low], pieces[high - 1]
        if first.kind == "single" or (first.kind == "text" and _is_idle(first, pieces[low + 1 : low + 2])):
            before.append(first.source)
            low += 1
        elif last.kind == "single" or (last.kind == "text" and _is_idle(last, pieces[max(low, high - 2) : high - 1])):
            after.append(last.source)
            high -= 1
        elif first.kind == "open" and partners[low] == high - 1:
            before.append(first.source)
            after.append(last.source)
            low, high = low + 1, high - 1
        elif first.kind == "text" and first.text[0].isspace():
            at = len(first.text) - len(first.text.lstrip())
            before.append(first.part(0, at).source)
            pieces[low] = first.part(at, len(first.text))
        elif last.kind == "text" and last.text[-1].isspace():
            at = len(last.text.rstrip())
            after.append(last.part(at, len(last.text)).source)
            pieces[high - 1] = last.part(0, at)
        else:
            break
    core = Parsed(pieces[low:high], [partner - low if partner >= 0 else -1 for partner in partners[low:high]])
    return Segment("".join(before), core, "".join(reversed(after)))


def _is_idle(text: Piece, neighbor: list[Piece]) -> bool:
    """White space, or signs that only a single tag parts from the rest, as the full stop in `Datei <x/>.`"""
    if text.text.isspace():
        return True
    return bool(neighbor) and neighbor[0].kind == "single" and _is_only_signs(text.text)


def _is_only_signs(text: str) -> bool:
    return not any(map(str.isalnum, text)) and not find_placeholders(text)
