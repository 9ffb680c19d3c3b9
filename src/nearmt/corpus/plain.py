"""Reads pairs from plain text: tab-separated lines, JSON lines, and two line-aligned files.

All are UTF-8. nearmt itself defines the date column, so a bad date is an error and is not ignored.
"""

import itertools
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from nearmt.corpus.languages import LanguagePair, PairFinder
from nearmt.corpus.pairs import PairSieve, SentencePair, utc_date
from nearmt.corpus.streams import count_lines, display_name, origin_name, read_lines
from nearmt.errors import CorpusError

_KEY_PAIRS = (("source", "target"), ("src", "tgt"))
_SURROGATE = re.compile("[\ud800-\udfff]")


def _numbered_lines(path: str | Path) -> Iterator[tuple[int, str]]:
    number = 0
    for number, line in enumerate(read_lines(path), start=1):
        yield number, line
    if number == 0:
        raise CorpusError(f"{display_name(path)} is empty.")


def _checked_date(text: str, where: str) -> str | None:
    if not text.strip():
        return None
    date = utc_date(text)
    if date is None:
        raise CorpusError(f"{where}: {text!r} is not an ISO 8601 date such as 2024-05-01T12:00:00Z.")
    return date


def read_tsv(path: str | Path, languages: LanguagePair, sieve: PairSieve) -> Iterator[SentencePair]:
    """Columns: source, target and optionally unit id, origin and date; further columns are ignored.

    A TSV file does not name its languages.
    """
    name, file_origin = display_name(path), origin_name(path)
    for number, line in _numbered_lines(path):
        if not line.strip():
            sieve.drops.add("empty")
            continue
        columns = line.split("\t")
        if len(columns) < 2:
            raise CorpusError(f"{name}, line {number} has no tab: source and target must be two columns.")
        unit_id, origin, date = [*columns, "", "", ""][2:5]
        pair = sieve.pair(
            columns[0],
            columns[1],
            unit_id=unit_id.strip() or None,
            origin=origin.strip() or file_origin,
            changed_at=_checked_date(date, f"{name}, line {number}"),
        )
        if pair is not None:
            yield pair


def read_aligned(source_path: str | Path, target_path: str | Path, sieve: PairSieve) -> Iterator[SentencePair]:
    """Pair line n of the first file with line n of the second; both must have the same number of lines."""
    # Counting first takes at most a second per gigabyte, and the error comes before a store is half built.
    if Path(source_path).is_file() and Path(target_path).is_file():
        _check_counts(source_path, target_path, count_lines(source_path), count_lines(target_path))
    sources, targets = _numbered_lines(source_path), _numbered_lines(target_path)
    origin = origin_name(source_path)
    for source, target in itertools.zip_longest(sources, targets):
        if source is None or target is None:
            paired = (source or target)[0] - 1
            counts = paired + (source is not None), paired + (target is not None)
            _check_counts(source_path, target_path, counts[0] + _rest(sources), counts[1] + _rest(targets))
        source_line, target_line = source[1], target[1]
        pair = sieve.pair(source_line, target_line, unit_id=None, origin=origin, changed_at=None)
        if pair is not None:
            yield pair


def _rest(lines: Iterator[tuple[int, str]]) -> int:
    return sum(1 for _ in lines)


def _check_counts(source_path: str | Path, target_path: str | Path, source_count: int, target_count: int) -> None:
    if source_count != target_count:
        raise CorpusError(
            f"{display_name(source_path)} has {source_count} lines but {display_name(target_path)} has "
            f"{target_count}: line-aligned files must have the same number of lines."
        )


def read_jsonl(path: str | Path, languages: LanguagePair, sieve: PairSieve) -> Iterator[SentencePair]:
    """One JSON object per line; see `_sides` for the names of source and target."""
    name, file_origin = display_name(path), origin_name(path)
    finder = PairFinder(name, languages.source or "", languages.target or "")
    for number, line in _numbered_lines(path):
        if not line.strip():
            sieve.drops.add("empty")
            continue
        where = f"{name}, line {number}"
        record = _parse_record(line, where)
        sides = _sides(record, languages, finder, where)
        if sides is None:
            sieve.drops.add("missing language")
            continue
        pair = sieve.pair(
            _text(sides[0], where),
            _text(sides[1], where),
            unit_id=_text(record.get("unit_id", record.get("id")), where, may_be_number=True) or None,
            origin=_text(record.get("origin"), where) or file_origin,
            changed_at=_checked_date(_text(record.get("changed_at"), where), where),
        )
        if pair is not None:
            yield pair
    finder.finish()


def _parse_record(line: str, where: str) -> dict[str, object]:
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise CorpusError(f"{where} is not JSON: {error.msg} at column {error.colno}.") from error
    except (RecursionError, ValueError) as error:  # ValueError: an integer of thousands of digits
        raise CorpusError(f"{where} cannot be read as JSON: it is nested too deeply or too large.") from error
    if not isinstance(record, dict):
        raise CorpusError(f"{where} is not a JSON object.")
    return record


def _sides(
    record: dict[str, object], languages: LanguagePair, finder: PairFinder, where: str
) -> tuple[object, object] | None:
    """source/target, src/tgt, a `translation` object by language code, or the codes themselves as keys."""
    for source_key, target_key in _KEY_PAIRS:
        if source_key in record and target_key in record:
            return record[source_key], record[target_key]
    nested = record.get("translation")
    texts: Mapping[str, object] = nested if isinstance(nested, dict) else record
    keys = list(texts)
    if not languages.source or not languages.target:
        raise CorpusError(
            f"{where} has neither source and target nor src and tgt among its keys {', '.join(keys)}; if they are "
            f"language codes, set `source_lang` and `target_lang`."
        )
    found = finder.find(keys)
    if found is not None:
        return texts[keys[found[0]]], texts[keys[found[1]]]
    # Checked last, because next to a translation `source` may say where it was found.
    for present, absent in (*_KEY_PAIRS, *(pair[::-1] for pair in _KEY_PAIRS)):
        if texts is record and present in record:
            raise CorpusError(f"{where} has {present!r} but no {absent!r}.")
    return None


def _text(value: object, where: str, *, may_be_number: bool = False) -> str:
    if value is None:
        return ""
    if may_be_number and isinstance(value, int):
        return str(value)
    if not isinstance(value, str):
        raise CorpusError(f"{where}: {json.dumps(value)[:60]} is not a string.")
    if _SURROGATE.search(value):  # JSON can contain half a character, which no encoding and no tokenizer accepts
        raise CorpusError(f"{where} has half of a surrogate pair, which is not a character.")
    return value
