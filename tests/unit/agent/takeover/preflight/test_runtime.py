"""Comparison of the runtime with the settings."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from kubeletpy.agent.takeover.preflight.checks import runtime_findings, speed_findings
from kubeletpy.agent.takeover.preflight.findings import UNSAFE, Area
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


PORTMAP = {"type": "portmap", "capabilities": {"portMappings": True}}
RUNC, CRUN, KATA = (
    {"runtimeType": kind, "options": {"BinaryName": program}}
    for kind, program in (
        ("io.containerd.runc.v2", ""),
        ("io.containerd.runc.v2", "/usr/bin/crun"),
        ("io.containerd.kata.v2", ""),
    )
)
MASQUERADE = {"type": "bridge", "ipMasq": True}


def status(runtime: Any, *plugins: Any, **cni: Any) -> dict[str, str]:
    """The info of containerd's verbose Status, with the fields that matter."""
    config = {
        "containerd": {"defaultRuntimeName": "runc", "runtimes": {"runc": runtime}},
        "cni": cni,
    }
    loopback = {"Config": {"Source": json.dumps({"plugins": [{"type": "loopback"}]})}}
    network = {"Config": {"Source": json.dumps({"plugins": plugins})}}
    return {
        "config": json.dumps(config),
        "cniconfig": json.dumps({"Networks": [loopback, network]}),
    }


PORT: Any = {"name": "main", "ports": [{"containerPort": 80, "hostPort": 80}]}


@pytest.mark.parametrize(
    ("info", "version_2", "subjects"),
    [
        ({}, True, []),
        ({"config": "[crio]", "cniconfig": "[1]"}, True, []),
        ({"config": '{"containerd": 1, "cni": []}', "cniconfig": '{"Networks": [1]}'}, True, []),
        (status(RUNC, MASQUERADE, PORTMAP), True, ["runc", "ipMasq"]),
        (status(RUNC, MASQUERADE, PORTMAP), False, ["ipMasq", "portmap"]),
        (status(CRUN, MASQUERADE, useInternalLoopback=False), True, ["ipMasq", "loopback"]),
        (status(KATA, {"type": "bridge"}, PORTMAP, useInternalLoopback=True), True, ["portmap"]),
        (status(CRUN, {"type": "ptp", "ipMasq": False}), True, []),
    ],
)
def test_the_largest_two_savings_that_apply_are_advice(
    info: dict[str, str], version_2: bool, subjects: list[str]
) -> None:
    findings = speed_findings(info, cgroup_v2=version_2, pods=[make_pod()])
    assert [each.subject for each in findings] == subjects
    assert all(each.severity not in UNSAFE and each.area is Area.SPEED for each in findings)


def test_portmap_is_no_advice_where_a_pod_has_a_host_port() -> None:
    info = status(CRUN, PORTMAP)
    (finding,) = speed_findings(info, cgroup_v2=True)
    assert finding.text == (
        "portmap: it is called for each pod, and none has a host port: a list without it saves 3 % "
        "of the CPU of a pod's start and end"
    )
    for pod in (make_pod(containers=[PORT]), make_pod(initContainers=[PORT])):
        assert speed_findings(info, cgroup_v2=True, pods=[pod]) == []
