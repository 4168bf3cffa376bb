"""Objects that break the schema of the API are refused."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kubeletpy.pods.pod import Pod
from kubeletpy.pods.shape import MAX_ID, container_problem, pod_problem, problems, unknown_value

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


# The fields of 1.37 that concern volumes: refusals, with the messages of the API.

SUPPORTED = 'supported values: "nodev", "noexec", "nosuid"'
OPTIONS = "spec.containers[0].volumeMounts[0].bindMountOptions"


def spec(mount: dict[str, Any], volume: dict[str, Any] | None = None) -> dict[str, Any]:
    container = {"name": "c", "volumeMounts": [{"name": "v", "mountPath": "/v", **mount}]}
    volumes = [{"name": "v", **({"emptyDir": {}} if volume is None else volume)}]
    return {"containers": [container], "volumes": volumes}


@pytest.mark.parametrize(
    ("mount", "volume", "expected"),
    [
        ({}, None, []),
        ({"bindMountOptions": []}, None, []),
        ({"bindMountOptions": ["noexec", "nodev", "nosuid"]}, None, []),
        (
            {"bindMountOptions": ["exec", "noexec", "noexec"]},
            None,
            [
                f'{OPTIONS}[0]: Unsupported value: "exec": {SUPPORTED}',
                f'{OPTIONS}[2]: Duplicate value: "noexec"',
            ],
        ),
        (
            {"bindMountOptions": ["ro", "ro"]},
            None,
            [
                f'{OPTIONS}[0]: Unsupported value: "ro": {SUPPORTED}',
                f'{OPTIONS}[1]: Unsupported value: "ro": {SUPPORTED}',
                f'{OPTIONS}[1]: Duplicate value: "ro"',
            ],
        ),
        (
            {"bindMountOptions": ["nodev"]},
            {"image": {"reference": "i"}},
            [
                f'{OPTIONS}: Invalid value: ["nodev"]: bindMountOptions may not be used with '
                "image volumes"
            ],
        ),
    ],
)
def test_bind_mount_options(mount: Any, volume: Any, expected: list[str]) -> None:
    assert [str(each) for each in problems(spec(mount, volume))] == expected


@pytest.mark.parametrize("mode", [0, 0o777, 0o1777, None])
def test_modes_of_empty_dirs(mode: int | None) -> None:
    source = {} if mode is None else {"mode": mode}
    assert list(problems(spec({}, {"emptyDir": source}))) == []


@pytest.mark.parametrize("mode", [-1, 0o2000, 2**31 - 1, -(2**31)])
def test_modes_of_empty_dirs_out_of_range(mode: int) -> None:
    (found,) = problems(spec({}, {"emptyDir": {"mode": mode}}))
    assert str(found) == (
        f"spec.volumes[0].emptyDir.mode: Invalid value: {mode}: must be a number between 0 and "
        "01777 (octal), both inclusive"
    )


def volumes_with(user: int) -> list[dict[str, Any]]:
    """A volume for each field that can name an owner."""
    item = {"items": [{"path": "p", "user": user}]}
    parts = [{kind: item} for kind in ("configMap", "secret", "downwardAPI")]
    single = [
        {kind: {"user": user}}
        for kind in ("serviceAccountToken", "clusterTrustBundle", "podCertificate")
    ]
    return [
        {"configMap": {"defaultUser": user, **item}},
        {"secret": {"defaultUser": user, **item}},
        {"downwardAPI": {"defaultUser": user, **item}},
        {"projected": {"defaultUser": user, "sources": [*parts, *single]}},
    ]


@pytest.mark.parametrize("user", [0, 1000, 2**31 - 1])
def test_owners_of_files(user: int) -> None:
    assert list(problems({"volumes": volumes_with(user), "containers": []})) == []


@pytest.mark.parametrize("user", [-1, 2**31, 2**63 - 1])
def test_owners_of_files_out_of_range(user: int) -> None:
    found = list(problems({"volumes": volumes_with(user), "containers": []}))
    assert [each.path for each in found] == [
        "spec.volumes[0].configMap.defaultUser",
        "spec.volumes[0].configMap.items[0].user",
        "spec.volumes[1].secret.defaultUser",
        "spec.volumes[1].secret.items[0].user",
        "spec.volumes[2].downwardAPI.defaultUser",
        "spec.volumes[2].downwardAPI.items[0].user",
        "spec.volumes[3].projected.defaultUser",
        "spec.volumes[3].projected.sources[0].configMap.items[0].user",
        "spec.volumes[3].projected.sources[1].secret.items[0].user",
        "spec.volumes[3].projected.sources[2].downwardAPI.items[0].user",
        "spec.volumes[3].projected.sources[3].serviceAccountToken.user",
        "spec.volumes[3].projected.sources[4].clusterTrustBundle.user",
        "spec.volumes[3].projected.sources[5].podCertificate.user",
    ]
    message = f"Invalid value: {user}: must be between 0 and 2147483647, inclusive"
    assert {each.message() for each in found} == {message}


def test_mounts_of_every_kind_of_container_are_checked() -> None:
    mount = {"name": "v", "mountPath": "/v", "bindMountOptions": ["x"]}
    each = [{"name": "c", "volumeMounts": [mount]}]
    found = list(
        problems({"containers": each, "initContainers": each, "ephemeralContainers": each})
    )
    assert [problem.path.split("[")[0] for problem in found] == [
        "spec.containers",
        "spec.initContainers",
        "spec.ephemeralContainers",
    ]


def test_a_long_value_is_cut() -> None:
    (found,) = problems(spec({"bindMountOptions": ["x" * 100_000]}))
    assert len(str(found)) < 500


# Values of a spec that would weaken a pod where they are unknown.


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
