"""``python -m tools.lab.matrix``: the tests of virtual nodes on each Debian, as a table.

Arguments that name a suite (bookworm, trixie, testing), a kind of machine (uml, qemu) or an OCI
runtime (runc, crun) choose it; others are pytest's. The table is in Markdown, as
docs/conformance.md has it.
``./test.sh nodes --matrix`` is the same.
"""

from __future__ import annotations

import datetime
import itertools
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from tools.lab.image import CHECKOUT
from tools.lab.kinds import KINDS, NAMES
from tools.lab.recipe import CRUN, RUNC, RUNTIMES, SUITES

TESTS = "tests/nodes"
HEADING = """\
| distribution | kernel | systemd | cgroup | runtime | Python | date | result | repeat |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |"""


@dataclass(frozen=True)
class Outcome:
    """One suite's run: how many tests ended how, in how many seconds, and its node's versions."""

    passed: int
    failed: Sequence[str]
    seconds: float
    versions: Mapping[str, str]


def parse_report(text: str) -> Outcome:
    """Read pytest's JUnit report of one run. Raises ElementTree.ParseError."""
    (run,) = ElementTree.fromstring(text).iter("testsuite")
    cases = list(run.iter("testcase"))
    failed = [str(case.get("name")) for case in cases if _has_failed(case)]
    versions = {str(each.get("name")): str(each.get("value")) for each in run.iter("property")}
    skipped = sum(case.find("skipped") is not None for case in cases)
    return Outcome(
        # a test that failed and whose node could not be cleaned up has two entries
        passed=len(cases) - len(failed) - skipped,
        failed=list(dict.fromkeys(failed)),
        seconds=float(run.get("time", 0)),
        versions=versions,
    )


def _has_failed(case: ElementTree.Element) -> bool:
    return case.find("failure") is not None or case.find("error") is not None


def table_row(
    outcome: Outcome, chosen: Sequence[str], arguments: Sequence[str], date: datetime.date
) -> str:
    """A row of the table; ``chosen`` are its suite, kind of machine and OCI runtime."""
    suite, kind, oci = chosen
    version = {**dict.fromkeys(("kernel", "systemd", "cgroup", "python"), "?"), **outcome.versions}
    total = outcome.passed + len(outcome.failed)
    result = f"{outcome.passed} of {total} passed in {outcome.seconds:.0f} s"
    if outcome.failed:
        result += f"; failed: {', '.join(outcome.failed)}"
    runtime = ", ".join(
        f"{name} {version[name]}" for name in ("containerd", oci) if name in version
    )
    columns = (
        version.get("distribution", suite),
        f"{NAMES[kind]} {version['kernel']}",
        *(version["systemd"], version["cgroup"], runtime, version["python"]),
        date.isoformat(),
        result,
        f"`./test.sh nodes --matrix {shlex.join([*chosen, *arguments])}`",
    )
    return f"| {' | '.join(columns)} |"


def divide(parts: Sequence[str]) -> tuple[list[tuple[str, str, str]], list[str]]:
    """Runs to make (suite, kind of machine and OCI runtime), and the arguments of pytest.

    A column without a chosen word has all its values; Debian testing alone has crun.
    """
    named = [[word for word in parts if word in all_] for all_ in (SUITES, KINDS, (RUNC, CRUN))]
    suites, kinds, runtimes = named
    rest = [word for word in parts if not any(word in each for each in named)]
    product = itertools.product(suites or SUITES, kinds or KINDS, runtimes or (RUNC, CRUN))
    return [each for each in product if each[2] in RUNTIMES[each[0]]], rest


def main(parts: Sequence[str]) -> int:
    """Run the tests on each suite and kind, and print the table of results."""
    runs, arguments = divide(parts)
    if not runs:
        print(f"matrix: no such nodes: {shlex.join(parts)}", file=sys.stderr)
        return 2
    paths = [] if any(each.startswith(TESTS) for each in arguments) else [TESTS]
    status, rows = 0, []
    for suite, kind, oci in runs:
        report = CHECKOUT / "build" / f"nodes-{suite}-{kind}-{oci}.xml"
        report.parent.mkdir(exist_ok=True)
        report.unlink(missing_ok=True)
        begin = time.monotonic()
        options = ("-p", "tools.env.no_skips", "-o", "timeout=3600")
        machine = (f"--suite={suite}", f"--machine={kind}", f"--oci={oci}", f"--junitxml={report}")
        command = (sys.executable, "-m", "pytest", *options, *machine)
        done = subprocess.run([*command, *arguments, *paths], cwd=CHECKOUT, check=False)
        status = status or done.returncode
        rows.append(_row_of(report, (suite, kind, oci), arguments, time.monotonic() - begin))
    print("", HEADING, *rows, sep="\n")
    return status


def _row_of(report: Path, chosen: Sequence[str], arguments: Sequence[str], seconds: float) -> str:
    if not report.exists():
        return f"| {', '.join(chosen)} | not run to its end ({seconds:.0f} s) |"
    today = datetime.datetime.now(datetime.UTC).date()
    return table_row(parse_report(report.read_text()), chosen, arguments, today)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
