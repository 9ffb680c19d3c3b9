"""Building on Ray gives the same store as a local build, even if workers or the driver are killed."""

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import toy

from nearmt.building.builder import BuildSettings
from nearmt.building.compatibility import model_description
from nearmt.building.ray import RaySettings, check_installed
from nearmt.building.ray.connection import connected
from nearmt.building.ray.worker import Job, Refusal, Worker
from nearmt.cli.options import RayOptions
from nearmt.datastore import Languages, Manifest, Snapshot, partial_folder
from nearmt.errors import ClusterError, MissingExtraError, SettingError
from nearmt.models import Seq2Seq
from nearmt.store import Store, build

pytestmark = [
    pytest.mark.part("ray"),
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed"),
]
SMALL = BuildSettings(segment_entries=100)
UNIT_FIELDS = ["sentence", "identity", "unit_hash", "origin_hash", "is_first"]  # without the time of the build


@pytest.fixture(scope="module")
def ray_here() -> Iterator[None]:
    """One cluster for all tests of this file; builds use the cluster that their process has joined."""
    with connected(RaySettings(workers=5)):
        yield


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With repeated pairs and a correction, so that some commits have no new sentence and some remove a unit."""
    pairs = toy.sentences(150, 3)
    rows = [{"source": s, "target": t, "unit_id": f"u{n}", "origin": "a"} for n, (s, t) in enumerate(pairs)]
    rows[60:60] = [{**row, "origin": "b"} for row in rows[:50]]
    rows.append({**rows[7], "target": "the table ."})
    path = tmp_path_factory.mktemp("ray") / "memory.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def local(memory: Path, toy_model: Seq2Seq, tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    return built(memory, toy_model, tmp_path_factory.mktemp("local") / "s.store")


def built(memory, model, out, **options) -> Snapshot:
    return build(memory, model=model, out=out, train=False, **{"settings": SMALL, **options}).snapshot()


def assert_same_store(found: Snapshot, expected: Snapshot) -> None:
    decoded, expected_keys = (snapshot.key_code.decode(snapshot.keys) for snapshot in (found, expected))
    np.testing.assert_allclose(decoded, expected_keys, atol=2e-2, rtol=2e-3)
    assert_same_store_apart_from_keys(found, expected)


def assert_same_store_apart_from_keys(found: Snapshot, expected: Snapshot) -> None:
    for name in ("values", "positions", "sentences", "removals"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    np.testing.assert_array_equal(found.units[UNIT_FIELDS], expected.units[UNIT_FIELDS])
    assert list(found.all_units()) == list(expected.all_units())
    np.testing.assert_allclose(found.probabilities.astype(float), expected.probabilities.astype(float), atol=2e-3)
    counts = [snapshot.manifest.extent.counts for snapshot in (found, expected)]
    assert counts[0] == counts[1]
    assert found.manifest.build == expected.manifest.build
    assert found.manifest.model == expected.manifest.model
    assert Store(found.folder).verify().is_sound
    assert not partial_folder(found.folder).exists()


def test_workers_build_the_same_store_as_a_local_build(ray_here, memory, toy_model, local, tmp_path):
    workers, reports = 4, []  # other tests use one and two
    found = built(
        memory,
        toy_model,
        tmp_path / "s.store",
        cluster=RaySettings(workers),
        progress=lambda stage, done, total: reports.append((stage, done, total)),
    )
    assert_same_store(found, local)
    assert found.manifest.extent.segments == local.manifest.extent.segments >= 10
    assert ("workers", 1, workers) in reports
    decoding = [done for stage, done, total in reports if stage == "decoding"]
    assert decoding == sorted(decoding)
    assert decoding[-1] == 201


def test_int8_keys_share_one_range_and_workers_use_the_engine_of_the_model(ray_here, memory, client, tmp_path):
    fast = Seq2Seq.load(client.model, engine="int8")
    settings = replace(SMALL, key_type="int8")
    expected = built(memory, fast, tmp_path / "local.store", settings=settings)
    found = built(memory, fast, tmp_path / "ray.store", settings=settings, cluster=RaySettings())
    assert found.manifest.model["engine"] == "int8"
    found_range, expected_range = found.manifest.key_range, expected.manifest.key_range
    assert found_range
    assert expected_range
    np.testing.assert_allclose(found_range["lowest"], expected_range["lowest"], atol=1e-2)
    assert_same_store(found, expected)


def test_reduced_keys_have_one_projection_in_all_workers(ray_here, memory, toy_model, tmp_path):
    settings = replace(SMALL, dims=8)
    expected = built(memory, toy_model, tmp_path / "local.store", settings=settings)
    found = built(memory, toy_model, tmp_path / "ray.store", settings=settings, cluster=RaySettings())
    assert found.keys.shape == expected.keys.shape == (len(expected), 8)
    assert expected.key_code.projection is not None
    np.testing.assert_allclose(found.key_code.projection, expected.key_code.projection, atol=1e-3)
    differences = np.abs(found.keys.astype(int) - expected.keys.astype(int))
    assert differences.max() <= 1, "only rounding differs"
    assert (differences > 0).mean() < 0.01
    assert_same_store_apart_from_keys(found, expected)
    assert found.manifest.sentence_index is not None
    assert expected.manifest.sentence_index is not None
    checksums = [list(one.manifest.sentence_index.files.values()) for one in (found, expected)]
    assert checksums[0] == checksums[1]


def worker_pids() -> list[int]:
    """Process ids of the workers of this process's cluster."""
    parents, names = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            names[int(folder.name)] = (folder / "cmdline").read_text().split("\0")[0].strip()
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it has ended
    found = []
    for pid, name in names.items():
        above = pid
        while above in parents and above != os.getpid():
            above = parents[above]
        if above == os.getpid() and name.startswith("ray::Worker"):
            found.append(pid)
    return found


def test_a_killed_worker_is_replaced_without_effect_on_the_store(ray_here, memory, toy_model, local, tmp_path):
    ready: list[int] = []
    killed: list[int] = []
    earlier = worker_pids()

    def listen(stage: str, done: int, total: int | None) -> None:
        if stage != "workers":
            return
        ready.append(done)
        if not killed:  # the first is ready and about to get tasks; another may still be loading
            killed.extend(pid for pid in worker_pids() if pid not in earlier)
            for pid in killed:
                os.kill(pid, signal.SIGKILL)

    found = built(memory, toy_model, tmp_path / "s.store", cluster=RaySettings(), progress=listen)
    assert killed
    assert ready.count(1) >= 2, "the first was lost and replaced"
    assert_same_store(found, local)


def test_a_build_resumes_after_its_driver_was_killed(ray_here, memory, toy_model, client, local, tmp_path):
    out = tmp_path / "s.store"
    script = f"""
import time
from nearmt.building.builder import BuildSettings
from nearmt.building.ray import RaySettings
from nearmt.store import build
build({str(memory)!r}, model={str(client.model)!r}, out={str(out)!r}, train=False, cluster=RaySettings(),
      settings=BuildSettings(segment_entries=100), progress=lambda stage, done, total: time.sleep(0.3))
"""
    manifest = partial_folder(out) / "manifest.json"
    driver = subprocess.Popen([sys.executable, "-c", script])
    try:
        deadline = time.monotonic() + 240
        while time.monotonic() < deadline and driver.poll() is None:
            if manifest.exists() and json.loads(manifest.read_text())["extent"]["segments"] >= 2:
                break
            time.sleep(0.02)
    finally:
        driver.kill()
        driver.wait()
    assert not out.exists()
    assert 2 <= json.loads(manifest.read_text())["extent"]["segments"] < 10
    # Uncommitted bytes are truncated.
    keys = partial_folder(out) / "data-000001" / "keys.float16"
    with keys.open("ab") as file:
        file.write(b"uncommitted")
    assert_same_store(built(memory, toy_model, out, resume=True, cluster=RaySettings()), local)


def test_the_command_builds_on_ray_and_leaves_no_files_or_processes(memory, client, local, tmp_path):
    out = tmp_path / "s.store"
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="t") as folder:
        command = [sys.executable, "-m", "nearmt", "build", str(memory), "--model", str(client.model)]
        command += ["--out", str(out), "--engine", "ray:torch", "--workers", "1", "--no-train", "--json"]
        home = Path(folder) / "home"
        home.mkdir()
        done = subprocess.run(
            command, capture_output=True, text=True, env={**os.environ, "TMPDIR": folder, "HOME": str(home)}
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["sentences"] == len(local.sentences)
        assert "workers 1 of 1" in done.stderr
        assert [path.name for path in Path(folder).glob("nearmt*")] == []
        assert list(home.glob(".ray*")) == []
        running = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
        assert not [line for line in running if folder.encode() in line]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s.store"]
    np.testing.assert_array_equal(Snapshot.open(out).values, local.values)


def test_an_error_in_a_worker_is_reported_in_one_sentence(ray_here, memory, client, tmp_path):
    shutil.copytree(client.model, tmp_path / "model")
    model = Seq2Seq.load(tmp_path / "model")
    shutil.rmtree(tmp_path / "model")
    with pytest.raises(ClusterError, match=r"^the worker on \S+ failed: .*model"):
        built(memory, model, tmp_path / "s.store", cluster=RaySettings(workers=1))


def test_the_build_fails_if_workers_are_lost_repeatedly_or_do_not_start(
    ray_here, memory, toy_model, tmp_path, monkeypatch
):
    earlier = worker_pids()

    def kill(stage: str, done: int, total: int | None) -> None:
        if stage == "workers" and done:
            for pid in set(worker_pids()) - set(earlier):
                os.kill(pid, signal.SIGKILL)

    with monkeypatch.context() as patch:
        patch.setattr("nearmt.building.ray.pool._MAX_LOSSES", 1)
        with pytest.raises(ClusterError, match=r"^1 workers were lost over the same sentences, .* because .") as lost:
            built(memory, toy_model, tmp_path / "a.store", cluster=RaySettings(workers=1), progress=kill)
    assert "common causes" not in str(lost.value)
    assert "\n" not in str(lost.value)
    monkeypatch.setattr("nearmt.building.ray.pool._START_TIMEOUT", 1.0)
    with pytest.raises(ClusterError, match=r"each needs 1 CPU, 0.001 GPU, and the cluster has [0-9.]+ CPU free$"):
        built(memory, toy_model, tmp_path / "b.store", cluster=RaySettings(workers=1, gpus=0.001))


def job_for(model: Seq2Seq, folder: Path) -> Job:
    manifest = Manifest(
        model=model_description(model), languages=Languages(model.source_lang, model.target_lang), width=model.width
    )
    manifest.save(folder)
    return Job(folder, manifest, batch_tokens=4096, dtype="float32", device="cpu", threads=1, offline=True)


def test_a_worker_refuses_another_folder_model_or_version(toy_model, tmp_path):
    job = job_for(toy_model, tmp_path)
    elsewhere = Worker(replace(job, folder=tmp_path / "nowhere")).load()
    assert isinstance(elsewhere, Refusal)
    assert "which all workers must reach under the same path" in elsewhere.reason
    another = replace(job, manifest=replace(job.manifest, created_at="2020-01-01T00:00:00Z"))
    assert "does not see" in Worker(another).load().reason
    older = Worker(replace(job, version="0.0.1")).load()
    assert "started by nearmt 0.0.1" in older.reason
    gone = replace(job, manifest=replace(job.manifest, model={**job.manifest.model, "name": "/no/such/model"}))
    assert "the model folder /no/such/model does not exist" in Worker(gone).load().reason
    changed = replace(job, manifest=replace(job.manifest, model={**job.manifest.model, "weights": "f" * 64}))
    assert "weights ffffffffffff" in Worker(changed).load().reason


def options(engine: str = "ray", threads: int | None = None, **given) -> tuple[str, RaySettings | None]:
    return RayOptions(**given).resolve(engine, threads, offline=False)


def test_the_engine_option_selects_ray_and_the_engine_of_its_workers():
    assert options("int8") == ("int8", None)
    assert options() == ("auto", RaySettings())
    assert options("ray:int8", workers=4, threads=2) == ("int8", RaySettings(workers=4, threads=2))
    assert options(gpus=0.5, address="auto") == ("torch", RaySettings(gpus=0.5, address="auto"))
    for given in ({"workers": 2}, {"address": "auto"}, {"gpus": 0.0}):
        with pytest.raises(SettingError, match=rf"^--{next(iter(given))} is for building on Ray"):
            options("torch", **given)
    with pytest.raises(SettingError, match="`workers` and `threads`"):
        RaySettings(workers=0)
    with pytest.raises(SettingError, match="`gpus`"):
        RaySettings(gpus=-1)


def test_without_ray_the_error_names_the_extra(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r'pip install "nearmt\[ray\]"$'):
        check_installed()


def test_an_unreachable_cluster_is_reported_in_one_sentence(monkeypatch):
    ray = pytest.importorskip("ray")
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with (
        pytest.raises(ClusterError, match=r"^cannot join a Ray cluster at 127\.0\.0\.1:1: .*refused"),
        connected(RaySettings(address="127.0.0.1:1")),
    ):
        pass


def test_a_process_that_has_joined_a_cluster_refuses_another_address(ray_here, memory, toy_model, tmp_path):
    with pytest.raises(SettingError, match="already joined a Ray cluster"):
        built(memory, toy_model, tmp_path / "s.store", cluster=RaySettings(address="auto"))
    assert list(tmp_path.iterdir()) == []
