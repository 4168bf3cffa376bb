"""Comparison of the runtime with the settings."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from kubeletpy.agent.takeover.preflight.checks import runtime_findings
from kubeletpy.agent.takeover.preflight.node import has_events
from kubeletpy.node.build import RuntimeInfo
from kubeletpy.remote.errors import Unavailable, Unimplemented
from kubeletpy.remote.protocol import RuntimeService
from tests.kit.records import make_pod

HANDLER: Any = {
    "name": "runc",
    "features": {"recursiveReadOnlyMounts": True, "userNamespaces": True},
}
INFO = RuntimeInfo("containerd", "2.1.4", (HANDLER,), True, frozenset({"mount_options"}))
ABOUT = (
    "note: containerd 2.1.4: handlers: runc; features: mount_options, supplemental_groups_policy"
)


@pytest.mark.parametrize(
    ("reported", "configured", "systemd_runs", "found"),
    [
        ("cgroupfs", "cgroupfs", False, []),
        ("systemd", "systemd", True, []),
        (
            "cgroupfs",
            "systemd",
            True,
            [
                "note: containerd 2.1.4: its cgroup driver is cgroupfs, cgroupDriver is systemd: "
                "that of the runtime is used"
            ],
        ),
        (
            None,
            "systemd",
            True,
            [
                "note: containerd 2.1.4: it does not report its cgroup driver; cgroupDriver is "
                "systemd: pods do not start if the runtime has another one: upgrade the runtime"
            ],
        ),
        (
            "systemd",
            "systemd",
            False,
            [
                "blocks: containerd 2.1.4: the cgroup driver is systemd, but systemd does not run "
                "here: set it to cgroupfs, in the runtime too"
            ],
        ),
    ],
)
def test_cgroup_drivers(
    reported: str | None, configured: str, systemd_runs: bool, found: list[str]
) -> None:
    findings = runtime_findings(INFO, reported, configured, systemd_runs=systemd_runs)
    assert [f"{each.severity}: {each.text}" for each in findings] == [ABOUT, *found]


def test_pods_that_need_user_namespaces() -> None:
    pod = make_pod(hostUsers=False)
    _, finding = runtime_findings(
        RuntimeInfo("x", "1"), "cgroupfs", "cgroupfs", systemd_runs=False, pods=[pod, make_pod()]
    )
    assert finding.text == (
        "prod/web: it has hostUsers: false, and no handler of the runtime supports user "
        "namespaces: it can't start again on this node"
    )
    assert len(runtime_findings(INFO, "cgroupfs", "cgroupfs", systemd_runs=False, pods=[pod])) == 1


class Events:
    """A runtime with one stream of events: what it sends, or the error that it ends with."""

    def __init__(self, error: Exception | None = None, seconds: float = 0) -> None:
        self.error, self.seconds = error, seconds

    async def get_container_events(self) -> AsyncIterator[str]:
        if self.error is not None:
            raise self.error
        await asyncio.sleep(self.seconds)
        yield "event"


@pytest.mark.parametrize(
    ("runtime", "answer"),
    [
        (Events(), True),
        (Events(seconds=60), True),
        (Events(Unavailable("GetContainerEvents", "gone")), True),
        (Events(Unimplemented("GetContainerEvents", "unknown method")), False),
    ],
)
async def test_whether_a_runtime_has_events(runtime: Events, answer: bool) -> None:
    assert await has_events(cast(RuntimeService, runtime), 0.05) is answer


def test_a_runtime_without_events_is_named() -> None:
    findings = runtime_findings(INFO, "cgroupfs", "cgroupfs", systemd_runs=False, events=False)
    assert findings[1].text == (
        "containerd 2.1.4: its CRI has no events: it is relisted every second; of containerd, "
        "task events show the ends of containers before"
    )
