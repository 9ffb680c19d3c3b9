"""Many commits while another process translates; `make busy` runs a larger round."""

import os
import re
import subprocess
import sys
from pathlib import Path


def test_a_reader_sees_the_last_of_many_commits_without_errors(client, tmp_path):
    script = Path(__file__).parents[1] / "busy_writer.py"
    paths = [str(script.parents[1] / "examples"), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, str(script), "--commits", "60", "--pairs", "300", "--model", str(client.model)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1", "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    commits, translated, versions = re.match(
        r"(\d+) commits; (\d+) sentences translated, (\d+) versions seen", done.stdout
    ).groups()
    assert int(commits) == 60
    assert int(translated) >= 4
    assert int(versions) >= 2
    # Processor time does not depend on other load of the machine.
    assert float(re.search(r"processor: .* ×([\d.]+)", done.stdout).group(1)) < 1.5
