"""Long text as sentences, and put together again with every white space as it was."""

import re
from collections.abc import Callable, Sequence

import sentencex

Translate = Callable[[list[str]], list[str]]

_LINES = re.compile(r"[^\r\n]+|[\r\n]+")


def split_sentences(text: str, language: str, *, is_newline_break: bool = True) -> list[str]:
    """Sentences of a text, each with the white space behind it; joined, they are the text."""
    parts = _LINES.findall(text) if is_newline_break else [text] if text else []
    sentences: list[str] = []
    for part in parts:
        if part.isspace() or len(part) < 2:
            sentences.append(part)
            continue
        found = sentencex.segment(language.replace("_", "-").partition("-")[0].lower() or "en", part)
        sentences += found if "".join(found) == part else [part]
    return sentences


def translate_long(texts: Sequence[str], translate: Translate, *, language: str) -> list[str]:
    """Translate texts of any length sentence by sentence, in one call; white space around sentences is kept."""
    split = [split_sentences(text, language) for text in texts]
    wanted = list(dict.fromkeys(core for parts in split for part in parts if (core := part.strip())))
    known = dict(zip(wanted, translate(wanted), strict=True)) if wanted else {}
    return ["".join(_put_back(part, known) for part in parts) for parts in split]


def _put_back(part: str, known: dict[str, str]) -> str:
    core = part.strip()
    if not core:
        return part
    start = part.index(core)
    return part[:start] + known[core] + part[start + len(core) :]
