"""Validation: each rule's cause, with the API server's message."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from kubeletpy_up import resources
from kubeletpy_up.defaults import pods as pod_defaults
from kubeletpy_up.schema import decode as schema
from kubeletpy_up.validation import objects as pod_validation

Pod = dict[str, Any]
Change = Callable[[Pod], object]


def resource(name: str) -> resources.ResourceInfo:
    found = resources.find(name)
    assert found is not None
    return found


def pod() -> Pod:
    return {
        "metadata": {"name": "a", "namespace": "default"},
        "spec": {
            "containers": [
                {
                    "name": "c",
                    "image": "i:1",
                    "ports": [{"containerPort": 80}],
                    "resources": {"limits": {"cpu": "1"}},
                    "env": [{"name": "A", "value": "b"}],
                    "volumeMounts": [{"name": "v", "mountPath": "/x"}],
                    "livenessProbe": {"httpGet": {"port": 80}},
                }
            ],
            "volumes": [{"name": "v"}],
        },
    }


def ready(obj: Pod) -> Pod:
    decoded, _ = schema.decode(resource("pods"), obj, "Strict")
    return pod_defaults.apply_defaults(resource("pods"), decoded)


def causes(change: Change) -> list[str]:
    obj = pod()
    change(obj)
    found = pod_validation.validate_create(resource("pods"), ready(obj))
    return [f"{cause.field}: {cause.message}" for cause in found]


def first(obj: Pod) -> dict[str, Any]:
    found: dict[str, Any] = obj["spec"]["containers"][0]
    return found


C0 = "spec.containers[0]"
CASES: list[tuple[Change, list[str]]] = [
    (lambda p: None, []),
    (
        lambda p: first(p)["volumeMounts"].append({"name": "v", "mountPath": "/x"}),
        [f'{C0}.volumeMounts[1].mountPath: Invalid value: "/x": must be unique'],
    ),
    (
        lambda p: first(p)["volumeMounts"][0].update(subPath="../x"),
        [f"{C0}.volumeMounts.subPath: Invalid value: \"../x\": must not contain '..'"],
    ),
    (
        lambda p: first(p)["volumeMounts"][0].update(bindMountOptions=["exec"]),
        [
            f'{C0}.volumeMounts[0].bindMountOptions[0]: Unsupported value: "exec": supported '
            'values: "nodev", "noexec", "nosuid"'
        ],
    ),
    (
        lambda p: p["spec"].update(volumes=[{"name": "v", "emptyDir": {"mode": 0o2000}}]),
        [
            "spec.volumes[0].emptyDir.mode: Invalid value: 1024: must be a number between 0 and "
            "01777 (octal), both inclusive",
            f'{C0}.volumeMounts[0].name: Not found: "v"',
        ],
    ),
    (
        lambda p: first(p)["volumeMounts"][0].update(bindMountOptions=["nodev", "nodev"]),
        [f'{C0}.volumeMounts[0].bindMountOptions[1]: Duplicate value: "nodev"'],
    ),
    (
        lambda p: p["spec"].update(hostNetwork=True) or first(p)["ports"][0].update(hostPort=81),
        [
            f"{C0}.ports[0].hostPort: Invalid value: 81: must match `containerPort` when "
            "`hostNetwork` is true"
        ],
    ),
    (
        lambda p: first(p)["env"].append({"name": "a=b"}),
        [
            f'{C0}.env[1].name: Invalid value: "a=b": a valid environment variable name must '
            "consist only of printable ASCII characters other than '='"
        ],
    ),
    (
        lambda p: first(p)["resources"]["limits"].update(cpu="-1"),
        [
            f'{C0}.resources.{kind}[cpu]: Invalid value: "-1": must be greater than or equal to 0'
            for kind in ("limits", "requests")
        ],
    ),
    (
        lambda p: first(p)["resources"].update(requests={"gpu": "1"}),
        [
            f'{C0}.resources.requests[gpu]: Invalid value: "gpu": must be a standard resource '
            + rest
            for rest in ("type or fully qualified", "for containers")
        ],
    ),
    (
        lambda p: first(p)["livenessProbe"].update(periodSeconds=-1),
        [
            f"{C0}.livenessProbe.periodSeconds: Invalid value: -1: must be greater than or equal "
            "to 0"
        ],
    ),
    (
        lambda p: first(p).update(readinessProbe={}),
        [f"{C0}.readinessProbe: Required value: must specify a handler type"],
    ),
    (
        lambda p: first(p).update(restartPolicyRules=[{"action": "Restart"}]),
        [
            f"{C0}.restartPolicy: Required value: must specify restartPolicy when restart rules "
            "are used",
            f"{C0}.restartPolicyRules[0].exitCodes: Required value: must be specified",
        ],
    ),
    (
        lambda p: p["spec"].update(
            initContainers=[{"name": "c", "image": "x", "livenessProbe": {"exec": {}}}]
        ),
        [
            'spec.initContainers[0].name: Duplicate value: "c"',
            "spec.initContainers[0].livenessProbe: Forbidden: may not be set for init containers "
            "without restartPolicy=Always",
        ],
    ),
    (
        lambda p: p["spec"].update(dnsPolicy="None", dnsConfig={"searches": ["x"]}),
        [
            "spec.dnsConfig.nameservers: Required value: must provide at least one DNS nameserver "
            "when `dnsPolicy` is None"
        ],
    ),
    (
        lambda p: first(p).update(securityContext={"procMount": "Unmasked"}),
        [
            f'{C0}.securityContext.procMount: Invalid value: "Unmasked": `hostUsers` must be '
            "false to use `Unmasked`"
        ],
    ),
    (
        lambda p: (
            p["spec"].update(hostUsers=False),
            first(p).update(securityContext={"procMount": "Unmasked"}),
        ),
        [],
    ),
    (
        lambda p: first(p).update(securityContext={"appArmorProfile": {"type": "Localhost"}}),
        [
            f"{C0}.securityContext.appArmorProfile.localhostProfile: Required value: must be set "
            "when AppArmor type is Localhost"
        ],
    ),
    (
        lambda p: p["spec"].update(
            securityContext={"appArmorProfile": {"type": "Unconfined", "localhostProfile": "x"}}
        ),
        [
            "spec.securityContext.appArmorProfile.localhostProfile: Invalid value: "
            '"x": can only be set when AppArmor type is Localhost'
        ],
    ),
    (
        lambda p: p["spec"].update(securityContext={"runAsUser": -1}),
        [
            "spec.securityContext.runAsUser: Invalid value: -1: must be between 0 and 2147483647, "
            "inclusive"
        ],
    ),
    (
        lambda p: first(p).update(
            securityContext={"privileged": True, "allowPrivilegeEscalation": False}
        ),
        [
            f"{C0}.securityContext: Invalid value: "
            '{"privileged":true,"allowPrivilegeEscalation":false}: cannot set '
            "`allowPrivilegeEscalation` to false and `privileged` to true"
        ],
    ),
    (
        lambda p: p["spec"].update(tolerations=[{"operator": "Equal"}]),
        [
            'spec.tolerations[0].operator: Invalid value: "Equal": operator must be Exists when '
            '`key` is empty, which means "match all values and all keys"'
        ],
    ),
    (
        lambda p: p["metadata"].pop("name"),
        ["metadata.name: Required value: name or generateName is required"],
    ),
]


@pytest.mark.parametrize(("change", "expected"), CASES)
def test_create(change: Change, expected: list[str]) -> None:
    assert causes(change) == expected


@pytest.mark.parametrize(
    ("change", "field", "part"),
    [
        (
            lambda p: p["metadata"].update(labels={"/a": "c"}),
            "metadata.labels",
            "prefix part must be non-empty",
        ),
        (
            lambda p: p["metadata"].update(annotations={"a": "x" * 300_000}),
            "metadata.annotations",
            "Too long: may not be more than 262144 bytes",
        ),
    ],
)
def test_metadata(change: Change, field: str, part: str) -> None:
    (cause,) = causes(change)
    assert cause.startswith(field + ": ")
    assert part in cause


def updated(
    change: Change, subresource: str = "", old_change: Change = lambda p: None
) -> list[str]:
    before = pod()
    old_change(before)
    old = ready(before)
    new = copy.deepcopy(old)
    change(new)
    found = pod_validation.validate_update(resource("pods"), new, old, subresource)
    return [f"{cause.field}: {cause.message}" for cause in found]


UPDATABLE = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only "
    "additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set "
    "to 1 if it was previously negative)\nchanged: "
)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda p: p["spec"].update(hostname="x"), [f"spec: Forbidden: {UPDATABLE}spec.hostname"]),
        (
            lambda p: first(p)["env"][0].update(value="secret"),
            [f"spec: Forbidden: {UPDATABLE}spec.containers[0].env[0].value"],
        ),
        (
            lambda p: p["metadata"].update(name="b"),
            ['metadata.name: Invalid value: "b": field is immutable'],
        ),
    ],
)
def test_update(change: Change, expected: list[str]) -> None:
    assert updated(change) == expected


def check(plural: str, obj: dict[str, Any]) -> list[str]:
    info = resource(plural)
    filled = pod_defaults.apply_defaults(info, obj)
    found = pod_validation.validate_create(info, filled)
    return [f"{cause.field}: {cause.message}" for cause in found]


@pytest.mark.parametrize(
    ("plural", "body", "expected"),
    [
        ("configmaps", {"data": {"ok.key": "x"}}, ""),
        ("configmaps", {"data": {"no/key": "x"}}, "data[no/key]: Invalid value"),
        ("configmaps", {"data": {"..": "x"}}, "data[..]: Invalid value"),
        ("configmaps", {"data": {"k": "x" * 1_100_000}}, ": Too long"),
        ("secrets", {"type": "kubernetes.io/tls"}, "data[tls.crt]: Required value"),
        (
            "secrets",
            {"type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": "eA=="}},
            'data[.dockerconfigjson]: Invalid value: "<secret contents redacted>"',
        ),
        ("services", {"spec": {"ports": [{"port": 80}]}}, ""),
        ("services", {"spec": {}}, "spec.ports: Required value"),
        ("services", {"spec": {"ports": [{"port": 0}]}}, "spec.ports[0].port: Invalid value: 0"),
        (
            "services",
            {"spec": {"ports": [{"port": 1}, {"port": 2}]}},
            "spec.ports[0].name: Required value",
        ),
        ("namespaces", {"metadata": {"name": "a.b"}}, "metadata.name: Invalid value"),
        ("leases", {"spec": {"leaseDurationSeconds": 0}}, "spec.leaseDurationSeconds: Invalid"),
        ("runtimeclasses", {"handler": "Kata"}, 'handler: Invalid value: "Kata"'),
    ],
)
def test_other_kinds(plural: str, body: dict[str, Any], expected: str) -> None:
    metadata = {"name": "a", **body.get("metadata", {})}
    found = check(plural, {**body, "metadata": metadata})
    assert found[0].startswith(expected) if expected else found == []


def test_immutable_data() -> None:
    old = {"metadata": {"name": "a"}, "immutable": True, "data": {"a": "b"}}
    new = {"metadata": {"name": "a"}, "data": {"a": "c"}}
    found = pod_validation.validate_update(resource("configmaps"), new, old, "")
    assert [cause.field for cause in found] == ["immutable", "data"]


def test_secret_values_stay_out_of_messages() -> None:
    value = "c2VjcmV0"
    found = check("secrets", {"metadata": {"name": "A"}, "data": {"no/key": value}})
    assert found
    assert not any(value in line for line in found)
