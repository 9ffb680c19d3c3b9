"""What a run of the tests left out, and why: listed at its end, and an error where it had to run.

A test that needs more than Python packages names its part: `@pytest.mark.part("browser")`. The parts listed in
NEARMT_REQUIRED_PARTS, separated by commas, must run: the run fails if one of their tests was skipped or none ran. CI
lists all of them; elsewhere a machine may lack some.
"""

import os
from collections import Counter
from collections.abc import Iterable

import pytest


def _required() -> list[str]:
    return [part for part in os.environ.get("NEARMT_REQUIRED_PARTS", "").split(",") if part]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "part(name): the test belongs to a part that CI must run (tests/skipped.py)")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:  # reports carry this, also from one process to another
        item.user_properties += [("part", mark.args[0]) for mark in item.iter_markers("part")]


def _parts(reports: Iterable[object]) -> set[str]:
    found = (getattr(report, "user_properties", []) for report in reports)
    return {value for properties in found for name, value in properties if name == "part"}


def _missing(config: pytest.Config) -> list[str]:
    """The parts that had to run and did not, or not wholly."""
    stats = config.pluginmanager.getplugin("terminalreporter").stats
    ran = _parts(report for outcome in ("passed", "failed") for report in stats.get(outcome, []))
    skipped = _parts(stats.get("skipped", []))
    return [part for part in _required() if part not in ran or part in skipped]


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    is_worker = hasattr(session.config, "workerinput")
    if not is_worker and session.exitstatus == pytest.ExitCode.OK and _missing(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter, config: pytest.Config) -> None:
    reasons: Counter[tuple[str, str]] = Counter()
    for report in terminalreporter.stats.get("skipped", []):
        path, line, reason = report.longrepr
        # A mark is where the test is; pytest.skip() may be in a helper, which says less than the test's own file.
        reasons[report.nodeid.split("::")[0] or f"{path}:{line}", reason.removeprefix("Skipped: ")] += 1
    terminalreporter.section("skipped", sep="-")
    for (path, reason), number in sorted(reasons.items()):
        terminalreporter.line(f"{number:4}  {path}: {reason}")
    if not reasons:
        terminalreporter.line("nothing")
    if missing := _missing(config):
        terminalreporter.line(f"required parts that did not run completely: {', '.join(missing)}", red=True)
