"""The matrix: suites to run, and the row made from a pytest report."""

from __future__ import annotations

import datetime

import pytest

from tools.lab import matrix
from tools.lab.recipe import SUITES
from tools.lab.versions import containerd_generation

REPORT = """\
<?xml version="1.0" encoding="utf-8"?>
<testsuites><testsuite name="pytest" errors="1" failures="1" skipped="1" tests="4" time="61.7">
<properties>
<property name="distribution" value="Debian GNU/Linux 13 (trixie)"/>
<property name="kernel" value="6.1.176"/>
<property name="systemd" value="257"/>
<property name="cgroup" value="v2"/>
<property name="containerd" value="1.7.24"/>
<property name="runc" value="1.1.15"/>
<property name="python" value="3.13.5"/>
</properties>
<testcase name="test_good" time="1"/>
<testcase name="test_bad" time="2"><failure message="no"/></testcase>
<testcase name="test_bad" time="2"><error message="no cleanup"/></testcase>
<testcase name="test_not_run"><skipped/></testcase>
</testsuite></testsuites>
"""
DATE = datetime.date(2026, 11, 27)


SUITE, KIND, OCI = range(3)


def test_all_that_no_word_chooses_is_run() -> None:
    runs, rest = matrix.divide(["-x", "tests/nodes/test_x.py"])
    assert rest == ["-x", "tests/nodes/test_x.py"]
    assert {run[SUITE] for run in runs} == set(SUITES)
    assert {run[KIND] for run in runs} == {"uml", "qemu"}
    # Debian testing alone has crun
    assert [run for run in runs if run[OCI] == "crun"] == [
        ("testing", "uml", "crun"),
        ("testing", "qemu", "crun"),
    ]


@pytest.mark.parametrize(
    "parts, runs",
    [
        (["trixie"], [("trixie", "uml", "runc"), ("trixie", "qemu", "runc")]),
        (["testing", "crun", "uml"], [("testing", "uml", "crun")]),
        (["runc", "testing", "qemu"], [("testing", "qemu", "runc")]),
        (["bookworm", "crun"], []),
    ],
    ids=str,
)
def test_words_choose_suites_machines_and_runtimes(
    parts: list[str], runs: list[tuple[str, str, str]]
) -> None:
    assert matrix.divide([*parts, "-k", "limits"]) == (runs, ["-k", "limits"])


def test_a_suite_without_the_runtime_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert matrix.main(["bookworm", "crun"]) == 2
    assert "bookworm crun" in capsys.readouterr().err


def test_a_row_has_versions_result_and_command() -> None:
    outcome = matrix.parse_report(REPORT)
    assert (outcome.passed, outcome.failed) == (1, ["test_bad"])
    assert matrix.table_row(outcome, ("trixie", "uml", "runc"), ["-k", "limits"], DATE) == (
        "| Debian GNU/Linux 13 (trixie) | user-mode Linux 6.1.176 | 257 | v2 |"
        " containerd 1.7.24, runc 1.1.15 | 3.13.5 | 2026-11-27 |"
        " 1 of 2 passed in 62 s; failed: test_bad |"
        " `./test.sh nodes --matrix trixie uml runc -k limits` |"
    )
    row = matrix.table_row(outcome, ("trixie", "qemu", "runc"), [], DATE)
    assert "| QEMU, Linux 6.1.176 |" in row
    assert row.endswith("| `./test.sh nodes --matrix trixie qemu runc` |")


def test_a_node_that_did_not_boot_has_a_row_without_versions() -> None:
    report = """<testsuites><testsuite time="3"><testcase name="test_x"><error message="no boot"/>
    </testcase></testsuite></testsuites>"""
    row = matrix.table_row(matrix.parse_report(report), ("testing", "uml", "crun"), [], DATE)
    assert row.startswith("| testing | user-mode Linux ? | ? | ? |  | ? | 2026-11-27 |")
    assert "0 of 1 passed in 3 s; failed: test_x" in row


@pytest.mark.parametrize(
    "version, generation", [("1.6.20~ds1", 2), ("1.7.24~ds1", 2), ("v2.1.9", 3), ("2.1.9+ds1", 3)]
)
def test_containerd_2_reads_the_third_configuration(version: str, generation: int) -> None:
    assert containerd_generation(version) == generation
