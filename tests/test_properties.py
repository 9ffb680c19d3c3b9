"""Property tests draw the same examples in every run, and many fresh ones in `make fuzz`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import settings

from properties import examples

HERE = Path(__file__).parent
SAMPLE = """
from hypothesis import given, strategies as st
from properties import examples

drawn = []

@examples(50)
@given(st.integers())
def test_sample(number):
    drawn.append(number)

def teardown_module():
    print("drawn", drawn)
"""


@pytest.mark.parametrize(("profile", "at_least", "is_same"), [("same", 50, True), ("fuzz", 250, False)])
def test_a_profile_says_how_many_are_drawn_and_whether_they_are_the_same(tmp_path, profile, at_least, is_same):
    (tmp_path / "test_sample.py").write_text(SAMPLE)
    (tmp_path / "conftest.py").write_text("from properties import use_profiles\nuse_profiles()\n")
    plugins = ["-p", "no:cacheprovider", "-p", "_hypothesis_pytestplugin"]
    command = [sys.executable, "-m", "pytest", "-s", *plugins, f"--hypothesis-profile={profile}"]
    environment = {"PYTHONPATH": str(HERE), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    runs = []
    for _ in range(2):
        found = subprocess.run(
            command,
            cwd=tmp_path,
            env=os.environ | environment,
            capture_output=True,
            text=True,
            check=True,
        )
        runs.append(next(line for line in found.stdout.splitlines() if "drawn" in line).partition("drawn ")[2])
    assert runs[0].count(",") + 1 >= at_least
    assert (runs[0] == runs[1]) is is_same


def test_no_test_says_by_itself_how_many_examples_it_draws():
    found = [path.name for path in HERE.rglob("*.py") if "max_examples" + "=" in path.read_text(encoding="utf-8")]
    assert found == ["properties.py"]


def test_a_test_gets_its_share_of_what_the_profile_draws():
    assert examples(60).max_examples == settings().max_examples * 60 // 100
    assert examples(1).deadline is None
