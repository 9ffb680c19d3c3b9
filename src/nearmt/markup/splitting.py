"""Splits long text: into lines, into sentences, and into parts that are short enough for a model.

Lines and sentences keep the white space around them, so the translated text has the same layout as the original.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import sentencex

Translate = Callable[[list[str]], list[str]]
Tokenize = Callable[[list[str]], list[list[int]]]

_LINES = re.compile(r"[^\r\n]+|[\r\n]+")
_SENTENCE_ENDS, _UNSPACED_SENTENCE_ENDS = ".!?;:", "。！？；"


@dataclass(frozen=True, slots=True)
class SplitText:
    """A text as sentences and what stands between them.

    `parts` has, in order, the number of each sentence and the strings that are kept as they are.
    """

    sentences: tuple[str, ...]
    parts: tuple[str | int, ...]

    def fill(self, translations: Sequence[str]) -> str:
        """The text with its sentences replaced by their translations."""
        return "".join(self._filled(translations))

    def spans(self, translations: Sequence[str]) -> list[tuple[int, int]]:
        """The start and end of each translated sentence in the filled text."""
        found, start = [(0, 0)] * len(self.sentences), 0
        for part, filled in zip(self.parts, self._filled(translations), strict=True):
            if isinstance(part, int):
                found[part] = (start, start + len(filled))
            start += len(filled)
        return found

    def _filled(self, translations: Sequence[str]) -> list[str]:
        return [part if isinstance(part, str) else translations[part] for part in self.parts]


def split_text(text: str, language: str, *, splits_sentences: bool = True) -> SplitText:
    """The sentences of a plain text, or its lines."""
    sentences: list[str] = []
    parts: list[str | int] = []
    for part in split_sentences(text, language) if splits_sentences else _LINES.findall(text):
        content = part.strip()
        if not content:
            parts.append(part)
            continue
        start = part.index(content)
        parts += [part[:start], len(sentences), part[start + len(content) :]]
        sentences.append(content)
    return SplitText(tuple(sentences), tuple(part for part in parts if part != ""))


def split_sentences(text: str, language: str, *, is_newline_break: bool = True) -> list[str]:
    """The sentences of a text, each with the white space after it; joined, they are the text."""
    lines = _LINES.findall(text) if is_newline_break else [text] if text else []
    sentences: list[str] = []
    for line in lines:
        if line.isspace() or len(line) < 2:
            sentences.append(line)
            continue
        found = sentencex.segment(language.replace("_", "-").partition("-")[0].lower() or "en", line)
        sentences += found if "".join(found) == line else [line]
    return sentences


def translate_long(texts: Sequence[str], translate: Translate, *, language: str) -> list[str]:
    """Translate texts of any length sentence by sentence, in one call, and keep the white space around sentences."""
    split = [split_text(text, language) for text in texts]
    wanted = list(dict.fromkeys(sentence for text in split for sentence in text.sentences))
    known = dict(zip(wanted, translate(wanted), strict=True)) if wanted else {}
    return [text.fill([known[sentence] for sentence in text.sentences]) for text in split]


@dataclass(frozen=True, slots=True)
class TokenizedText:
    """A text that is short enough for a model, and its token ids."""

    text: str
    token_ids: list[int]


def tokenize_to_fit(texts: Sequence[str], tokenize: Tokenize, max_tokens: int) -> list[list[TokenizedText]]:
    """Each text with its token ids: in one part if it has at most `max_tokens`, else in as many parts as it takes.

    Texts have single spaces. Each text is tokenised once; only the parts of one that is too long are tokenised again.
    """
    found: list[list[TokenizedText]] = []
    for text, token_ids in zip(texts, tokenize(list(texts)) if texts else [], strict=True):
        if len(token_ids) <= max_tokens or len(text) < 2:
            found.append([TokenizedText(text, token_ids)])
            continue
        halves = [half for half in map(str.strip, _halves(text)) if half]
        found.append([part for parts in tokenize_to_fit(halves, tokenize, max_tokens) for part in parts])
    return found


def _halves(text: str) -> tuple[str, str]:
    """A text cut near its middle: at the end of a sentence if it has one, else at a space, else anywhere."""
    spaces = [at for at, char in enumerate(text) if char == " "]
    ends = [at for at in spaces if text[at - 1] in _SENTENCE_ENDS] or [
        at for at in range(1, len(text)) if text[at - 1] in _UNSPACED_SENTENCE_ENDS
    ]
    middle = len(text) // 2
    cut = min(ends or spaces or [middle], key=lambda at: abs(at - middle))
    return text[:cut], text[cut:]
