"""A byte flipped, a file cut short or gone: it is named, nothing else is harmed, and repair rescues what is whole."""

import shutil
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nearmt.cli.app import app
from nearmt.corpus import SentencePair
from nearmt.errors import StoreDamagedError
from nearmt.housekeeping import repair
from nearmt.memory import Store, build
from nearmt.store import Manifest, Snapshot, verify
from nearmt.store.columns import columns_of
from nearmt.store.extent import LOG, read_log
from nearmt.translator import Translator
from torture_store import ADAPTATION, BUILD, check_search, content_of, refusal, settle, write_memory

DATA = ("keys.float16", "values.int32", "probabilities.float16", "positions.uint16", "sentences.bin", "texts.jsonl",
        "units.bin", "units.jsonl", "removals.int64")  # fmt: skip
SOURCE = "heute öffnet die tabelle die große zelle ."


def pair(source: str, target: str, unit: str, origin: str = "client") -> SentencePair:
    return SentencePair(source, target, unit, origin)


@pytest.fixture(scope="module")
def made(toy_model, tmp_path_factory) -> Path:
    """Built in several segments, then added to, corrected, removed from, and added to again."""
    folder = tmp_path_factory.mktemp("made")
    store = build(write_memory(folder), model=toy_model, out=folder / "a.store", settings=BUILD, adaptation=ADAPTATION)
    store.add([pair("die neue zelle .", "the new cell .", "n1"), pair("das feld .", "the field .", "n2")])
    store.add([pair("die neue zelle .", "the fresh cell .", "n1")])  # a correction
    store.remove(unit_id="u3")
    store.add([pair("die datei .", "the file .", "n3"), pair("das feld .", "the field .", "other", "second client")])
    store.remove(origin="second client")
    store.remove(source="die datei .")
    store.add([pair("das letzte wort .", "the last word .", "n4")])
    return store.folder


@pytest.fixture
def harmed(made, tmp_path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "harmed.store"))


def expected_content(made: Path, bad: set[int], bad_removals: set[int]) -> Counter[tuple[str, str, str, str]]:
    """What is left without the sentences and units of some segments and the removals of others."""
    snapshot = Snapshot.open(made)
    segments = read_log(made / snapshot.manifest.data_folder / LOG, snapshot.manifest.extent)
    lost_sentences, lost_units, gone = set(), set(), set()
    for number, segment in enumerate(segments):
        first, end = segment.first, segment.end
        if number in bad:
            lost_sentences |= set(range(first.sentences, end.sentences))
            lost_units |= set(range(first.units, end.units))
        if number not in bad_removals:
            gone |= set(snapshot.removals[first.removals : end.removals].tolist())
    found = Counter()
    for number in range(len(snapshot.units)):
        unit = snapshot.unit(number)
        if number not in lost_units | gone and unit.sentence_id not in lost_sentences:
            text = snapshot.text(unit.sentence_id)
            found[text.source, text.target, unit.unit_id, unit.origin] += 1
    return found


def segment_at(made: Path, name: str, byte: int) -> int:
    """The segment that wrote a byte of a column."""
    manifest = Manifest.load(made)
    (column,) = [column for column in columns_of(manifest) if column.name == name]
    for number, segment in enumerate(read_log(made / manifest.data_folder / LOG, manifest.extent)):
        start, length = column.range_of(segment)
        if start <= byte < start + length:
            return number
    raise AssertionError("nothing was written there")


def num_segments(made: Path) -> int:
    return Manifest.load(made).extent.segments


def flip(path: Path, byte: int) -> None:
    content = bytearray(path.read_bytes())
    content[byte] ^= 0x21
    path.write_bytes(content)


def check_reading(folder: Path, toy_model) -> None:
    """Whatever is read of a damaged store works or is refused in one sentence."""
    uses = [
        lambda: Translator(folder, model=toy_model).explain(SOURCE).tokens,
        lambda: Store(folder).info(),
        lambda: list(Store(folder).snapshot().all_units()),
        lambda: Store(folder).remove(unit_id="none"),
    ]
    for use in uses:
        told = refusal(use)
        assert told is None or str(folder) in told


def check_repair(folder: Path, toy_model, expected) -> None:
    repaired = repair(folder)
    assert repaired.problems
    report = verify(folder)
    assert report.is_sound, report.problems
    snapshot = Store(folder).snapshot()
    assert content_of(snapshot) == expected
    assert repaired.kept_sentences == len(snapshot.live_sentence_ids)
    check_search(snapshot, 1)
    method = {} if snapshot.manifest.adaptation else {"method": "vanilla", "k": 4, "temperature": 1.0, "knn_share": 0.5}
    assert Translator(folder, model=toy_model, **method).translate([SOURCE])[0].text
    if snapshot.manifest.adaptation:
        settle(folder)
    assert repair(folder).problems == ()


@pytest.mark.parametrize("share", [0.0, 0.55, 0.999])
@pytest.mark.parametrize("name", DATA)
def test_a_flipped_byte_costs_its_segment_and_no_more(made, harmed, toy_model, name, share):
    path = harmed / "data-000001" / name
    byte = int(path.stat().st_size * share)
    flip(path, byte)
    number = segment_at(made, name, byte)
    (problem,) = verify(harmed).problems
    assert f"segment {number + 1}" in problem
    assert f"{name} was changed" in problem
    check_reading(harmed, toy_model)
    with pytest.raises(StoreDamagedError, match="--repair"):
        Store(harmed).compact()
    is_removal = name == "removals.int64"
    expected = expected_content(made, set() if is_removal else {number}, {number} if is_removal else set())
    check_repair(harmed, toy_model, expected)


@pytest.mark.parametrize("share", [0.0, 0.5, 0.999])
@pytest.mark.parametrize("name", DATA)
def test_a_file_cut_short_costs_what_it_held(made, harmed, toy_model, name, share):
    path = harmed / "data-000001" / name
    size = int(path.stat().st_size * share)
    with path.open("r+b") as file:
        file.truncate(size)
    lost = set(range(segment_at(made, name, size), num_segments(made)))
    problems = verify(harmed).problems
    assert all(f"{name} is cut short" in problem for problem in problems)
    with pytest.raises(StoreDamagedError, match=f"{name} is cut short"):
        Store(harmed)
    check_reading(harmed, toy_model)
    is_removal = name == "removals.int64"
    if size == 0 and not is_removal:
        return  # nothing is left
    expected = expected_content(made, set() if is_removal else lost, lost if is_removal else set())
    check_repair(harmed, toy_model, expected)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.8, 0.9999])
def test_a_log_that_was_changed_costs_nothing_that_fits_its_hashes(made, harmed, toy_model, share):
    path = harmed / "data-000001" / LOG
    flip(path, int(path.stat().st_size * share))
    (problem,) = verify(harmed).problems
    assert f"{LOG} was changed" in problem
    check_reading(harmed, toy_model)
    check_repair(harmed, toy_model, content_of(Snapshot.open(made)))


@pytest.mark.parametrize("byte", [b"\n", b"\r", b"0"])
def test_a_line_of_the_log_broken_in_two_costs_nothing(made, harmed, toy_model, byte):
    path = harmed / "data-000001" / LOG
    content = bytearray(path.read_bytes())
    content[len(content) // 3] = byte[0]
    path.write_bytes(content)
    assert len(verify(harmed).problems) == 1
    check_repair(harmed, toy_model, content_of(Snapshot.open(made)))


@pytest.mark.parametrize("size", [None, 0, 700])
def test_a_log_that_is_gone_costs_nothing_that_fits_its_hashes(made, harmed, toy_model, size):
    path = harmed / "data-000001" / LOG
    if size is None:
        path.unlink()
    else:
        with path.open("r+b") as file:
            file.truncate(size)
    (problem,) = verify(harmed).problems
    assert f"{LOG} is {'missing' if size is None else 'cut short'}" in problem
    check_repair(harmed, toy_model, content_of(Snapshot.open(made)))


def test_without_its_checksums_a_sentence_that_does_not_fit_its_hashes_is_lost(made, harmed, toy_model):
    (harmed / "data-000001" / LOG).unlink()
    texts = harmed / "data-000001" / "texts.jsonl"
    texts.write_bytes(texts.read_bytes().replace(b"the fresh cell", b"the fresh bell"))
    expected = content_of(Snapshot.open(made))
    del expected["die neue zelle .", "the fresh cell .", "n1", "client"]
    check_repair(harmed, toy_model, expected)


def test_a_missing_column_is_named_and_leaves_an_empty_store(harmed, toy_model):
    (harmed / "data-000001" / "texts.jsonl").unlink()
    with pytest.raises(StoreDamagedError, match=r"texts\.jsonl is missing"):
        Store(harmed)
    check_reading(harmed, toy_model)

    assert repair(harmed).kept_sentences == 0
    assert verify(harmed).is_sound
    store = Store(harmed, model=toy_model)
    store.add([pair("die datei .", "the file .", "n3")])
    assert sum(content_of(store.snapshot()).values()) == 1


@pytest.mark.parametrize("harm", ["flip", "cut", "unlink"])
@pytest.mark.parametrize("pattern", ["index-*", "metak-*"])
def test_an_index_or_network_that_was_harmed_costs_nothing_else(made, harmed, toy_model, pattern, harm):
    (path,) = harmed.glob(pattern)
    if harm == "flip":
        flip(path, path.stat().st_size // 2)
    elif harm == "cut":
        path.write_bytes(path.read_bytes()[:-5])
    else:
        path.unlink()
    (problem,) = verify(harmed).problems
    assert problem == f"{path.name} {'is missing' if harm == 'unlink' else 'was changed'}"
    with pytest.raises(StoreDamagedError, match=path.name):
        Translator(harmed, model=toy_model)
    check_repair(harmed, toy_model, content_of(Snapshot.open(made)))
    assert (Manifest.load(harmed).adaptation is None) == (pattern == "metak-*")


def test_what_was_removed_stays_away_when_a_later_commit_is_lost(made, harmed, toy_model):
    keys = harmed / "data-000001" / "keys.float16"
    with keys.open("r+b") as file:
        file.truncate(keys.stat().st_size // 2)
    before = content_of(Snapshot.open(made))

    assert repair(harmed).lost_removals == 0
    assert not content_of(Snapshot.open(harmed)) - before


def test_lost_removals_are_told(harmed, toy_model):
    flip(harmed / "data-000001" / "removals.int64", 0)
    told = CliRunner().invoke(app, ["verify", str(harmed)])
    assert told.exit_code == 2
    assert "removals.int64 was changed" in told.stderr
    assert "--repair" in told.stderr
    told = CliRunner().invoke(app, ["verify", str(harmed), "--repair"])
    assert told.exit_code == 0
    assert "1 removals could not be read" in told.stderr
    told = CliRunner().invoke(app, ["verify", str(harmed), "--repair"])
    assert "nothing to repair" in told.stdout


def test_a_changed_manifest_is_named(harmed):
    path = harmed / "manifest.json"
    path.write_bytes(path.read_bytes().replace(b'"width": 64', b'"width": 65'))
    for read in (verify, Store):
        with pytest.raises(StoreDamagedError, match=r"manifest\.json is damaged"):
            read(harmed)
