"""How many CPUs this process may use: its affinity mask and the CPU quota of its control groups.

A container with a quota of one CPU still sees all CPUs of its host. With a thread for each of them, the threads use up
the quota in a fraction of every period and then stand still together. Only the standard library is imported here.
"""

import math
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

_PROC = Path("/proc/self")


def available_cpus() -> int:
    """The number of threads to start by default: CPUs in the affinity mask, but no more than the quota, rounded up."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cpu_quota()
    return allowed if quota is None else max(1, min(allowed, math.ceil(quota)))


def cpu_quota(proc: Path = _PROC) -> float | None:
    """The lowest quota of this process's control groups and their parents, in CPUs; None without a quota."""
    try:
        quotas = [_quota_of(folder) for folder in _cpu_groups(proc)]
    except (OSError, UnicodeDecodeError, ValueError):  # not Linux, or a system that hides its control groups
        return None
    return min((quota for quota in quotas if quota is not None), default=None)


def _cpu_groups(proc: Path) -> Iterator[Path]:
    """The folders of the control groups that limit CPU time, each followed by its parents."""
    groups = _own_groups(proc)
    for line in (proc / "mountinfo").read_text(encoding="utf-8").splitlines():
        before, _, after = line.partition(" - ")
        root, mount_point = before.split()[3:5]
        kind, *_, options = after.split()
        if kind == "cgroup2":
            own = groups.get("")
        elif kind == "cgroup" and "cpu" in options.split(","):
            own = groups.get("cpu")
        else:
            continue
        if own is None:
            continue
        # In a container, the mount may show a part of the tree only, and the group's path may lead out of it.
        inside = PurePosixPath(own).relative_to(root) if PurePosixPath(own).is_relative_to(root) else PurePosixPath()
        top = Path(mount_point)
        folder = top / inside
        yield folder
        yield from (parent for parent in folder.parents if parent.is_relative_to(top))


def _own_groups(proc: Path) -> dict[str, str]:
    """Controller → path of the process's group; the controller of version 2 is ''."""
    groups = {}
    for line in (proc / "cgroup").read_text(encoding="utf-8").splitlines():
        _, controllers, path = line.split(":", 2)
        groups.update(dict.fromkeys(controllers.split(","), path))
    return groups


def _quota_of(folder: Path) -> float | None:
    """The quota of one control group in CPUs, from cpu.max (version 2) or cpu.cfs_quota_us (version 1)."""
    try:
        if (folder / "cpu.max").exists():
            quota, period = (folder / "cpu.max").read_text(encoding="ascii").split()
        else:
            quota, period = (
                (folder / f"cpu.cfs_{name}_us").read_text(encoding="ascii") for name in ("quota", "period")
            )
    except (OSError, ValueError):  # a group without a limit has no such file
        return None
    return None if quota == "max" or int(quota) < 0 else int(quota) / int(period)
