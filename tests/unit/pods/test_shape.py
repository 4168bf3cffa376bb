"""Objects that break the schema of the API are refused."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kubeletpy.pods.shape import pod_problem

POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "web",
        "namespace": "default",
        "uid": "1-2",
        "labels": {"app": "web"},
        "managedFields": ["whatever"],
    },
    "spec": {
        "containers": [
            {
                "name": "main",
                "image": "x:1",
                "command": ["sh"],
                "env": [{"name": "A", "value": "1"}],
                "ports": [{"containerPort": 80}],
                "livenessProbe": {"httpGet": {"port": "web"}},
                "resources": {"limits": {"memory": "1Gi"}},
            }
        ],
        "terminationGracePeriodSeconds": 30,
        "hostNetwork": True,
        "fieldOfTomorrow": {"any": [None]},
    },
    "status": {"phase": "Running"},
}


def test_a_pod_as_it_should_be() -> None:
    assert pod_problem(POD) == ""
    with_number = copy.deepcopy(POD)
    with_number["spec"]["containers"][0]["livenessProbe"]["httpGet"]["port"] = 8080
    with_number["spec"]["containers"][0]["resources"]["limits"]["cpu"] = 0.5
    assert pod_problem(with_number) == ""


def test_names_may_be_missing_and_long() -> None:
    assert pod_problem({"metadata": {}}) == ""
    assert pod_problem({"metadata": {"name": "x" * 253}}) == ""


CASES: list[tuple[tuple[str | int, ...], Any, str]] = [
    (("spec",), [], "spec: is not an object"),
    (("spec",), None, "spec: is not an object"),
    (("metadata", "uid"), 7, "metadata.uid: is not a string"),
    (("metadata", "uid"), "../../etc", "metadata.uid can't be a part of a path"),
    (("metadata", "name"), "..", "metadata.name can't be a part of a path"),
    (("metadata", "namespace"), "a\nb", "metadata.namespace can't be a part of a path"),
    (("metadata", "name"), "x" * 254, "metadata.name can't be a part of a path"),
    (("metadata", "labels"), {"a": 1}, "metadata.labels['a']: is not a string"),
    (("metadata", "annotations"), "x", "metadata.annotations: is not an object"),
    (("spec", "containers"), "main", "spec.containers: is not a list"),
    (("spec", "containers"), [None], "spec.containers[0]: is not an object"),
    (("spec", "containers", 0, "command"), {}, "spec.containers[0].command: is not a list"),
    (("spec", "containers", 0, "command", 0), 1, "spec.containers[0].command[0]: is not a string"),
    (("spec", "containers", 0, "image"), None, "spec.containers[0].image: is not a string"),
    (("spec", "containers", 0, "env"), 3, "spec.containers[0].env: is not a list"),
    (
        ("spec", "containers", 0, "livenessProbe", "httpGet", "port"),
        [],
        "spec.containers[0].livenessProbe.httpGet.port: is not a whole number or a string",
    ),
    (
        ("spec", "containers", 0, "resources", "limits", "memory"),
        [],
        "spec.containers[0].resources.limits['memory']: is not a quantity",
    ),
    (
        ("spec", "containers", 0, "resources", "limits", "memory"),
        "lots",
        "spec.containers[0].resources.limits['memory']: 'lots' is not a quantity",
    ),
    (
        ("metadata", "deletionTimestamp"),
        "yesterday",
        "metadata.deletionTimestamp: 'yesterday' is not a time",
    ),
    (("spec", "hostNetwork"), 1, "spec.hostNetwork: is not true or false"),
    (
        ("spec", "terminationGracePeriodSeconds"),
        True,
        "spec.terminationGracePeriodSeconds: is not a whole number",
    ),
    (
        ("spec", "terminationGracePeriodSeconds"),
        "soon",
        "spec.terminationGracePeriodSeconds: is not a whole number",
    ),
    (("status",), [], "status: is not an object"),
    (
        ("status", "containerStatuses"),
        [{"state": "x"}],
        "status.containerStatuses[0].state: is not an object",
    ),
]


@pytest.mark.parametrize(("path", "value", "problem"), CASES, ids=[case[2] for case in CASES])
def test_malformed_objects_are_refused(
    path: tuple[str | int, ...], value: Any, problem: str
) -> None:
    pod = copy.deepcopy(POD)
    target: Any = pod
    for part in path[:-1]:
        target = target.setdefault(part, {}) if isinstance(target, dict) else target[part]
    target[path[-1]] = value
    assert pod_problem(pod) == problem


@pytest.mark.parametrize("thing", [None, [], "pod", 7, True])
def test_things_that_are_no_objects(thing: Any) -> None:
    assert pod_problem(thing) == "is not an object"


def test_a_checked_spec_is_not_checked_again() -> None:
    spec: Any = {"containers": 5}
    assert pod_problem({"metadata": {"name": "x"}, "spec": spec}, [spec]) == ""
    assert pod_problem({"metadata": {"name": 5}, "spec": spec}, [spec])
    assert pod_problem({"metadata": {"name": "x"}, "spec": {"containers": 5}}, [spec])
