"""Metrics of the process: its build, its start time, what it uses."""

from __future__ import annotations

import platform
from collections.abc import Mapping

from prometheus_client import ProcessCollector

from kubeletpy.metrics.families import Families

BUILD_LABELS = (
    *("major", "minor", "git_version", "git_commit", "git_tree_state", "build_date"),
    *("go_version", "compiler", "platform"),
)


class ProcessMetrics:
    """Build and feature gates; process_* (start time, CPU, memory, files) are read at a scrape."""

    def __init__(self, families: Families) -> None:
        self.build_info = families.gauge(
            "kubernetes_build_info", "Always 1; the labels identify the build.", *BUILD_LABELS
        )
        self.feature_enabled = families.gauge(
            "kubernetes_feature_enabled", "1 for feature gates that are on.", "name", "stage"
        )
        self.longest_turn = families.gauge(
            "kubeletpy_event_loop_longest_turn_seconds",
            "Longest time that the event loop answered nobody, since the scrape before this one.",
        )
        self.stalls = families.counter(
            "kubeletpy_event_loop_stalls_total",
            "Times that the event loop answered nobody for a quarter of a second or more.",
        )
        ProcessCollector(registry=families.registry)

    def set_build(self, git_version: str) -> None:
        """Set the build info; ``git_version`` is the kubeletVersion that the node reports."""
        major, _, rest = git_version.removeprefix("v").partition(".")
        machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine())
        labels = {
            "major": major,
            "minor": rest.partition(".")[0],
            "git_version": git_version,
            "git_commit": "",
            "git_tree_state": "",
            "build_date": "",
            "go_version": "",
            "compiler": f"{platform.python_implementation()} {platform.python_version()}",
            "platform": f"{platform.system().lower()}/{machine or platform.machine()}",
        }
        self.build_info.clear()
        self.build_info.labels(**labels).set(1)

    def set_features(self, gates: Mapping[str, tuple[str, bool]]) -> None:
        """Set the feature gates: name -> (stage: GA, Beta, Alpha or Deprecated; enabled)."""
        for name, (stage, enabled) in gates.items():
            label = "" if stage == "GA" else stage.upper()
            self.feature_enabled.labels(name, label).set(1 if enabled else 0)


def show_start(families: Families) -> None:
    """Make families with an endpoint of their own report the process start time, too."""
    started = families.gauge("process_start_time_seconds", "Start of the process, Unix seconds.")
    found = ProcessCollector(registry=None).collect()
    at = next((m.samples[0].value for m in found if m.name == "process_start_time_seconds"), None)
    if at is not None:
        started.set(at)
