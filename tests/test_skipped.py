"""What was skipped is listed with its reason, and fails the run where it had to run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
CONFTEST = "from skipped import *\n"
MODULE = """
import pytest

@pytest.mark.part("paint")
@pytest.mark.skipif(CONDITION, reason="there is no paint")
@pytest.mark.parametrize("colour", ["red", "blue"])
def test_paint(colour):
    pass

@pytest.fixture
def brush():
    pytest.skip("there is no brush")

@pytest.mark.part("brush")
def test_brush(brush):
    pass

@pytest.mark.part("wall")
def test_wall():
    assert WALL
"""
ABSENT = 'import pytest\npytest.importorskip("no_such_module", reason="no_such_module is not installed")\n'


@pytest.fixture
def run(tmp_path):
    def run(*arguments: str, required: str = "", has_paint: bool = True, has_wall: bool = True):
        (tmp_path / "conftest.py").write_text(CONFTEST)
        module = MODULE.replace("CONDITION", str(not has_paint)).replace("WALL", str(has_wall))
        (tmp_path / "test_room.py").write_text(module)
        (tmp_path / "test_absent.py").write_text(ABSENT)
        (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -q --strict-markers\n")
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        environment |= {"PYTHONPATH": str(TESTS), "NEARMT_REQUIRED_PARTS": required}
        environment |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "xdist.plugin"}
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )

    return run


@pytest.mark.parametrize("arguments", [(), ("-n", "2", "--dist", "loadfile")])
def test_skips_are_listed_with_their_reasons(run, arguments):
    done = run(*arguments, has_paint=False)
    assert done.returncode == 0, done.stdout + done.stderr
    listed = done.stdout.split(" skipped -")[1]
    assert "   2  test_room.py: there is no paint\n" in listed
    assert "   1  test_room.py: there is no brush\n" in listed
    assert "   1  test_absent.py: no_such_module is not installed\n" in listed
    assert "required parts" not in done.stdout


def test_a_run_without_skips_says_so(run):
    done = run("test_room.py", "-k", "wall")
    assert done.returncode == 0
    assert done.stdout.split(" skipped -")[1].splitlines()[1] == "nothing"


@pytest.mark.parametrize("arguments", [(), ("-n", "2", "--dist", "loadfile")])
def test_a_required_part_that_was_skipped_fails_the_run(run, arguments):
    done = run(*arguments, required="paint,wall,brush,cellar", has_paint=False)
    assert done.returncode == 1
    assert "required parts that did not run completely: paint, brush, cellar\n" in done.stdout


def test_a_required_part_that_ran_is_enough(run):
    done = run(required="paint,wall")
    assert done.returncode == 0
    assert "required parts" not in done.stdout


def test_a_failed_test_ran(run):
    done = run(required="paint,wall", has_wall=False)
    assert done.returncode == 1
    assert "required parts" not in done.stdout
