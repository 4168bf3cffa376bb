"""The probes of a pod and the latest findings of each. Pure.

Probe output from containers is on one line and truncated.
"""

from __future__ import annotations

from kubeletpy.observe.explain.facts import PodFacts
from kubeletpy.observe.explain.model import ProbeView
from kubeletpy.observe.explain.texts import one_line
from kubeletpy.pods.probe_results import ProbeOutcome
from kubeletpy.probes.report import ProbeReport
from kubeletpy.probes.schedule import ProbeKind

MAX_WORDS = 160


def probes(facts: PodFacts) -> tuple[ProbeView, ...]:
    """Every probe that has something to report."""
    return tuple(_view(facts, report) for report in facts.probe_reports)


def find_report(facts: PodFacts, container: str, kind: ProbeKind) -> ProbeReport | None:
    """The latest findings of a probe; None: the container has no such probe now."""
    reports = (each for each in facts.probe_reports if each.container == container)
    return next((each for each in reports if each.kind is kind), None)


def last_words(facts: PodFacts, container: str, kind: ProbeKind) -> str:
    """The problem that a probe's latest run found; "" when there was none or no output.

    Until the latest container has had a run, that for which the one before it was killed.
    """
    report = find_report(facts, container, kind)
    found = None if report is None else report.last or report.killed_with
    if found is None or found.outcome is ProbeOutcome.SUCCESS:
        return ""
    return one_line(found.words, MAX_WORDS)


def _view(facts: PodFacts, report: ProbeReport) -> ProbeView:
    found = report.last
    last = "" if found is None else "error" if found.outcome is None else found.outcome.value
    return ProbeView(
        report.container,
        report.kind.value.lower(),
        "" if report.settled is None else report.settled.value,
        last,
        "" if found is None else one_line(found.words, MAX_WORDS),
        None if found is None else report.at + facts.wall_offset,
        report.streak,
        report.threshold,
        None if report.next_at is None else report.next_at + facts.wall_offset,
    )
