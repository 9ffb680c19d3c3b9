"""Matches the language codes in a file with the codes the user gave.

Case does not matter, nor does `_` or `-`. Only language, script and region are compared; there is no table of names,
so `deu` does not match `de`.
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
_MAX_LISTED = 40  # languages in an error message; a multilingual memory has about 25


@dataclass(frozen=True, slots=True)
class LanguagePair:
    """The codes the user gave; None if not given."""

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
    """How well `found` matches `wanted`: 0 exactly, 1 with a region missing, 2 with another region, None not at all."""
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
    """Finds the wanted pair among the languages of each unit of a file, and records the languages it has seen."""

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
            if len(self._answers) >= _MAX_REMEMBERED:  # a memory with 25 languages has many combinations of them
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
        """Raise if the file had units, but none with the wanted pair."""
        if self._is_found or not self._num_units:
            return
        wanted = (self.source, self.target)
        missing = [code for code in wanted if all(match_rank(code, seen) is None for seen in self._seen)]
        what = " or ".join(missing) if missing else f"unit with both {self.source} and {self.target}"
        raise CorpusError(f"{self.file} has no {what}: {list_languages(self._seen)}.")


def list_languages(codes: Sequence[str] | dict[str, None]) -> str:
    """The end of an error message: the languages of a file."""
    known = [code for code in codes if code]
    if not known:
        return "it states no languages"
    more = f" and {len(known) - _MAX_LISTED} more" if len(known) > _MAX_LISTED else ""
    return f"its languages are {', '.join(known[:_MAX_LISTED])}{more}"


def check_languages(where: str, wanted: LanguagePair, *, source: str | None, target: str | None) -> None:
    """Raise if a file states languages that do not match the wanted ones; unstated languages pass."""

    def differ(want: str | None, have: str | None) -> bool:
        return bool(want and have and match_rank(want, have) is None)

    def is_same(want: str | None, have: str | None) -> bool:
        return bool(want and have and match_rank(want, have) == 0)

    is_swapped = bool(source and target) and not differ(wanted.source, target) and not differ(wanted.target, source)
    is_matching = not differ(wanted.source, source) and not differ(wanted.target, target)
    # en-GB to en-US matches en-US to en-GB in both directions; then the exact codes decide.
    is_exactly_swapped = is_same(wanted.source, target) and is_same(wanted.target, source)
    if is_matching and (is_same(wanted.source, source) or not is_exactly_swapped):
        return
    stated = f"{source or '?'} to {target or '?'}"
    requested = f"{wanted.source or '?'} to {wanted.target or '?'}"
    if is_swapped:
        raise CorpusError(
            f"{where} translates from {stated}, but {requested} was requested: the languages are swapped."
        )
    raise CorpusError(f"{where} translates from {stated}, but {requested} was requested.")
