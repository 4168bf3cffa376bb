"""Properties of a pod's records in the runtime, and the restarts that follow from them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import (
    ContainerState,
    ContainerStatus,
    PodRuntimeStatus,
    SandboxStatus,
    could_restart_all,
    decide_sandbox,
    init_container_failed,
    restart_after_exit,
    restart_all_active,
    restart_allowed,
)


def record(name: str, state: str = "running", exit_code: int = 0, **more: Any) -> ContainerStatus:
    supplied = {"id": f"{name}-id", "name": name, "state": ContainerState(state), "sandbox_id": "s"}
    return ContainerStatus(**{**supplied, "created_at": 0, "exit_code": exit_code, **more})


def has(*records: ContainerStatus, sandboxes: tuple[SandboxStatus, ...] = ()) -> PodRuntimeStatus:
    return PodRuntimeStatus("u", "p", "d", sandboxes, records)


def pod(*containers: Any, **spec: Any) -> Pod:
    meta = {"name": "p", "namespace": "d", "uid": "u"}
    return Pod({"metadata": meta, "spec": {"containers": list(containers), **spec}})  # type: ignore[typeddict-item]


def test_records_are_found_by_name_and_id() -> None:
    newest, older = record("a", id="2"), record("a", id="1")
    status = has(record("b"), newest, older)
    assert status.newest("a") is newest
    assert status.by_id("1") is older
    assert (status.newest("x"), status.by_id("x")) == (None, None)


@pytest.mark.parametrize(
    ("status", "empty"),
    [
        (has(), True),
        (has(record("a")), False),
        (has(sandboxes=(SandboxStatus(id="s", ready=False),)), False),
    ],
)
def test_empty(status: PodRuntimeStatus, empty: bool) -> None:
    assert status.empty is empty


@pytest.mark.parametrize(
    ("ready", "source"), [((), ""), ((False,), ""), ((False, True), "file"), ((True,), "file")]
)
def test_a_status_has_readiness_and_source_of_its_sandboxes(
    ready: tuple[bool, ...], source: str
) -> None:
    every = tuple(
        SandboxStatus(id="s", ready=each, source="file" if each else "") for each in ready
    )
    status = has(sandboxes=every)
    assert (status.has_ready_sandbox, status.source) == (any(ready), source)


def test_running_containers() -> None:
    running = record("a")
    assert has(running, record("b", "exited")).running_containers == (running,)


@pytest.mark.parametrize(
    ("of_pod", "own", "allowed"),
    [
        ("Always", None, True),
        ("Never", None, False),
        ("Never", "Always", True),
        ("Always", "Never", False),
        ("OnFailure", None, True),
    ],
)
def test_restarts_without_an_exit_code(of_pod: str, own: str | None, allowed: bool) -> None:
    container: Any = {"name": "a", **({"restartPolicy": own} if own else {})}
    assert restart_allowed(pod(container, restartPolicy=of_pod), container) is allowed


def rules(action: str, *values: int, operator: str = "In") -> dict[str, Any]:
    rule = {"action": action, "exitCodes": {"operator": operator, "values": list(values)}}
    return {"restartPolicyRules": [rule]}


@pytest.mark.parametrize(
    ("container", "code", "restarts"),
    [
        ({"restartPolicy": "Never", **rules("Restart", 3)}, 3, True),
        ({"restartPolicy": "Never", **rules("Restart", 3)}, 4, False),
        ({"restartPolicy": "Never", **rules("Restart", 3, operator="NotIn")}, 4, True),
        ({"restartPolicy": "Never", **rules("Restart", 3, operator="NotIn")}, 3, False),
        ({"restartPolicy": "Never", **rules("Restart", 3, operator="Like")}, 3, False),
        ({"restartPolicy": "Never", **rules("RestartAllContainers", 3)}, 3, True),
        # rules are ignored unless the container has a policy itself
        (rules("Restart", 3), 3, False),
        ({"restartPolicy": "OnFailure"}, 0, False),
        ({"restartPolicy": "OnFailure"}, 1, True),
        ({"restartPolicy": "OnFailure"}, -1, True),
        ({"restartPolicy": "Sometimes"}, 1, False),
    ],
)
def test_an_exit_in_a_pod_that_never_restarts(container: Any, code: int, restarts: bool) -> None:
    of: Any = {"name": "a", **container}
    assert restart_after_exit("Never", of, code)[0] is restarts


@pytest.mark.parametrize(
    ("of", "failed"),
    [
        (record("i", "exited", 0), False),
        (record("i", "exited", 1), True),
        (record("i", "running", 1), False),
        (record("i", "unknown"), True),
        (record("i", "exited", 0, reason="OOMKilled"), True),
    ],
)
def test_an_init_container_that_failed(of: ContainerStatus, failed: bool) -> None:
    assert init_container_failed(of) is failed


ALL = {"name": "a", "restartPolicy": "Never", **rules("RestartAllContainers", 3)}


@pytest.mark.parametrize(
    ("container", "of", "active"),
    [
        (ALL, [record("a", "exited", 3)], True),
        (ALL, [record("a", "exited", 4)], False),
        (ALL, [record("a", "running", 3)], False),
        (ALL, [], False),
        ({**ALL, **rules("Restart", 3)}, [record("a", "exited", 3)], False),
        ({"name": "a"}, [record("a", "exited", 3)], False),
    ],
)
def test_a_restart_of_all(container: Any, of: Any, active: bool) -> None:
    assert restart_all_active(pod(container), has(*of)) is active
    restarts_all = container.get("restartPolicyRules") == ALL["restartPolicyRules"]
    assert could_restart_all(pod(container)) is restarts_all


class _Counted(tuple[ContainerStatus, ...]):
    """Counts the records that are read from it."""

    reads = 0

    def __iter__(self) -> Iterator[ContainerStatus]:
        for each in super().__iter__():
            type(self).reads += 1
            yield each

    def __getitem__(self, index: Any) -> Any:
        type(self).reads += 1
        return super().__getitem__(index)


def test_each_of_thousands_of_containers_is_found_without_a_walk() -> None:
    records = _Counted(record(f"c{number}") for number in range(1000))
    status = PodRuntimeStatus("u", "p", "default", containers=records)
    assert all(status.newest(f"c{number}") is not None for number in range(1000))
    assert status.newest("other") is None
    assert _Counted.reads <= 2000


def test_the_first_record_of_a_name_is_the_newest() -> None:
    status = has(record("c", "running", id="new"), record("c", "exited", id="old"))
    found = status.newest("c")
    assert found is not None
    assert found.id == "new"


# When a pod gets another sandbox, and which attempt that is.


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
