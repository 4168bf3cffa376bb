"""A pytest plugin (`-p tools.env.no_skips`): a skipped test makes the run fail, and is named.

A test that the runtime of ``--runtime`` or the machine of ``--lacking`` can't run does not fail the
run; the report names the missing ability.
"""

from __future__ import annotations

import pytest

LACKS = "lacks"
"""A property of tests that are not run: who lacks what for it."""

_skipped: list[str] = []
_lacking: dict[str, list[str]] = {}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Record skipped tests; an expected failure (xfail) is not a skip."""
    if report.skipped and not hasattr(report, "wasxfail"):
        missing = dict(report.user_properties).get(LACKS)
        if missing is None:
            _skipped.append(report.nodeid)
        else:
            _lacking.setdefault(str(missing), []).append(report.nodeid)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Record modules that skip themselves."""
    if report.skipped:
        _skipped.append(report.nodeid)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a successful run with skipped tests."""
    if _skipped and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the skipped tests."""
    for name in _skipped:
        terminalreporter.write_line(f"SKIPPED, which counts as a failure: {name}", red=True)
    for missing, names in sorted(_lacking.items()):
        for name in names:
            terminalreporter.write_line(f"NOT RUN, {missing}: {name}", yellow=True)
