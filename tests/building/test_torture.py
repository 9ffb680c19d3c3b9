"""A short torture test; `make torture` runs a long one."""

import os
import re
import subprocess
import sys
from pathlib import Path

import torture
from nearmt.corpus import SentencePair
from torture_memory import Change, Memory

KILLS = 25


def test_nothing_is_lost_when_writers_are_killed(client, tmp_path):
    script = Path(torture.__file__)
    paths = [str(script.parents[1] / "examples"), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, str(script), "--kills", str(KILLS), "--model", str(client.model)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1", "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    kills, summary = re.match(r"(\d+) kills in \d+ s, nothing lost: (.*)", done.stdout).groups()
    assert int(kills) >= KILLS
    assert all(kind in summary for kind in torture.KINDS)
    assert not list(tmp_path.iterdir())


def test_a_kill_may_leave_only_whole_commits_of_the_running_change():
    memory = Memory({("o", "1", "a"): "A", ("o", "2", "b"): "B"})
    pairs = tuple(SentencePair(f"s{i}", f"t{i}", str(i), "new") for i in range(20))
    assert [len(state.units) for state in memory.states_during(Change("add", pairs))] == [2, 10, 18, 22]
    removal = Change("remove", removal=(("unit_id", "2"),))
    assert [len(state.units) for state in memory.states_during(removal)] == [2, 1]
    assert memory.states_during(Change("compact")) == [memory]
