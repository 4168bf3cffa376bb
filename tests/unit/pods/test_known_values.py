"""Values of a spec that would weaken a pod where they are unknown."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.pods.pod import Pod
from kubeletpy.pods.shape import MAX_ID, container_problem, unknown_value


def of_pod(**spec: Any) -> str:
    spec.setdefault("containers", [{"name": "app"}])
    pod: Any = {"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": spec}
    return unknown_value(Pod(pod))


def of_container(**fields: Any) -> str:
    container: Any = {"name": "app", **fields}
    return container_problem(container)


def rule(action: Any, operator: Any) -> list[Any]:
    return [{"action": action, "exitCodes": {"operator": operator, "values": [1]}}]


def ported(protocol: str) -> list[Any]:
    return [{"name": "app", "ports": [{"containerPort": 80, "protocol": protocol}]}]


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"restartPolicy": "", "dnsPolicy": "", "containers": ported("")},
        {"restartPolicy": "Never", "dnsPolicy": "None", "containers": ported("SCTP")},
        {"securityContext": {"runAsUser": 0, "fsGroup": MAX_ID, "supplementalGroups": [1, 2]}},
    ],
)
def test_known_values_of_a_pod(spec: Any) -> None:
    assert of_pod(**spec) == ""


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"restartPolicy": "never"}, 'restartPolicy is "never", not one of Always, OnFailure, Ne'),
        ({"dnsPolicy": "none"}, 'dnsPolicy is "none", not one of ClusterFirst, ClusterFirstWithHo'),
        (
            {"containers": ported("udp")},
            'container app: port\'s protocol is "udp", not one of TCP, UDP, SCTP',
        ),
        (
            {"securityContext": {"runAsUser": MAX_ID + 1}},
            "securityContext.runAsUser is 2147483648, not an id from 0 to 2147483647",
        ),
        ({"securityContext": {"runAsGroup": -1}}, "securityContext.runAsGroup is -1, not an id"),
        ({"securityContext": {"fsGroup": 2**32}}, "securityContext.fsGroup is 4294967296, not an"),
        (
            {"securityContext": {"supplementalGroups": [0, 2**32]}},
            "securityContext.supplementalGroups is 4294967296, not an id",
        ),
    ],
)
def test_unknown_values_of_a_pod(spec: Any, problem: str) -> None:
    assert of_pod(**spec).startswith(problem)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"imagePullPolicy": ""},
        {"imagePullPolicy": "Never", "restartPolicy": "Always"},
        {"restartPolicyRules": rule("Restart", "NotIn")},
        {"restartPolicyRules": [{"action": "RestartAllContainers"}]},
    ],
)
def test_known_values_of_a_container(fields: Any) -> None:
    assert of_container(**fields) == ""


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"restartPolicy": ""}, 'restartPolicy is "", not one of Always, OnFailure, Never'),
        ({"restartPolicy": "always"}, 'restartPolicy is "always", not one of'),
        ({"imagePullPolicy": "always"}, 'imagePullPolicy is "always", not one of Always, IfNotP'),
        ({"restartPolicyRules": rule("Stop", "In")}, 'restartPolicyRules: action is "Stop", not'),
        ({"restartPolicyRules": rule(None, "In")}, "restartPolicyRules: action is missing, not"),
        (
            {"restartPolicyRules": rule("Restart", "Gt")},
            'restartPolicyRules: operator is "Gt", not one of In, NotIn',
        ),
        ({"securityContext": {"runAsUser": 2**32}}, "securityContext.runAsUser is 4294967296, not"),
    ],
)
def test_unknown_values_of_a_container(fields: Any, problem: str) -> None:
    assert of_container(**fields).startswith(problem)


def test_long_values_are_shortened() -> None:
    assert of_pod(dnsPolicy="x" * 9999).startswith(f'dnsPolicy is "{"x" * 40}", not one of')
