"""Reports of the end-to-end tests."""

from __future__ import annotations

from tools.conformance.results import Outcome, differing, family, outcomes, progress, table

STORAGE = "[sig-storage] Secrets should be mounted [NodeConformance]"
RESIZE = "[sig-node] Pod InPlace Resize Container burstable pods [NodeConformance]"
POD_RESIZE = "[sig-node] PLR Pod InPlace Resize guaranteed [NodeConformance] [Slow]"
NODE = "[sig-node] Pods should run [NodeConformance]"

REPORT = f"""<?xml version="1.0"?>
<testsuites><testsuite>
<testcase name="[SynchronizedBeforeSuite]" status="passed"></testcase>
<testcase name="[It] {STORAGE}" status="passed"></testcase>
<testcase name="[It] {RESIZE}" status="failed"><failure message="no"></failure></testcase>
<testcase name="[It] {POD_RESIZE}"><skipped message="skipped - no X"/></testcase>
<testcase name="[It] {NODE}" status="skipped"><skipped message="skipped"/></testcase>
<testcase name="[It] {NODE} again" status="interrupted"><error message="late"></error></testcase>
</testsuite></testsuites>
"""


def test_an_unselected_test_has_no_outcome() -> None:
    assert outcomes(REPORT) == {
        STORAGE: Outcome.PASSED,
        RESIZE: Outcome.FAILED,
        POD_RESIZE: Outcome.SKIPPED,
        f"{NODE} again": Outcome.FAILED,
    }


def test_a_test_belongs_to_the_first_family_that_matches() -> None:
    assert [family(each) for each in (STORAGE, RESIZE, POD_RESIZE, NODE, "[sig-apps] Job")] == [
        "`[sig-storage]` `[NodeConformance]`",
        "in-place resize of containers",
        "in-place resize of pods",
        "`[sig-node]` `[NodeConformance]`",
        "other `[sig-apps]`",
    ]


def test_a_table_has_a_column_for_each_run() -> None:
    runs = {
        ("1.37.2", "kubeletpy"): outcomes(REPORT),
        ("1.37.2", "kubelet"): {STORAGE: Outcome.PASSED},
    }
    assert table(runs).splitlines() == [
        "| tests | 1.37.2, kubelet | 1.37.2, kubeletpy |",
        "| --- | --- | --- |",
        "| in-place resize of containers |  | 0 of 1 |",
        "| in-place resize of pods |  | 0 of 0, 1 skipped |",
        "| `[sig-node]` `[NodeConformance]` |  | 0 of 1 |",
        "| `[sig-storage]` `[NodeConformance]` | 1 of 1 | 1 of 1 |",
    ]


def test_differences_are_of_tests_that_both_ran() -> None:
    ours = {NODE: Outcome.PASSED, RESIZE: Outcome.FAILED, STORAGE: Outcome.PASSED}
    theirs = {NODE: Outcome.PASSED, RESIZE: Outcome.PASSED}
    assert differing(ours, theirs) == [f"failed and passed: {RESIZE}"]


def test_progress_counts_the_bullets_of_ginkgos_logs() -> None:
    ended = "•••\n---\n• [FAILED] [3.1 seconds]\n---\n• [2.0 seconds]\nS"
    parallel = f"Will run 9 of 7581 specs\n{ended}"
    line = progress([parallel, "Will run 1 of 7581 specs\n"], 125.0)
    assert line == "2 min: 4 passed, 1 failed, 5 left or skipped"
