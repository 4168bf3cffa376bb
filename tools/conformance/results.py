"""Results of a run of the end-to-end tests, by family of tests and as a table (pure)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from xml.etree import ElementTree


class Outcome(Enum):
    """Outcome of one test."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


def outcomes(report: str) -> dict[str, Outcome]:
    """The outcome of each test that was run, by name, from ginkgo's JUnit report.

    Tests that the run did not select are left out; those that skip themselves are SKIPPED.
    """
    found = {}
    for case in ElementTree.fromstring(report).iter("testcase"):
        name = case.get("name", "")
        if not name.startswith("[It] "):
            continue
        skipped = case.find("skipped")
        if skipped is not None:
            # ginkgo gives a reason for what skipped itself, and none for what was not selected
            if not skipped.get("message", "").startswith("skipped - "):
                continue
            outcome = Outcome.SKIPPED
        else:
            failed = case.find("failure") is not None or case.find("error") is not None
            outcome = Outcome.FAILED if failed else Outcome.PASSED
        found[name.removeprefix("[It] ")] = outcome
    return found


def progress(logs: Sequence[str], seconds: float) -> str:
    """A line on how far the logs of ginkgo are, which write a bullet for each test that ended."""
    planned = sum(int(found) for log in logs for found in re.findall(r"Will run (\d+) of", log))
    done = sum(log.count("•") for log in logs)
    failed = sum(len(re.findall(r"• \[[A-Z]", log)) for log in logs)
    counts = f"{done - failed} passed, {failed} failed, {planned - done} left or skipped"
    return f"{seconds / 60:.0f} min: {counts}"


FAMILIES: Mapping[str, Callable[[str], object]] = {
    "in-place resize of containers": re.compile(r"\] Pod InPlace Resize").search,
    "in-place resize of pods": re.compile(r"\] PLR Pod InPlace Resize").search,
    "`[sig-node]` `[NodeConformance]`": re.compile(r"\[sig-node\].*\[NodeConformance\]").search,
    "`[sig-storage]` `[NodeConformance]`": re.compile(
        r"\[sig-storage\].*\[NodeConformance\]"
    ).search,
}
"""A test belongs to the first family that takes its name."""


def family(test: str) -> str:
    """The family of a test, by its name: one of FAMILIES, or else that of its group."""
    found = next((name for name, takes in FAMILIES.items() if takes(test)), "")
    group = re.search(r"\[sig-[a-z-]+\]", test)
    return found or (f"other `{group[0]}`" if group else "others")


def table(runs: Mapping[tuple[str, str], Mapping[str, Outcome]]) -> str:
    """A Markdown table of runs, each named by its Kubernetes release and its node agent."""
    columns = sorted(runs)
    rows = [
        ["tests", *(f"{release}, {agent}" for release, agent in columns)],
        ["---"] * (len(columns) + 1),
    ]
    others = {family(test) for run in runs.values() for test in run} - FAMILIES.keys()
    for each in [*FAMILIES, *sorted(others)]:
        cells = [_cell(each, runs[column]) for column in columns]
        if any(cells):
            rows.append([each, *cells])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _cell(desired: str, run: Mapping[str, Outcome]) -> str:
    counts = Counter(outcome for test, outcome in run.items() if family(test) == desired)
    ran = counts[Outcome.PASSED] + counts[Outcome.FAILED]
    skipped = f", {counts[Outcome.SKIPPED]} skipped" if counts[Outcome.SKIPPED] else ""
    return f"{counts[Outcome.PASSED]} of {ran}{skipped}" if ran or skipped else ""


def differing(ours: Mapping[str, Outcome], theirs: Mapping[str, Outcome]) -> list[str]:
    """The tests that ended differently with two agents, a line each; sorted by name."""
    return [
        f"{ours[test].value} and {theirs[test].value}: {test}"
        for test in sorted(ours.keys() & theirs.keys())
        if ours[test] is not theirs[test]
    ]
