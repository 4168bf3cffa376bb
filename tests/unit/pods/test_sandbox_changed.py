"""When a pod gets another sandbox, and which attempt that is."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import PodRuntimeStatus, SandboxStatus, decide_sandbox


def sandbox(name: str, *, ready: bool = True, attempt: int = 3, **fields: Any) -> SandboxStatus:
    return SandboxStatus(name, ready, attempt, **{"ips": ("10.0.0.5",), **fields})


META: Any = {"name": "p", "namespace": "d", "uid": "u"}
SPEC: Any = {"containers": [{"name": "main", "image": "i"}]}
HOST: dict[str, Any] = {"host_network": True, "has_network": False, "ips": ()}
A, DEAD = sandbox("a"), sandbox("a", ready=False)
OLD = sandbox("old", attempt=2)


@pytest.mark.parametrize(
    ("host_network", "sandboxes", "decided"),
    [
        (False, [], (True, 0, "")),
        (False, [A], (False, 3, "a")),
        (False, [DEAD], (True, 4, "a")),
        (False, [A, OLD], (True, 4, "a")),
        (False, [A, sandbox("old", ready=False)], (False, 3, "a")),
        (False, [DEAD, OLD], (True, 4, "a")),
        (False, [sandbox("a", **HOST)], (True, 4, "")),
        (True, [A], (True, 4, "")),
        (True, [sandbox("a", **HOST)], (False, 3, "a")),
        (True, [sandbox("a", host_network=True, ips=())], (False, 3, "a")),
        (False, [sandbox("a", ips=())], (True, 4, "a")),
        (False, [sandbox("a", has_network=False, ips=())], (False, 3, "a")),
    ],
)
def test_which_sandbox_a_pod_has(
    host_network: bool, sandboxes: list[SandboxStatus], decided: tuple[bool, int, str]
) -> None:
    pod = Pod({"metadata": META, "spec": {**SPEC, "hostNetwork": host_network}})  # type: ignore[typeddict-item]
    found = decide_sandbox(pod, PodRuntimeStatus("u", "p", "d", tuple(sandboxes)))
    assert (found.create, found.attempt, found.sandbox_id) == decided
    assert found.reason
    assert bool(found.message) is found.create


@pytest.mark.parametrize(
    ("sandboxes", "message"),
    [
        ([], "no pod sandbox exists"),
        ([A, OLD], "multiple pod sandboxes are ready and need to be reconciled"),
        ([DEAD], "pod sandbox is not ready"),
        (
            [sandbox("a", **HOST)],
            "network namespace mode changed and sandbox needs to be recreated",
        ),
        ([sandbox("a", ips=())], "pod sandbox has no IP address"),
        ([A], ""),
    ],
)
def test_why_a_pod_is_not_ready_to_start_containers(
    sandboxes: list[SandboxStatus], message: str
) -> None:
    pod = Pod({"metadata": META, "spec": SPEC})
    assert decide_sandbox(pod, PodRuntimeStatus("u", "p", "d", tuple(sandboxes))).message == message
