"""Tables that kubectl get prints."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy_up import resources
from kubeletpy_up.printers import tables

NOW = 1_700_000_000.0
AGO_5M = "2023-11-14T22:08:20Z"


def resource(name: str) -> resources.ResourceInfo:
    found = resources.find(name)
    assert found is not None
    return found


def row(name: str, obj: dict[str, Any]) -> dict[str, Any]:
    table = tables.to_table(resource(name), [obj], {"resourceVersion": "7"}, NOW)
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    (found,) = table["rows"]
    names = [column["name"] for column in table["columnDefinitions"]]
    return dict(zip(names, found["cells"], strict=True))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (119.9, "119s"),
        (120, "2m"),
        (130, "2m10s"),
        (599, "9m59s"),
        (600, "10m"),
        (3 * 3600 - 1, "179m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 300, "3h5m"),
        (8 * 3600 + 300, "8h"),
        (47 * 3600, "47h"),
        (48 * 3600, "2d"),
        (50 * 3600, "2d2h"),
        (8 * 86400 + 3600, "8d"),
        (730 * 86400, "2y"),
        (800 * 86400, "2y70d"),
        (9 * 365 * 86400 + 86400, "9y"),
    ],
)
def test_human_duration(seconds: float, text: str) -> None:
    assert tables.human_duration(seconds) == text


def state(kind: str, **fields: Any) -> dict[str, Any]:
    return {"state": {kind: fields}}


RUNNING = {"ready": True, **state("running")}
READY = {"type": "Ready", "status": "True"}
INITIALIZED = {"type": "Initialized", "status": "True"}


def pod(
    *statuses: dict[str, Any],
    init: list[dict[str, Any]] | None = None,
    sidecars: tuple[str, ...] = (),
    deleting: bool = False,
    **status: Any,
) -> dict[str, Any]:
    metadata = {"name": "p", "creationTimestamp": AGO_5M}
    if deleting:
        metadata["deletionTimestamp"] = AGO_5M
    names = [f"i{number}" for number in range(len(init or []))]
    listed = [
        {"name": name, **({"restartPolicy": "Always"} if name in sidecars else {})}
        for name in names
    ]
    status.setdefault("phase", "Running")
    status["containerStatuses"] = list(statuses)
    status["initContainerStatuses"] = [
        {"name": name, **one} for name, one in zip(names, init or [], strict=True)
    ]
    spec = {"containers": [{}] * len(statuses), "initContainers": listed}
    return {"metadata": metadata, "spec": spec, "status": status}


@pytest.mark.parametrize(
    ("obj", "ready", "status", "restarts"),
    [
        (pod(RUNNING, RUNNING), "2/2", "Running", "0"),
        (
            pod(RUNNING, state("terminated", exitCode=0, reason="Completed"), conditions=[READY]),
            "1/2",
            "Running",
            "0",
        ),
        (
            pod(state("terminated", exitCode=0, reason="Completed"), RUNNING, conditions=[READY]),
            "1/2",
            "Running",
            "0",
        ),
        (pod(state("terminated", exitCode=0, reason="Completed"), RUNNING), "1/2", "NotReady", "0"),
        (
            pod(
                state("terminated", exitCode=0, reason="Completed"),
                state("terminated", exitCode=1, reason="Error"),
            ),
            "0/2",
            "Error",
            "0",
        ),
        (pod({}, init=[state("running")], phase="Pending"), "0/1", "Init:0/1", "0"),
        (
            pod({}, init=[state("terminated", exitCode=0), state("waiting")], phase="Pending"),
            "0/1",
            "Init:1/2",
            "0",
        ),
        (
            pod({}, init=[state("waiting", reason="ImagePullBackOff")], phase="Pending"),
            "0/1",
            "Init:ImagePullBackOff",
            "0",
        ),
        (pod({}, init=[state("terminated", exitCode=3)]), "0/1", "Init:ExitCode:3", "0"),
        (pod({}, init=[state("terminated", exitCode=3, signal=9)]), "0/1", "Init:Signal:9", "0"),
        (pod({}, init=[state("terminated", exitCode=3, reason="Error")]), "0/1", "Init:Error", "0"),
        (
            pod(RUNNING, init=[{"started": True, "restartCount": 2, **RUNNING}], sidecars=("i0",)),
            "2/2",
            "Running",
            "2",
        ),
        (
            pod(
                {**RUNNING, "restartCount": 1},
                init=[{"restartCount": 5, **state("terminated", exitCode=0)}],
            ),
            "1/1",
            "Running",
            "1",
        ),
        (
            pod({}, init=[{"restartCount": 5, **state("running")}], phase="Pending"),
            "0/1",
            "Init:0/1",
            "5",
        ),
        (
            pod(
                {**RUNNING, "restartCount": 3, "lastState": {"terminated": {"finishedAt": AGO_5M}}}
            ),
            "1/1",
            "Running",
            "3 (5m ago)",
        ),
        (pod(RUNNING, deleting=True), "1/1", "Terminating", "0"),
        (pod(RUNNING, deleting=True, reason="NodeLost"), "1/1", "Unknown", "0"),
        (
            pod(
                state("terminated", exitCode=0, reason="Completed"),
                deleting=True,
                phase="Succeeded",
            ),
            "0/1",
            "Completed",
            "0",
        ),
        (pod(RUNNING, init=[state("running")], conditions=[INITIALIZED]), "1/1", "Init:0/1", "0"),
    ],
)
def test_pod_cells(obj: dict[str, Any], ready: str, status: str, restarts: str) -> None:
    found = row("pods", obj)
    assert (found["Ready"], found["Status"], found["Restarts"]) == (ready, status, restarts)
    assert (found["Name"], found["Age"]) == ("p", "5m")


def test_pod_wide_cells() -> None:
    obj = pod(RUNNING)
    found = row("pods", obj)
    wide = ("IP", "Node", "Nominated Node", "Readiness Gates")
    assert [found[name] for name in wide] == ["<none>"] * 4
    obj["spec"].update(nodeName="n", readinessGates=[{"conditionType": "Ready"}])
    obj["status"].update(podIPs=[{"ip": "10.0.0.1"}], conditions=[READY])
    found = row("pods", obj)
    assert [found[name] for name in wide] == ["10.0.0.1", "n", "<none>", "1/1"]


def test_nodes() -> None:
    node = {
        "metadata": {
            "name": "n",
            "creationTimestamp": AGO_5M,
            "labels": {"node-role.kubernetes.io/worker": "", "kubernetes.io/role": "a"},
        },
        "spec": {"unschedulable": True},
        "status": {
            "conditions": [{"type": "Ready", "status": "False"}],
            "addresses": [{"type": "InternalIP", "address": "10.0.0.2"}],
            "nodeInfo": {
                "kubeletVersion": "v1.36.0",
                "kernelVersion": "6.1",
                "architecture": "amd64",
                "osImage": "Debian",
                "containerRuntimeVersion": "containerd://2.1",
            },
        },
    }
    assert list(row("nodes", node).values()) == [
        "n",
        "NotReady,SchedulingDisabled",
        "a,worker",
        "5m",
        "v1.36.0",
        "10.0.0.2",
        "<none>",
        "Debian",
        "6.1 (amd64)",
        "containerd://2.1",
    ]
    bare = row("nodes", {"metadata": {"name": "n"}})
    assert (bare["Status"], bare["Roles"], bare["Age"]) == ("Unknown", "<none>", "<unknown>")


@pytest.mark.parametrize(
    ("name", "body", "cells"),
    [
        (
            "services",
            {
                "spec": {
                    "type": "NodePort",
                    "clusterIPs": ["10.0.0.1"],
                    "ports": [{"port": 80, "nodePort": 30000, "protocol": "TCP"}],
                    "selector": {"b": "2", "a": "1"},
                }
            },
            ["x", "NodePort", "10.0.0.1", "<none>", "80:30000/TCP", "5m", "a=1,b=2"],
        ),
        (
            "events",
            {
                "involvedObject": {"kind": "Pod", "name": "p", "fieldPath": "spec"},
                "type": "Normal",
                "reason": "Started",
                "message": "Started\n",
                "firstTimestamp": "2023-11-14T22:03:20Z",
                "lastTimestamp": AGO_5M,
                "count": 3,
                "source": {"component": "kubelet", "host": "n"},
            },
            ["5m", "Normal", "Started", "pod/p", "spec", "kubelet, n", "Started", "10m", 3, "x"],
        ),
        (
            "endpoints",
            {
                "subsets": [
                    {
                        "addresses": [{"ip": f"10.0.0.{n}"} for n in range(4)],
                        "ports": [{"port": 80}],
                    }
                ]
            },
            ["x", "10.0.0.0:80,10.0.0.1:80,10.0.0.2:80 + 1 more...", "5m"],
        ),
    ],
)
def test_other_kinds(name: str, body: dict[str, Any], cells: list[Any]) -> None:
    metadata = {"name": "x", "creationTimestamp": AGO_5M}
    assert list(row(name, {"metadata": metadata, **body}).values()) == cells


def test_every_served_resource_prints_even_an_empty_object() -> None:
    for info in resources.all_resources():
        table = tables.to_table(info, [{}], {}, NOW)
        assert len(table["rows"][0]["cells"]) == len(table["columnDefinitions"]), info.key


def test_a_list_marks_the_newest_default_class() -> None:
    def storage_class(name: str, created: str, default: str = "true") -> dict[str, Any]:
        annotations = {"storageclass.kubernetes.io/is-default-class": default}
        about = {"name": name, "creationTimestamp": created, "annotations": annotations}
        return {"metadata": about, "provisioner": "example.test/none"}

    old, new = "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"
    classes = [
        storage_class("a", old),
        storage_class("c", new),
        storage_class("b", new),
        storage_class("d", "2026-03-01T00:00:00Z", "false"),
    ]
    info = resource("storageclasses")
    listed = tables.to_table(info, classes, {}, 0, is_list=True)
    assert [each["cells"][0] for each in listed["rows"]] == ["a", "c", "b (default)", "d"]
    alone = tables.to_table(info, classes[2:3], {}, 0)
    assert [each["cells"][0] for each in alone["rows"]] == ["b"]
