"""The benchmarks, on a tiny random model and the toy store."""

import json
import math
import subprocess
import time
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from children import result_of
from nearmt.cli.values import numbers_of
from nearmt.datastore import Snapshot, verify
from nearmt.errors import SettingError, StoreMismatchError
from nearmt.experiments.bench import BenchSettings, run_bench
from nearmt.experiments.bench.grown import grown_store
from nearmt.experiments.bench.materials import NUM_QUERIES, timing_states
from nearmt.experiments.bench.peak_memory import track_memory
from nearmt.experiments.bench.report import as_markdown, growth_chart, tables
from nearmt.experiments.bench.settings import TABLES
from nearmt.experiments.bench.timing import Stopwatch, Timing, interleaved, summarize
from nearmt.models.reference import save_random_marian
from nearmt.progress import silent

SETTINGS = BenchSettings(
    entries=40_000, batches=(1, 3), k=(2, 4), beam=2, source_length=6, output_length=5, rounds=1, index="IVF16,PQ32x4fs"
)


@pytest.fixture(scope="module")
def measured(client, tmp_path_factory):
    out = tmp_path_factory.mktemp("bench") / "out"
    save_random_marian(out.parent / "tiny", vocabulary=300, width=64, layers=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nearmt.experiments.bench.systems.ORIGINAL_INDEX", "IVF16,PQ8x4")
        content = run_bench(client.store, out, SETTINGS, out.parent / "tiny")
    return out, content


def test_every_table_is_measured_and_written(measured):
    out, content = measured
    assert set(content["tables"]) == set(TABLES) - {"own", "job", "sizes"}
    methods = [f"{name}, K={k}" for k in (2, 4) for name in ("vanilla", "uniform", "adaptive", "robust")]
    assert set(content["tables"]["methods"]["3"]) == {"base", *methods}
    assert any("generate" in name for name in content["tables"]["engines"]["1"])
    parts = content["tables"]["parts"]["3"]
    assert {"encoder", "decoder", "projection", "search", "mixture"} < set(parts)
    assert all(seconds > 0 for seconds in parts.values())
    assert content["about"]["store"]["entries"] == 40_000
    assert 0.5 < content["tables"]["recall"]["mass"] <= 1
    assert content["tables"]["recall"]["num_queries"] == 512
    assert all(rate["median"] > 0 and rate["entries"] == 256 * 5 for rate in content["tables"]["building"].values())
    assert json.loads((out / "bench.json").read_text())["tables"].keys() == content["tables"].keys()
    text = as_markdown(content)
    for heading, table in tables(content):
        assert f"## {heading}" in text
        assert all(len(row) == len(table.headings) for row in table.rows)
    assert len(growth_chart(content).ticks) == len(content["tables"]["growth"])


def test_a_changed_store_is_compared_with_its_compacted_copy(measured):
    out, content = measured
    assert {name for times in content["tables"]["living"].values() for name in times} == {"as it stands", "compacted"}
    changed, compacted = (Snapshot.open(out / f"living-64-40000-float16{end}.store") for end in ("", "-compacted"))
    indexed = changed.manifest.index.num_entries
    assert (len(changed), indexed) == (40_000, 36_000)
    assert changed.live_sentences.mean() == pytest.approx(0.9, abs=0.01)
    assert [pair.source for pair in changed.texts()] == [pair.source for pair in compacted.texts()]
    assert len(compacted) == compacted.manifest.index.num_entries == changed.entry_mask(changed.live_sentences).sum()
    assert "×" in next(rows for heading, table in tables(content) if "removed" in heading for rows in table.rows)[-1]


def test_build_costs_are_reported_again_when_the_store_is_reused(measured, client):
    out, content = measured
    scale = content["tables"]["scale"]
    assert set(scale["made"]) == {"storing", "indexing"}
    assert all(step["seconds"] > 0 for step in scale["made"].values())
    assert list(scale["search"]) == ["2000", "4000", "20000", "40000"]
    assert 0.5 < scale["recall"]["mass"] <= 1
    again = run_bench(client.store, out, BenchSettings(**{**vars(SETTINGS), "tables": ("scale",)}), out.parent / "tiny")
    assert again["tables"]["scale"]["made"] == scale["made"]


def test_a_store_is_timed_with_its_own_model_on_real_text(measured, client, tmp_path):
    out, _ = measured
    text = tmp_path / "in.de"
    text.write_text("".join(f"{source}\n" for source, _ in client.test_pairs[:5]), encoding="utf-8")
    chosen = BenchSettings(**{**vars(SETTINGS), "tables": ("own",), "text": text})
    content = run_bench(client.store, tmp_path / "bench", chosen, client.model)
    assert not list((tmp_path / "bench").glob("*.store")), "own needs no timing store"
    found = content["tables"]["own"]["3"]
    assert list(found)[:2] == ["base", "adaptive"]
    assert set(list(found)[2:]) <= {"CTranslate2, int8"}, "which may be installed"
    assert all(result["median"] > 0 and result["tokens"] >= 5 for result in found.values())
    (table,) = [table for heading, table in tables(content) if "own model" in heading]
    assert "×" in table.rows[1][-1]
    with pytest.raises(SettingError, match="needs `text`"):
        BenchSettings(tables=("own",))
    with pytest.raises(SettingError, match="only used by the tables own, job and sizes"):
        BenchSettings(tables=("search",), text=text)
    with pytest.raises(SettingError, match="cannot be read"):
        run_bench(client.store, out, BenchSettings(**{**vars(chosen), "text": tmp_path / "none"}))
    with pytest.raises(StoreMismatchError, match="was built with"):
        run_bench(client.store, out, chosen, out.parent / "tiny")


def test_a_whole_file_is_timed_with_and_without_reused_matches(client, tmp_path):
    text = tmp_path / "in.de"
    stored = [pair.source for pair in Snapshot.open(client.store).texts()][:2]
    text.write_text("".join(f"{source}\n" for source in [*stored, client.test_pairs[0][0]]), encoding="utf-8")
    chosen = BenchSettings(**{**vars(SETTINGS), "tables": ("job",), "text": text})
    content = run_bench(client.store, tmp_path / "bench", chosen, client.model)
    found = content["tables"]["job"]
    assert (found["segments"], found["exact_matches"]) == (3, 2)
    systems = found["systems"]
    assert list(systems) == ["base", "adaptive", "adaptive, exact matches reused"]
    assert systems["base"]["ratio"] == 1
    assert systems["adaptive, exact matches reused"]["median"] < systems["adaptive"]["median"], "two are not decoded"
    (table,) = [table for heading, table in tables(content) if "whole file" in heading]
    assert table.headings[0] == "3 segments, 2 of them in the memory"


@pytest.fixture(scope="module")
def grown(client, tmp_path_factory):
    out = tmp_path_factory.mktemp("grown")
    text = out / "in.de"
    text.write_text("".join(f"{source}\n" for source, _ in client.test_pairs[:5]), encoding="utf-8")
    chosen = BenchSettings(**{**vars(SETTINGS), "entries": 20_000, "tables": ("sizes",), "batches": (3,), "text": text})
    return out / "out", run_bench(client.store, out / "out", chosen, client.model)


def test_retrieval_is_measured_at_several_sizes(grown):
    _, content = grown
    found = content["tables"]["sizes"]
    assert list(found["stores"]) == ["1000", "4000", "20000"]
    for size, store in found["stores"].items():
        assert store["store"]["entries"] >= int(size)
        assert set(store["made"]) == {"storing", "indexing"}
        assert store["warm"]["sources"] == store["cold"]["sources"] == 4
        assert store["warm"]["choosing"]["median"] > 0
        assert store["warm"]["opening"]["processor"] > 0
        assert store["tokens"]["opening"]["processor"] > 0
    times = found["translation"]["3"]
    grown = [f"{retrieval} {size}" for retrieval in ("sentences", "tokens") for size in (1000, 4000, 20000)]
    assert list(times) == ["base", *grown]
    assert len({result["tokens"] for result in times.values()}) == 1, "all give the same output"
    assert all(result["processor_ratio"] > 0 for result in times.values())
    (table,) = [table for heading, table in tables(content) if "as the store grows" in heading]
    assert table.headings[1:] == ("1,000 entries", "4,000 entries", "20,000 entries")
    assert table.rows[-1][1:][0].startswith("×")
    assert "as the store grows" in as_markdown(content)


def test_a_grown_store_has_changed_copies_and_is_reused(grown, client, monkeypatch):
    out, _ = grown
    source, store = Snapshot.open(client.store), Snapshot.open(out / "grown-20000.store")
    total, entries = len(source.sentences), len(source)
    assert (store.keys[:entries] == source.keys).all()
    assert (store.keys[entries : 2 * entries] != source.keys).any()
    assert (store.values[entries : 2 * entries] == source.values).all()
    first, second = (
        [store.sides(n)[0].split() for n in range(total)],
        [store.sides(n)[0].split() for n in range(total, 2 * total)],
    )
    changed = [sum(a != b for a, b in zip(one, other, strict=True)) for one, other in zip(first, second, strict=True)]
    assert 0 < np.mean(changed) < 2
    assert verify(store.folder).is_sound
    monkeypatch.setattr("nearmt.experiments.bench.grown._noisy", lambda *args: pytest.fail("made again"))
    again = grown_store(store.folder, source, 20_000, silent)
    assert again.manifest == store.manifest


def test_an_interrupted_store_grows_to_the_same_one(client, tmp_path, monkeypatch):
    source = Snapshot.open(client.store)
    monkeypatch.setattr("nearmt.experiments.bench.grown._COPIED", 100)

    def stop(stage, done, total):
        if stage == "storing" and done > 3000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        grown_store(tmp_path / "a.store", source, 4000, stop)
    before = Snapshot.open(tmp_path / "a.store")
    assert 3000 < len(before) < 4000
    after = grown_store(tmp_path / "a.store", source, 4000, silent)
    whole = grown_store(tmp_path / "b.store", source, 4000, silent)
    assert (after.keys == whole.keys).all()
    assert [pair.source for pair in after.texts()] == [pair.source for pair in whole.texts()]


def test_a_measurement_runs_beside_busy_processes(measured, client, monkeypatch):
    out, _ = measured
    children: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def start(*args, **options):
        children.append(popen(*args, **options))
        return children[-1]

    monkeypatch.setattr(subprocess, "Popen", start)
    chosen = BenchSettings(**{**vars(SETTINGS), "tables": ("search",), "busy": 2})
    content = run_bench(client.store, out, chosen, out.parent / "tiny")
    assert len(children) == 2
    assert all(child.returncode for child in children), "they end with the measurement"
    assert "2 other busy processes" in as_markdown(content)
    with pytest.raises(SettingError, match="busy"):
        BenchSettings(busy=-1)


def hold_memory() -> dict[str, dict[str, float]]:
    costs: dict[str, dict[str, float]] = {}
    with track_memory(costs, "work"):
        held = np.ones(40_000_000, np.uint8)
        time.sleep(0.3)
        del held
    return costs


def test_peak_memory_includes_memory_freed_within_the_block():
    costs = result_of(hold_memory)  # in a process that frees no other memory meanwhile
    assert 30e6 < costs["work"]["peak_bytes"] < 400e6
    assert costs["work"]["seconds"] >= 0.3


def test_a_second_run_reuses_the_stores(measured, client, monkeypatch):
    out, _ = measured
    monkeypatch.setattr("nearmt.experiments.bench.materials.fill", lambda *args: pytest.fail("made again"))
    monkeypatch.setattr("nearmt.experiments.bench.living.fill", lambda *args: pytest.fail("made again"))
    again = run_bench(
        client.store, out, BenchSettings(**{**vars(SETTINGS), "tables": ("search", "living")}), out.parent / "tiny"
    )
    assert set(again["tables"]) == {"search", "living"}


def test_mapping_to_another_width_preserves_distances():
    keys = np.random.default_rng(5).standard_normal((NUM_QUERIES, 16)).astype(np.float16)

    class Source:
        manifest = SimpleNamespace(key_dims=16)

        def __len__(self):
            return len(keys)

        def float_keys(self, rows):
            return np.asarray(keys[rows], np.float32)

    source = cast(Snapshot, Source())
    queries, stored = list(timing_states(source, 32, 100))
    assert (queries.shape, stored.shape) == ((NUM_QUERIES, 32), (100, 32))
    lengths = np.sort((keys.astype(np.float32) ** 2).sum(axis=1))
    np.testing.assert_allclose(np.sort((queries**2).sum(axis=1)), lengths, rtol=1e-3)
    products = np.sort(queries @ queries[0]), np.sort(keys.astype(np.float32) @ keys[0].astype(np.float32))
    np.testing.assert_allclose(*products, atol=1e-2)
    with pytest.raises(SettingError, match="cannot be mapped"):
        next(timing_states(source, 8, 100))


def test_rounds_are_interleaved_after_a_warm_up_round():
    order = []
    found = interleaved({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, 2, pause=0)
    assert order == ["a", "b", "b", "a", "a", "b"]  # alternating direction, so that no run always follows the same one
    assert [len(timing.seconds) for timing in found.values()] == [2, 2]
    assert found["a"].spread >= 0


def test_ratios_are_taken_within_rounds():
    timings = {"base": Timing((1.0, 4.0, 2.0)), "adaptive": Timing((1.2, 4.8, 2.4))}
    found = summarize(timings)
    assert found["base"]["ratio"] == 1.0
    assert found["adaptive"]["ratio"] == pytest.approx(1.2)
    assert found["adaptive"]["median"] == 2.4


def test_a_stopwatch_counts_calls_that_fail_too():
    watch = Stopwatch()
    assert watch.timed("sum", math.fsum)([1, 2]) == 3
    with pytest.raises(ZeroDivisionError):
        watch.timed("sum", lambda: 1 / 0)()
    assert watch.seconds["sum"] > 0


@pytest.mark.parametrize("bad", [{"tables": ("everything",)}, {"rounds": 0}, {"k": (0,)}, {"batches": ()}])
def test_invalid_settings_are_rejected(bad):
    (field,) = bad
    with pytest.raises(SettingError, match=f"`{field}`"):
        BenchSettings(**bad)


def test_lists_of_numbers_reject_other_words():
    with pytest.raises(SettingError, match="whole numbers"):
        numbers_of("--k", "8,many")
