"""The benchmark on a tiny random model and the toy store: every table is there, and distances are kept."""

import json
import time
from types import SimpleNamespace

import numpy as np
import pytest

from children import result_of
from nearmt.cli.options import numbers_of
from nearmt.datastore import Snapshot
from nearmt.errors import SettingError, StoreMismatchError
from nearmt.experiments.bench import BenchSettings, run_bench
from nearmt.experiments.bench.materials import NUM_QUERIES, timing_states
from nearmt.experiments.bench.memory import watched
from nearmt.experiments.bench.report import as_markdown, growth_chart, tables
from nearmt.experiments.bench.settings import TABLES
from nearmt.experiments.bench.timing import Stopwatch, Timing, described, interleaved
from nearmt.models.reference import save_random_marian

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
    assert set(content["tables"]) == set(TABLES) - {"own"}
    assert set(content["tables"]["methods"]["3"]) == {
        "base", *(f"{name}, K={k}" for k in (2, 4) for name in ("vanilla", "uniform", "adaptive", "robust"))
    }  # fmt: skip
    assert any("generate" in name for name in content["tables"]["engines"]["1"])
    parts = content["tables"]["parts"]["3"]
    assert {"encoder", "decoder", "projection", "search", "mixture"} < set(parts)
    assert all(seconds > 0 for seconds in parts.values())
    assert content["about"]["store"]["entries"] == 40_000
    assert 0.5 < content["tables"]["recall"]["mass"] <= 1
    assert content["tables"]["recall"]["num_queries"] == 512
    assert all(told["median"] > 0 and told["entries"] == 256 * 5 for told in content["tables"]["building"].values())
    assert json.loads((out / "bench.json").read_text())["tables"].keys() == content["tables"].keys()
    text = as_markdown(content)
    for heading, table in tables(content):
        assert f"## {heading}" in text
        assert all(len(row) == len(table.headings) for row in table.rows)
    assert len(growth_chart(content).ticks) == len(content["tables"]["growth"])


def test_a_changed_memory_is_timed_beside_the_same_one_compacted(measured):
    out, content = measured
    assert {name for times in content["tables"]["living"].values() for name in times} == {"as it stands", "compacted"}
    changed, compacted = (Snapshot.open(out / f"living-64-40000-float16{end}.store") for end in ("", "-compacted"))
    indexed = changed.manifest.index.num_entries
    assert (len(changed), indexed) == (40_000, 36_000)
    assert changed.live_sentences.mean() == pytest.approx(0.9, abs=0.01)
    assert [pair.source for pair in changed.texts()] == [pair.source for pair in compacted.texts()]
    assert len(compacted) == compacted.manifest.index.num_entries == changed.entry_mask(changed.live_sentences).sum()
    assert "×" in next(rows for heading, table in tables(content) if "removed" in heading for rows in table.rows)[-1]


def test_the_making_of_a_large_store_is_told_also_when_it_is_used_again(measured, client):
    out, content = measured
    told = content["tables"]["scale"]
    assert set(told["made"]) == {"storing", "indexing"}
    assert all(step["seconds"] > 0 for step in told["made"].values())
    assert list(told["search"]) == ["2000", "4000", "20000", "40000"]
    assert 0.5 < told["recall"]["mass"] <= 1
    again = run_bench(client.store, out, BenchSettings(**{**vars(SETTINGS), "tables": ("scale",)}), out.parent / "tiny")
    assert again["tables"]["scale"]["made"] == told["made"]


def test_a_store_is_timed_with_its_own_model_on_real_text(measured, client, tmp_path):
    out, _ = measured
    text = tmp_path / "in.de"
    text.write_text("".join(f"{source}\n" for source, _ in client.test_pairs[:5]), encoding="utf-8")
    chosen = BenchSettings(**{**vars(SETTINGS), "tables": ("own",), "text": text})
    content = run_bench(client.store, tmp_path / "bench", chosen, client.model)
    assert not list((tmp_path / "bench").glob("*.store")), "nothing is made that is not timed"
    found = content["tables"]["own"]["3"]
    assert list(found) == ["base", "adaptive"]
    assert all(told["median"] > 0 and told["tokens"] >= 5 for told in found.values())
    (_, table), *_ = [made for made in tables(content) if "own model" in made[0]]
    assert "×" in table.rows[1][-1]
    with pytest.raises(SettingError, match="--text"):
        BenchSettings(tables=("own",))
    with pytest.raises(SettingError, match="goes with the table own"):
        BenchSettings(tables=("search",), text=text)
    with pytest.raises(SettingError, match="cannot be read"):
        run_bench(client.store, out, BenchSettings(**{**vars(chosen), "text": tmp_path / "none"}))
    with pytest.raises(StoreMismatchError, match="was built with"):
        run_bench(client.store, out, chosen, out.parent / "tiny")


def hold_memory() -> dict[str, dict[str, float]]:
    told: dict[str, dict[str, float]] = {}
    with watched(told, "work"):
        held = np.ones(40_000_000, np.uint8)
        time.sleep(0.3)
        del held
    return told


def test_memory_on_top_is_seen_while_it_is_held():
    told = result_of(hold_memory)  # in a process that gives no other memory back meanwhile
    assert 30e6 < told["work"]["peak_bytes"] < 400e6
    assert told["work"]["seconds"] >= 0.3


def test_the_store_is_used_again(measured, client, monkeypatch):
    out, _ = measured
    monkeypatch.setattr("nearmt.experiments.bench.materials.fill", lambda *args: pytest.fail("made again"))
    monkeypatch.setattr("nearmt.experiments.bench.living.fill", lambda *args: pytest.fail("made again"))
    again = run_bench(
        client.store, out, BenchSettings(**{**vars(SETTINGS), "tables": ("search", "living")}), out.parent / "tiny"
    )
    assert set(again["tables"]) == {"search", "living"}


def test_mapping_to_another_width_keeps_distances():
    keys = np.random.default_rng(5).standard_normal((NUM_QUERIES, 16)).astype(np.float16)

    class Source:
        manifest = SimpleNamespace(width=16)

        def __len__(self):
            return len(keys)

        def float_keys(self, rows):
            return np.asarray(keys[rows], np.float32)

    source = Source()
    queries, stored = list(timing_states(source, 32, 100))
    assert (queries.shape, stored.shape) == ((NUM_QUERIES, 32), (100, 32))
    lengths = np.sort((keys.astype(np.float32) ** 2).sum(axis=1))
    np.testing.assert_allclose(np.sort((queries**2).sum(axis=1)), lengths, rtol=1e-3)
    products = np.sort(queries @ queries[0]), np.sort(keys.astype(np.float32) @ keys[0].astype(np.float32))
    np.testing.assert_allclose(*products, atol=1e-2)
    with pytest.raises(SettingError, match="cannot be mapped"):
        next(timing_states(source, 8, 100))


def test_rounds_are_interleaved_and_the_first_only_warms_up():
    order = []
    found = interleaved({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, 2, pause=0)
    assert order == ["a", "b", "b", "a", "a", "b"]  # there and back, so that none always comes after the same
    assert [len(timing.seconds) for timing in found.values()] == [2, 2]
    assert found["a"].spread >= 0


def test_a_ratio_is_taken_within_rounds_so_that_a_slow_round_does_not_count():
    timings = {"base": Timing((1.0, 4.0, 2.0)), "adaptive": Timing((1.2, 4.8, 2.4))}
    found = described(timings)
    assert found["base"]["ratio"] == 1.0
    assert found["adaptive"]["ratio"] == pytest.approx(1.2)
    assert found["adaptive"]["median"] == 2.4


def test_a_stopwatch_adds_up_and_lets_errors_through():
    watch = Stopwatch()
    assert watch.timed("sum", sum)([1, 2]) == 3
    with pytest.raises(ZeroDivisionError):
        watch.timed("sum", lambda: 1 / 0)()
    assert watch.seconds["sum"] > 0


@pytest.mark.parametrize("bad", [{"tables": ("everything",)}, {"rounds": 0}, {"k": (0,)}, {"batches": ()}])
def test_settings_that_make_no_sense_are_refused(bad):
    with pytest.raises(SettingError):
        BenchSettings(**bad)
    with pytest.raises(SettingError, match="whole numbers"):
        numbers_of("--k", "8,many")
