"""Language codes: which code in a file answers to the code the user gave.

Codes are compared without regard to case or to `_` and `-`. Only language, script and region count; there
is no table of names, so `deu` is not `de`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from nearmt.errors import CorpusError

# Codes that imply a script: falling back from simplified to traditional Chinese would mix two writing systems.
_IMPLIED_SCRIPTS = {
    ("zh", "cn"): "hans",
    ("zh", "sg"): "hans",
    ("zh", "tw"): "hant",
    ("zh", "hk"): "hant",
    ("zh", "mo"): "hant",
}
_GETTEXT_SCRIPTS = {"latin": "latn", "cyrillic": "cyrl"}
_MAX_REMEMBERED = 1000
_MAX_LISTED = 40  # languages named in an error; a multilingual memory has some 25


@dataclass(frozen=True, slots=True)
class LanguagePair:
    """The codes the user gave; None where they were not given."""

    source: str | None
    target: str | None


@dataclass(frozen=True, slots=True)
class _Code:
    canonical: str
    language: str
    script: str | None
    region: str | None


def _parse(code: str) -> _Code:
    # gettext writes sr@latin and sometimes de_DE.UTF-8.
    plain, _, modifier = code.strip().lower().replace("_", "-").partition("@")
    plain = plain.partition(".")[0]
    language, *rest = plain.split("-")
    script = next((part for part in rest if len(part) == 4 and part.isalpha()), _GETTEXT_SCRIPTS.get(modifier))
    region = next((part for part in rest if len(part) == 2 or (len(part) == 3 and part.isdigit())), None)
    if script is None and region is not None:
        script = _IMPLIED_SCRIPTS.get((language, region))
    return _Code(plain if not modifier else f"{plain}@{modifier}", language, script, region)


def match_rank(wanted: str, found: str) -> int | None:
    """How well `found` answers to `wanted`: 0 exactly, 1 up to an unstated region, 2 by another region, None not."""
    want, have = _parse(wanted), _parse(found)
    if want.canonical == have.canonical:
        return 0
    if not have.language or want.language != have.language:
        return None
    if want.script is not None and have.script is not None and want.script != have.script:
        return None
    if want.region is None or have.region is None or want.region == have.region:
        return 1
    return 2


@dataclass(slots=True)
class PairFinder:
    """Finds the wanted pair among the languages of each unit of a file, and remembers which ones it met."""

    file: str
    source: str
    target: str
    _is_found: bool = False
    _num_units: int = 0
    _seen: dict[str, None] = field(default_factory=dict)  # used as an ordered set
    _answers: dict[tuple[str, ...], tuple[int, int] | None] = field(default_factory=dict)

    def find(self, codes: Sequence[str]) -> tuple[int, int] | None:
        """The positions of the best source and target among `codes`; never the same position for both."""
        self._num_units += 1
        key = tuple(codes)
        if key not in self._answers:
            if len(self._answers) >= _MAX_REMEMBERED:  # a memory of 25 languages has them in many combinations
                self._answers.clear()
            if len(self._seen) < _MAX_REMEMBERED:
                self._seen.update(dict.fromkeys(codes))
            self._answers[key] = self._best(key)
        answer = self._answers[key]
        self._is_found = self._is_found or answer is not None
        return answer

    def _best(self, codes: tuple[str, ...]) -> tuple[int, int] | None:
        sources = [(rank, i) for i, code in enumerate(codes) if (rank := match_rank(self.source, code)) is not None]
        targets = [(rank, i) for i, code in enumerate(codes) if (rank := match_rank(self.target, code)) is not None]
        choices = [(s + t, i, j) for s, i in sources for t, j in targets if i != j]
        if not choices:
            return None
        _, source_at, target_at = min(choices)
        return source_at, target_at

    def finish(self) -> None:
        """Raise if the file had units but the wanted pair in none of them."""
        if self._is_found or not self._num_units:
            return
        wanted = (self.source, self.target)
        missing = [code for code in wanted if all(match_rank(code, seen) is None for seen in self._seen)]
        what = " or ".join(missing) if missing else f"unit with both {self.source} and {self.target}"
        raise CorpusError(f"{self.file} has no {what}: {list_languages(self._seen)}.")


def list_languages(codes: Sequence[str] | dict[str, None]) -> str:
    """The end of a sentence that says which languages a file has."""
    known = [code for code in codes if code]
    if not known:
        return "it states no languages"
    more = f" and {len(known) - _MAX_LISTED} more" if len(known) > _MAX_LISTED else ""
    return f"its languages are {', '.join(known[:_MAX_LISTED])}{more}"


def check_languages(where: str, wanted: LanguagePair, *, source: str | None, target: str | None) -> None:
    """Raise if the languages a file states are known to be other ones than the wanted; unknown ones pass."""

    def differ(want: str | None, have: str | None) -> bool:
        return bool(want and have and match_rank(want, have) is None)

    def is_same(want: str | None, have: str | None) -> bool:
        return bool(want and have and match_rank(want, have) == 0)

    is_swapped = bool(source and target) and not differ(wanted.source, target) and not differ(wanted.target, source)
    is_fitting = not differ(wanted.source, source) and not differ(wanted.target, target)
    # en-GB to en-US fits en-US to en-GB both ways; then the exact codes decide.
    is_exactly_swapped = is_same(wanted.source, target) and is_same(wanted.target, source)
    if is_fitting and (is_same(wanted.source, source) or not is_exactly_swapped):
        return
    stated = f"{source or '?'} to {target or '?'}"
    asked = f"{wanted.source or '?'} to {wanted.target or '?'}"
    if is_swapped:
        raise CorpusError(f"{where} translates from {stated}, but {asked} was asked for: the languages are swapped.")
    raise CorpusError(f"{where} translates from {stated}, but {asked} was asked for.")
