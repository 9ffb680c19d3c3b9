"""Splits marked text into runs: text, opening and closing tags, single tags, and breaks."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from nearmt.markup.entities import decode
from nearmt.markup.placeholders import EMBEDDED_TAG, count_placeholders, find_accelerator
from nearmt.markup.rules import Rules, attributes
from nearmt.markup.scan import CDATA_END, CDATA_START, Token, check_xml, scan

RunKind = Literal["text", "open", "close", "single", "break"]


@dataclass(frozen=True, slots=True)
class Run:
    """A run of marked text. `source` is the exact markup; `text` is what a reader sees."""

    kind: RunKind
    source: str
    text: str = ""
    starts: Sequence[int] | None = None  # position in the source of each character of the text
    is_raw: bool = False  # in CDATA, where nothing is escaped
    is_glued: bool = False  # does not separate the words on its two sides
    name: str = ""
    group: str = ""  # only tags of one group form pairs: "tag", "embedded" (written as text), "milestone"

    def slice(self, start: int, end: int) -> "Run":
        """A part of a text run."""
        if self.starts is None:
            return Run("text", self.source[start:end], self.text[start:end], None, self.is_raw)
        first, last = self.starts[start], self.starts[end]
        starts = [at - first for at in self.starts[start : end + 1]]
        return Run("text", self.source[first:last], self.text[start:end], starts, self.is_raw)


@dataclass(frozen=True, slots=True)
class Parsed:
    """The runs, and the index of the partner of each opening or closing tag (-1 for other runs)."""

    runs: list[Run]
    partners: list[int]


def parse(text: str, rules: Rules) -> Parsed:
    """Split marked text and pair its tags; every opening tag has a partner, and pairs are well nested."""
    return paired(split_runs(text, rules), rules)


def split_runs(text: str, rules: Rules) -> list[Run]:
    """The runs in order; their sources joined are the text."""
    if rules.kind == "text":
        return list(_accelerated(list(_embedded(Run("text", text, text))), rules))
    if rules.kind == "xml":
        check_xml(text)
    tokens = scan(text, is_html=rules.kind == "html")
    runs: list[Run] = []
    at = 0
    while at < len(tokens):
        token = tokens[at]
        at += 1
        if token.kind == "open" and rules.is_locked(token.name, text[token.start : token.end]):
            at = _element_end(tokens, at, rules)
            runs.append(_locked(token, text[token.start : tokens[at - 1].end], rules))
        else:
            runs += _of_token(token, text[token.start : token.end], rules)
    return list(_accelerated(runs, rules))


def _element_end(tokens: list[Token], at: int, rules: Rules) -> int:
    """The index after the end tag of the element whose start tag is just before `at`; the end if there is none."""
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


def _of_token(token: Token, source: str, rules: Rules) -> Iterator[Run]:
    if token.kind == "text":
        yield from _embedded(Run("text", source, *decode(source, is_html=rules.kind == "html")))
    elif token.kind == "cdata":
        content = source[len(CDATA_START) : -len(CDATA_END)]
        yield Run("break", CDATA_START)
        if content:
            yield from _embedded(Run("text", content, content, is_raw=True))
        yield Run("break", CDATA_END)
    elif token.kind == "other":
        yield Run("single" if source.startswith(("<!--", "<?")) else "break", source, is_glued=True)
    else:
        yield _tag(token, source, rules)


def _tag(token: Token, source: str, rules: Rules) -> Run:
    name = rules.local(token.name)
    if name in rules.breaks:
        return Run("break", source)
    if name in rules.milestones:
        return _milestone(source, source, name, rules)
    if token.kind == "single" or name in rules.void:
        return Run("single", source)
    return Run("open" if token.kind == "open" else "close", source, name=token.name.lower(), group="tag")


def _locked(token: Token, source: str, rules: Rules) -> Run:
    name = rules.local(token.name)
    if name in rules.milestones:
        return _milestone(source[: token.end - token.start], source, name, rules)
    return Run("break" if name in rules.breaks else "single", source)


def _milestone(tag: str, source: str, name: str, rules: Rules) -> Run:
    pair, keys = rules.milestones[name]
    found = attributes(tag)
    which = next((found[key] for key in keys if key in found), "")
    return Run("open" if name == pair else "close", source, name=f"{pair} {which}", group="milestone")


def _embedded(run: Run) -> Iterator[Run]:
    """A text run split at tags that are written as text, as in software strings and escaped HTML."""
    done = 0
    for found in EMBEDDED_TAG.finditer(run.text) if "<" in run.text else ():
        if found.start() > done:
            yield run.slice(done, found.start())
        tag = run.slice(*found.span())
        is_close, is_single = found[0].startswith("</"), found[0].endswith("/>")
        name = found[0].strip("</>").split()[0].lower()
        kind: RunKind = "close" if is_close else "single" if is_single or name in ("br", "img", "hr") else "open"
        yield Run(kind, tag.source, name=name, group="embedded")
        done = found.end()
    if done < len(run.text):
        yield run.slice(done, len(run.text)) if done else run


def _accelerated(runs: list[Run], rules: Rules) -> Iterator[Run]:
    texts = [run for run in runs if run.kind == "text"] if rules.has_accelerators else []
    marked = [run for run in texts if find_accelerator(run.text)] if len(texts) <= 10 else []
    for run in runs:
        span = find_accelerator(run.text) if len(marked) == 1 and run is marked[0] else None
        if span is None:
            yield run
            continue
        yield from (part for part in (run.slice(0, span[0]),) if part.text)
        yield Run("single", run.slice(*span).source, is_glued=True)
        yield run.slice(span[1], len(run.text))


class _Frame:
    """An open tag of the markup, and the open tags of the other groups inside it."""

    def __init__(self, index: int, name: str) -> None:
        self.index, self.name = index, name
        self.loose: list[tuple[int, str]] = []
        self.counts: Counter[str] = Counter()


def paired(runs: list[Run], rules: Rules) -> Parsed:
    """Pair opening and closing tags. Without a partner, a tag of the markup becomes a break, any other a single tag."""
    runs = list(runs)
    partners = [-1] * len(runs)
    frames, names = [_Frame(-1, "")], Counter[str]()
    for index, run in enumerate(runs):
        is_tag, key = run.group == "tag", f"{run.group} {run.name}"
        if run.kind == "open" and is_tag:
            frames.append(_Frame(index, run.name))
            names[run.name] += 1
        elif run.kind == "open":
            frames[-1].loose.append((index, key))
            frames[-1].counts[key] += 1
        elif run.kind == "close" and is_tag and names[run.name]:
            while (frame := frames.pop()).name != run.name:
                names[frame.name] -= 1
            names[frame.name] -= 1
            partners[index], partners[frame.index] = frame.index, index
        elif run.kind == "close" and not is_tag and frames[-1].counts[key]:
            frame = frames[-1]
            while (last := frame.loose.pop())[1] != key:
                frame.counts[last[1]] -= 1
            frame.counts[key] -= 1
            partners[index], partners[last[0]] = last[0], index
    for index, run in enumerate(runs):
        if run.kind in ("open", "close") and partners[index] < 0:
            runs[index] = Run("break" if run.group == "tag" else "single", run.source)
    return Parsed(runs, partners)


def signature(text: str, rules: Rules) -> Counter[str]:
    """How often each tag and placeholder occurs in a text; a translation must have the same signature."""
    counts: Counter[str] = Counter()
    for run in split_runs(text, rules):
        if run.kind == "text":
            counts.update({f"{{{name}": number for name, number in count_placeholders(run.text).items()})
        else:
            counts[run.source] += 1
    return counts
