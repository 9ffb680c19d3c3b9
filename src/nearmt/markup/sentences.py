"""Finds the sentences of marked text, each with its tags, and the text between them that stays unchanged."""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

from nearmt.markup.placeholders import find_placeholders
from nearmt.markup.rules import Rules
from nearmt.markup.runs import Parsed, Run, paired
from nearmt.markup.splitting import split_sentences

_CUT = Run("break", "")


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence with its tags; every pair is complete. `before` and `after` are kept unchanged."""

    before: str
    core: Parsed
    after: str

    @property
    def source(self) -> str:
        return "".join(run.source for run in self.core.runs)


def sentences_of(parsed: Parsed, rules: Rules, language: str) -> list[str | Sentence]:
    """Sentences and the unchanged text between them, in order."""
    cut = _broken_pairs(paired(list(_cut_sentences(parsed.runs, rules, language)), rules))
    found: list[str | Sentence] = []
    collected: list[Run] = []
    for run in [*cut, _CUT]:
        if run.kind != "break":
            collected.append(run)
            continue
        if collected:
            found.append(_trimmed(_without_empty_pairs(paired(collected, rules))))
            collected = []
        if run.source:
            found.append(run.source)
    return found


def _cut_sentences(runs: list[Run], rules: Rules, language: str) -> Iterator[Run]:
    """The runs with an empty break between any two sentences."""
    block: list[Run] = []
    for run in runs:
        if run.kind == "break":
            yield from _cut_block(block, rules, language)
            yield run
            block = []
        else:
            block.append(run)
    yield from _cut_block(block, rules, language)


def _cut_block(block: list[Run], rules: Rules, language: str) -> Iterator[Run]:
    text = "".join(run.text for run in block)
    lengths = [len(part) for part in split_sentences(text, language, is_newline_break=rules.is_newline_break)]
    held = find_placeholders(text)
    ends = [at for at in accumulate(lengths[:-1]) if not _is_inside(at, held)]
    done, next_end = 0, 0
    for run in block:
        if next_end < len(ends) and ends[next_end] == done and run.kind != "close":
            yield _CUT  # after the tags that close here, before those that open
            next_end += 1
        if run.kind != "text":
            yield run
            continue
        start = 0
        while next_end < len(ends) and ends[next_end] < done + len(run.text):
            at = ends[next_end] - done
            yield run.slice(start, at)
            yield _CUT
            start, next_end = at, next_end + 1
        yield run.slice(start, len(run.text)) if start else run
        done += len(run.text)


def _is_inside(at: int, spans: list[tuple[int, int]]) -> bool:
    index = bisect_left(spans, (at, -1)) - 1
    return index >= 0 and spans[index][0] < at < spans[index][1]


def _broken_pairs(parsed: Parsed) -> list[Run]:
    """The runs, with both tags of a pair that contains a break turned into breaks."""
    breaks = list(accumulate((run.kind == "break" for run in parsed.runs), initial=0))
    return [
        Run("break", run.source) if partner >= 0 and breaks[index] != breaks[partner] else run
        for index, (run, partner) in enumerate(zip(parsed.runs, parsed.partners, strict=True))
    ]


def _without_empty_pairs(parsed: Parsed) -> Parsed:
    """The runs, with each pair without visible content, such as <x id="5"></x>, joined into a single tag."""
    is_visible = (run.kind == "text" and not run.text.isspace() for run in parsed.runs)
    visible = list(accumulate(is_visible, initial=0))
    runs: list[Run] = []
    moved: dict[int, int] = {}
    index = 0
    while index < len(parsed.runs):
        run, end = parsed.runs[index], parsed.partners[index]
        moved[index] = len(runs)
        if run.kind == "open" and visible[index] == visible[end]:
            run = Run("single", "".join(inner.source for inner in parsed.runs[index : end + 1]))
            index = end
        runs.append(run)
        index += 1
    partners = [-1] * len(runs)
    for old, new in moved.items():
        if runs[new].kind in ("open", "close"):
            partners[new] = moved[parsed.partners[old]]
    return Parsed(runs, partners)


def has_words(text: str) -> bool:
    """True if there is anything to translate: a letter outside of placeholders."""
    if not any(map(str.isalpha, text)):
        return False
    done = 0
    for start, end in find_placeholders(text):
        if any(map(str.isalpha, text[done:start])):
            return True
        done = end
    return any(map(str.isalpha, text[done:]))


def _trimmed(parsed: Parsed) -> Sentence:
    """The sentence without the white space and the tags at its ends, which need no placing."""
    runs, partners = list(parsed.runs), parsed.partners
    low, high = 0, len(runs)
    before: list[str] = []
    after: list[str] = []
    while low < high:
        first, last = runs[low], runs[high - 1]
        if first.kind == "single" or (first.kind == "text" and _needs_no_placing(first, runs[low + 1 : low + 2])):
            before.append(first.source)
            low += 1
        elif last.kind == "single" or (
            last.kind == "text" and _needs_no_placing(last, runs[max(low, high - 2) : high - 1])
        ):
            after.append(last.source)
            high -= 1
        elif first.kind == "open" and partners[low] == high - 1:
            before.append(first.source)
            after.append(last.source)
            low, high = low + 1, high - 1
        elif first.kind == "text" and first.text[0].isspace():
            at = len(first.text) - len(first.text.lstrip())
            before.append(first.slice(0, at).source)
            runs[low] = first.slice(at, len(first.text))
        elif last.kind == "text" and last.text[-1].isspace():
            at = len(last.text.rstrip())
            after.append(last.slice(at, len(last.text)).source)
            runs[high - 1] = last.slice(0, at)
        else:
            break
    core = Parsed(runs[low:high], [partner - low if partner >= 0 else -1 for partner in partners[low:high]])
    return Sentence("".join(before), core, "".join(reversed(after)))


def _needs_no_placing(text: Run, neighbor: list[Run]) -> bool:
    """True for white space, and for punctuation set off by a single tag, like the full stop in `Datei <x/>.`"""
    if text.text.isspace():
        return True
    return bool(neighbor) and neighbor[0].kind == "single" and _is_punctuation(text.text)


def _is_punctuation(text: str) -> bool:
    return not any(map(str.isalnum, text)) and not find_placeholders(text)
