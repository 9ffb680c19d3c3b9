"""The default number of threads follows the affinity mask and the CPU quota."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nearmt import cpus
from nearmt.cpus import available_cpus, cpu_quota


def system(tmp_path: Path, groups: str, mounts: str, files: dict[str, str]) -> Path:
    """A folder like /proc/self, whose control groups are under tmp_path."""
    (tmp_path / "cgroup").write_text(groups)
    (tmp_path / "mountinfo").write_text(mounts.replace("/sys", str(tmp_path)))
    for name, content in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return tmp_path


V2 = "30 24 0:26 / /sys/fs rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n24 1 8:1 / / rw - ext4 /dev/root rw\n"
V1 = "31 24 0:27 / /sys/cpu rw shared:9 - cgroup cgroup rw,cpuacct,cpu\n32 24 0:28 / /sys/m rw - cgroup m rw,memory\n"


@pytest.mark.parametrize(
    ("content", "quota"),
    [("max 100000\n", None), ("150000 100000\n", 1.5), ("50000 100000", 0.5), ("", None), ("many 5 a", None)],
)
def test_quota_of_version_2(tmp_path, content, quota):
    assert cpu_quota(system(tmp_path, "0::/a/b\n", V2, {"fs/a/b/cpu.max": content})) == quota


def test_the_lowest_quota_of_a_group_and_its_parents_counts(tmp_path):
    files = {"fs/a/b/cpu.max": "400000 100000", "fs/a/cpu.max": "200000 100000", "fs/cpu.max": "max 100000"}
    assert cpu_quota(system(tmp_path, "0::/a/b\n", V2, files)) == 2.0


@pytest.mark.parametrize(("quota", "found"), [("-1\n", None), ("100000\n", 1.0), ("250000\n", 2.5)])
def test_quota_of_version_1(tmp_path, quota, found):
    files = {"cpu/job/cpu.cfs_quota_us": quota, "cpu/job/cpu.cfs_period_us": "100000\n"}
    groups = "4:memory:/other\n1:cpu,cpuacct:/job\n0::/\n"
    assert cpu_quota(system(tmp_path, groups, V1, files)) == found


def test_a_group_outside_of_the_mount_is_read_at_the_mount(tmp_path):
    """As in a container that sees its own group only, under the path that it has on the host."""
    mounts = V1.replace(" / /sys/cpu", " /docker/abc /sys/cpu")
    files = {"cpu/cpu.cfs_quota_us": "100000", "cpu/cpu.cfs_period_us": "100000"}
    for group in ("/docker/abc", "/elsewhere"):
        assert cpu_quota(system(tmp_path, f"1:cpu:{group}\n", mounts, files)) == 1.0


def test_systems_without_control_groups_have_no_quota(tmp_path):
    assert cpu_quota(tmp_path / "absent") is None
    assert cpu_quota(system(tmp_path, "1:cpu:/\n", "nonsense\n", {})) is None
    assert cpu_quota(system(tmp_path, "4:memory:/\n", V1, {})) is None


@pytest.mark.parametrize(("quota", "expected"), [(None, 4), (0.2, 1), (1.0, 1), (1.5, 2), (3.0, 3), (64.0, 4)])
def test_the_default_is_the_quota_rounded_up_or_the_affinity_mask(monkeypatch, quota, expected):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 5, 7}, raising=False)
    monkeypatch.setattr(cpus, "cpu_quota", lambda: quota)
    assert available_cpus() == expected


def test_without_an_affinity_mask_all_cpus_count(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert available_cpus() == 1


@pytest.mark.parametrize(
    ("quota", "given", "wanted"),
    [("1.0", {}, "1"), ("None", {}, "None"), ("64.0", {}, "2"), ("1.0", {"OMP_NUM_THREADS": "3"}, "3")],
)
def test_import_limits_threads_to_the_quota_unless_the_user_sets_them(quota, given, wanted):
    script = (
        f"import importlib.util, sys; spec = importlib.util.spec_from_file_location('nearmt.cpus', {cpus.__file__!r}); "
        "module = importlib.util.module_from_spec(spec); spec.loader.exec_module(module); "
        f"module.cpu_quota = lambda: {quota}; module.os.sched_getaffinity = lambda process: {{0, 1}}; "
        "sys.modules['nearmt.cpus'] = module; import nearmt, os; print(os.environ.get('OMP_NUM_THREADS'))"
    )
    usual = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    found = subprocess.run([sys.executable, "-c", script], env={**usual, **given}, capture_output=True, text=True)
    assert found.stdout.strip() == wanted, found.stderr
