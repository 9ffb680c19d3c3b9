"""Building: many commits equal one, a kill loses only uncommitted work, a failed build leaves no files."""

import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import toy

from children import started
from nearmt.building import ingest
from nearmt.building.builder import Builder, BuildSettings
from nearmt.building.extract import batches_by_length
from nearmt.corpus import SentencePair
from nearmt.datastore import Manifest, Snapshot, partial_folder
from nearmt.errors import CorpusError, NearMTError, SettingError, StoreError, StoreMismatchError
from nearmt.store import Store, build
from nearmt.translator import Translator

WHOLE = BuildSettings(key_type="float16", dims=None)  # codes that do not depend on the size of the first commit
SMALL = replace(WHOLE, segment_entries=400)


@pytest.fixture
def memory(tmp_path):
    return toy.write_tsv(tmp_path / "memory.tsv", toy.sentences(120, 3))


def built(memory, model, out, **options) -> Snapshot:
    options.setdefault("train", False)
    return build(memory, model=model, out=out, **options).snapshot()


def assert_same_store(one: Snapshot, two: Snapshot) -> None:
    np.testing.assert_array_equal(one.values, two.values)
    np.testing.assert_array_equal(one.positions, two.positions)
    np.testing.assert_array_equal(one.sentences["first_entry"], two.sentences["first_entry"])
    assert list(one.texts()) == list(two.texts())
    # Other batches round float32 sums differently: the keys agree to the precision of float16.
    np.testing.assert_allclose(one.keys.astype(float), two.keys.astype(float), atol=2e-2, rtol=2e-3)
    np.testing.assert_allclose(one.probabilities.astype(float), two.probabilities.astype(float), atol=2e-3)


def test_a_store_of_many_commits_equals_one_of_a_single_commit(memory, toy_model, tmp_path):
    whole = built(memory, toy_model, tmp_path / "whole.store", settings=WHOLE)
    commits = built(memory, toy_model, tmp_path / "commits.store", settings=replace(WHOLE, segment_entries=200))
    assert whole.manifest.extent.segments == 1
    assert commits.manifest.extent.segments >= 5
    assert_same_store(whole, commits)
    files = []
    lines = memory.read_text(encoding="utf-8").splitlines(keepends=True)
    for number in range(5):
        files.append(tmp_path / f"part{number}.tsv")
        files[-1].write_text("".join(lines[number * 24 : (number + 1) * 24]), encoding="utf-8")
    by_file = built(files, toy_model, tmp_path / "files.store")
    np.testing.assert_array_equal(whole.values, by_file.values)
    assert {pair.origin for pair in by_file.texts()} == {f"part{n}.tsv" for n in range(5)}


def test_entries_are_the_models_own_states_and_tokens(memory, toy_model, tmp_path):
    """Compared with the model's output for one pair at a time."""
    snapshot = built(memory, toy_model, tmp_path / "s.store", settings=WHOLE)
    for sentence in (0, 57, 119):
        pair = snapshot.text(sentence)
        (source,), (target,) = toy_model.tokenize_sources([pair.source]), toy_model.tokenize_targets([pair.target])
        forced = toy_model.force_decode([source], [target])
        first, end = snapshot.entry_range(sentence)
        assert snapshot.values[first:end].tolist() == target
        assert snapshot.positions[first:end].tolist() == list(range(len(target)))
        np.testing.assert_allclose(snapshot.keys[first:end].astype(float), forced.states.numpy(), atol=2e-2, rtol=2e-3)
        own = toy_model.project(forced.states).softmax(1).gather(1, forced.token_ids[:, None])[:, 0]
        np.testing.assert_allclose(snapshot.probabilities[first:end].astype(float), own.numpy(), atol=2e-3)


def build_slowly(memory: Path, model: Path, out: Path, *, resume: bool) -> None:
    """Build in a child process, slowly enough to kill it between two commits."""
    decode = ingest.extract_entries

    def slower(*arguments, **options):
        time.sleep(0.3)
        return decode(*arguments, **options)

    ingest.extract_entries = slower
    build(memory, model=model, out=out, train=False, resume=resume, settings=replace(WHOLE, segment_entries=150))


@pytest.mark.parametrize("kills", [1, 3])
def test_a_killed_build_resumes_and_gives_the_same_store(memory, toy_model, client, tmp_path, kills):
    expected = built(memory, toy_model, tmp_path / "expected.store", settings=SMALL)
    out = tmp_path / "killed.store"
    manifest = partial_folder(out) / "manifest.json"
    for number in range(kills):
        seen = json.loads(manifest.read_text())["extent"]["segments"] if number else 0
        worker = started(build_slowly, memory, client.model, out, resume=number > 0)
        try:
            deadline = time.monotonic() + 120
            while time.monotonic() < deadline and worker.is_alive():
                if manifest.exists() and json.loads(manifest.read_text())["extent"]["segments"] > seen:
                    break
                time.sleep(0.02)
        finally:
            worker.kill()
            worker.join()
    assert not out.exists()
    with pytest.raises(StoreError, match="resume its build"):
        Translator(out, model=toy_model, method="base")
    committed = json.loads(manifest.read_text())["extent"]["segments"]
    assert committed >= kills
    resumed = built(memory, toy_model, out, settings=replace(WHOLE, segment_entries=150), resume=True)
    assert_same_store(expected, resumed)
    assert Store(out).verify().is_sound
    assert not partial_folder(out).exists()


def test_a_build_resumes_only_with_the_same_memory_and_keys(memory, toy_model, tmp_path, monkeypatch):
    out = tmp_path / "s.store"

    def interrupted(self):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Builder, "build_index", interrupted)
        with pytest.raises(KeyboardInterrupt):
            built(memory, toy_model, out)
    with pytest.raises(StoreError, match="`resume`"):
        built(memory, toy_model, out)
    with pytest.raises(SettingError, match="`key_type` int8"):
        built(memory, toy_model, out, resume=True, settings=BuildSettings(key_type="float32"))
    for dims, text in ((16, "16"), (None, "full")):
        with pytest.raises(SettingError, match=f"`dims` 96: it cannot be resumed with {text}"):
            built(memory, toy_model, out, resume=True, settings=BuildSettings(dims=dims))
    memory.write_text("anders\tother\n", encoding="utf-8")
    with pytest.raises(SettingError, match="content changed"):
        built(memory, toy_model, out, resume=True)
    built(memory, toy_model, out, force=True)


def test_errors_other_than_bad_input_keep_the_decoded_part(memory, toy_model, tmp_path):
    out = tmp_path / "s.store"
    with pytest.raises(SettingError, match="nonsense"):
        built(memory, toy_model, out, settings=BuildSettings(index="nonsense"))
    assert not partial_folder(out).exists(), "refused before any work"
    with pytest.raises(SettingError, match="at least"):
        built(memory, toy_model, out, train=True, dev=[("one", "pair")])
    assert not partial_folder(out).exists()
    with pytest.raises(SettingError, match="needs at least 9999"):
        built(memory, toy_model, out, settings=BuildSettings(index="IVF9999,Flat"))
    assert partial_folder(out).exists(), "decoded, and kept"
    assert len(built(memory, toy_model, out, resume=True).sentences) == 120


def test_a_build_resumes_only_with_the_same_reading_options(memory, toy_model, tmp_path):
    out = tmp_path / "s.store"
    with pytest.raises(SettingError):
        built(memory, toy_model, out, settings=BuildSettings(index="IVF9999,Flat"))
    with pytest.raises(SettingError, match="keep_identical"):
        built(memory, toy_model, out, resume=True, settings=BuildSettings(keep_identical=True))


def test_a_build_killed_before_its_manifest_starts_over(memory, toy_model, tmp_path):
    out = tmp_path / "s.store"
    partial_folder(out).mkdir()
    assert len(built(memory, toy_model, out, resume=True).sentences) == 120


def test_two_builds_of_one_store_exclude_each_other(memory, toy_model, tmp_path):
    from nearmt.datastore import build_lock
    from nearmt.errors import StoreLockedError

    out = tmp_path / "s.store"
    with build_lock(out), pytest.raises(StoreLockedError, match="another process is building"):
        built(memory, toy_model, out, force=True)
    built(memory, toy_model, out)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["memory.tsv", "s.store"]


def test_dropped_pairs_are_counted_by_reason(toy_model, tmp_path):
    long = " ".join(["tabelle"] * 80)
    rows = [("die tabelle .", "the table ."), ("die tabelle .", "the table ."), ("", "x"), (long, "table"), ("a", "a")]
    memory = toy.write_tsv(tmp_path / "m.tsv", rows)
    snapshot = built(memory, toy_model, tmp_path / "s.store")
    assert snapshot.manifest.build.dropped == {"duplicate": 1, "too long": 1, "empty": 1, "identical": 1}
    assert len(snapshot.sentences) == 1


def test_duplicates_are_found_across_commits(toy_model, tmp_path):
    pairs = toy.sentences(40, 3)
    memory = toy.write_tsv(tmp_path / "m.tsv", pairs + pairs)
    snapshot = built(memory, toy_model, tmp_path / "s.store", settings=BuildSettings(segment_entries=100))
    assert len(snapshot.sentences) == 40
    assert snapshot.manifest.build.dropped == {"duplicate": 40}


def test_bad_input_leaves_no_files_and_does_not_touch_an_existing_store(toy_model, client, tmp_path):
    out = tmp_path / "s.store"
    good = toy.write_tsv(tmp_path / "good.tsv", toy.sentences(30, 3))
    bad = tmp_path / "bad.tsv"
    bad.write_text(good.read_text(encoding="utf-8") + "no tab here\n", encoding="utf-8")
    with pytest.raises(CorpusError, match="31"):
        built(bad, toy_model, out)
    assert list(tmp_path.glob("*.store*")) == []
    before = built(good, toy_model, out)
    with pytest.raises(StoreError, match="`force`"):
        built(good, toy_model, out)
    with pytest.raises(CorpusError):
        built(bad, toy_model, out, force=True)
    assert Manifest.load(out) == before.manifest
    assert Store(out).verify().is_sound


def test_an_error_at_the_end_of_the_input_is_reported_before_decoding(memory, toy_model, tmp_path, monkeypatch):
    events = []
    with memory.open("a", encoding="utf-8") as out:
        out.write("no tab in this line\n")
    monkeypatch.setattr("nearmt.building.ingest.extract_entries", lambda *args, **options: events.append("decoded"))
    with pytest.raises(CorpusError, match="121"):
        build(memory, model=toy_model, out=tmp_path / "s", progress=lambda stage, done, total: events.append(stage))
    assert not events
    assert not partial_folder(tmp_path / "s").exists()


def test_progress_has_a_total(memory, toy_model, tmp_path):
    reports = []

    def report(stage: str, done: int, total: int | None) -> None:
        reports.append((stage, done, total))

    built(memory, toy_model, tmp_path / "s", settings=SMALL, progress=report)
    decoding = [(done, total) for stage, done, total in reports if stage == "decoding"]
    assert len(decoding) > 1
    assert decoding[-1] == (120, 120)


def test_the_output_folder_is_checked_before_the_model_is_loaded(memory, tmp_path):
    (tmp_path / "s.store").mkdir()
    with pytest.raises(StoreError, match="not a nearmt store"):
        build(memory, model=lambda: pytest.fail("the model was loaded"), out=tmp_path / "s.store")


def test_a_function_may_load_the_model(memory, toy_model, tmp_path):
    assert len(built(memory, lambda: toy_model, tmp_path / "s.store").sentences) == 120


def test_a_dev_set_needs_training(memory, toy_model, tmp_path):
    with pytest.raises(SettingError, match="`train=False`"):
        build(memory, model=toy_model, out=tmp_path / "s.store", dev=memory, train=False)


def test_a_folder_that_is_not_a_store_is_never_overwritten(memory, toy_model, tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter").write_text("years of work")
    with pytest.raises(StoreError, match="not a nearmt store"):
        built(memory, toy_model, tmp_path / "thesis", force=True)
    assert (tmp_path / "thesis" / "chapter").exists()


def test_a_store_refuses_another_model_naming_both(client, tmp_path, shared_folder):
    from tiny_models import make_marian

    make_marian(tmp_path / "other")
    with pytest.raises(StoreMismatchError, match=r"toy-model.*other"):
        Translator(client.store, model=str(tmp_path / "other"))


def test_a_memory_without_usable_pairs_is_refused(toy_model, tmp_path):
    (tmp_path / "m.tsv").write_text("a\ta\n")
    with pytest.raises(CorpusError, match=r"no usable pair in m\.tsv \(1 identical\)"):
        built(tmp_path / "m.tsv", toy_model, tmp_path / "s.store")
    with pytest.raises(NearMTError):
        built(tmp_path / "missing.tsv", toy_model, tmp_path / "s.store")


def test_batches_contain_every_sentence_once_within_the_token_limit():
    sources = [[1] * (1 + i % 7) for i in range(50)]
    targets = [[1] * (1 + i % 11) for i in range(50)]
    batches = list(batches_by_length(sources, targets, 40))
    assert sorted(row for batch in batches for row in batch.rows) == list(range(50))
    for batch in batches:
        assert len(batch.rows) * max(len(x) for x in batch.sources + batch.targets) <= 40


def test_pairs_keep_their_unit_origin_and_date(toy_model, tmp_path):
    path = tmp_path / "m.jsonl"
    row = {
        "source": "die tabelle .",
        "target": "the table .",
        "unit_id": "u7",
        "origin": "client",
        "changed_at": "2024-05-01T12:00:00Z",
    }
    path.write_text(json.dumps(row) + "\n")
    (pair,) = built(path, toy_model, tmp_path / "s.store").texts()
    assert pair == SentencePair("die tabelle .", "the table .", "u7", "client", "2024-05-01T12:00:00Z")


def test_keys_can_be_stored_in_full_precision(memory, toy_model, tmp_path):
    snapshot = built(memory, toy_model, tmp_path / "s.store", settings=BuildSettings(key_type="float32"))
    assert snapshot.keys.dtype == np.float32
    assert Path(snapshot.folder / "data-000001" / "keys.float32").exists()
    with pytest.raises(SettingError, match="int4"):
        BuildSettings(key_type="int4")
