"""Building and filling agree on which translations are confirmed."""

from pathlib import Path

import pytest
from test_corpus_reading import read_all, write

from nearmt.corpus.confirmation import is_locked, is_untranslatable, trados_status, xliff_2_status
from nearmt.corpus.languages import LanguagePair
from nearmt.documents import translate_document

DOCUMENT = """<xliff version="1.2" xmlns:m="urn:phrase" xmlns:mq="urn:memoq"><file original="a" source-language="de"
target-language="en"><body><trans-unit id="1" {unit}><source>Hund</source><target {target}>{text}</target></trans-unit>
</body></file></xliff>"""


def is_built(folder: Path, unit: str, target: str) -> bool:
    path = write(folder / "built.mqxliff", DOCUMENT.format(unit=unit, target=target, text="dog"))
    return bool(read_all(path)[0])


def is_filled(folder: Path, unit: str, target: str) -> bool:
    path = write(folder / "filled.mqxliff", DOCUMENT.format(unit=unit, target=target, text=""))
    return bool(translate_document(path, folder / "out.xlf", lambda texts: texts, LanguagePair("de", "en")).filled)


@pytest.mark.parametrize(
    ("unit", "target"),
    [
        ('approved="yes"', ""),
        ('m:confirmed="1"', ""),
        ("", 'state="final"'),
        ("", 'state="signed-off"'),
        ('mq:status="ManuallyConfirmed"', ""),
        ('mq:status="Proofread"', ""),
        ('approved="yes"', 'state-qualifier="leveraged-mt"'),
    ],
)
def test_confirmed_units_are_built_from_and_never_filled(tmp_path: Path, unit: str, target: str) -> None:
    assert is_built(tmp_path, unit, target)
    assert not is_filled(tmp_path, unit, target)


@pytest.mark.parametrize(
    ("unit", "target"),
    [
        ('approved="no"', ""),
        ('m:confirmed="0"', ""),
        ("", 'state="new"'),
        ("", 'state="needs-review-translation"'),
        ("", 'state-qualifier="mt-suggestion"'),
        ('mq:status="NotStarted"', ""),
        ('mq:status="MachineTranslated"', ""),
        ('mq:status="PartiallyEdited"', ""),
        ('mq:status="Pretranslated"', ""),
        ('mq:status="Rejected"', ""),
    ],
)
def test_unconfirmed_units_are_filled_and_not_built_from(tmp_path: Path, unit: str, target: str) -> None:
    assert not is_built(tmp_path, unit, target)
    assert is_filled(tmp_path, unit, target)


@pytest.mark.parametrize(("unit", "target"), [("", ""), ("", 'state="translated"'), ('mq:status="Other"', "")])
def test_units_without_a_statement_are_built_from_and_filled_where_empty(
    tmp_path: Path, unit: str, target: str
) -> None:
    assert is_built(tmp_path, unit, target)
    assert is_filled(tmp_path, unit, target)


@pytest.mark.parametrize(
    ("unit", "target"), [('approved="yes"', 'state="new"'), ('approved="no"', 'state="final"'), ('translate="no"', "")]
)
def test_contradictory_and_untranslatable_units_are_neither_built_from_nor_filled(
    tmp_path: Path, unit: str, target: str
) -> None:
    assert not is_built(tmp_path, unit, target)
    assert not is_filled(tmp_path, unit, target)


@pytest.mark.parametrize("unit", ['m:locked="true"', 'mq:locked="locked"'])
def test_locked_units_are_built_from_but_not_filled(tmp_path: Path, unit: str) -> None:
    assert is_built(tmp_path, unit, "")
    assert not is_filled(tmp_path, unit, "")


def test_states_of_xliff_2() -> None:
    confirmed = {state: xliff_2_status(state).is_confirmed for state in ("initial", "translated", "final", None)}
    assert confirmed == {"initial": False, "translated": True, "final": True, None: False}
    assert xliff_2_status("initial").is_unconfirmed
    assert not xliff_2_status(None).is_unconfirmed


def test_trados_levels_are_confirmed_or_not() -> None:
    assert trados_status("ApprovedSignOff").is_confirmed
    assert not trados_status("ApprovedSignOff").is_unconfirmed
    assert trados_status("RejectedTranslation").is_unconfirmed


def test_nearest_translate_attribute_decides() -> None:
    assert is_untranslatable([None, "no", "yes"])
    assert not is_untranslatable([None, "yes", "no"])
    assert not is_untranslatable([])
    assert [is_locked(value) for value in ("true", "locked", "yes", "false", None)] == [True, True, True, False, False]
