"""Refusals and defaults that a kube-apiserver 1.37.2 returned for the same pods."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kubeletpy.pods.resources import MEMORY_VOLUMES_GATE
from kubeletpy_up.errors import ApiError
from kubeletpy_up.requests import ADMIN
from tests.kit.embedded import bound_pod, make_registry, node, pod, refusal

GATES = (
    "AtomicWriteVolumeUserFields",
    "EmptyDirVolumeMode",
    "GRPCContainerProbeTLS",
    "H2CContainerProbe",
    "VolumeBindMountOptions",
)
SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    "for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
SEARCH = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' "
    "or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    "for validation is "
    "'_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*')"
)
PROBE, HOOK = "spec.containers[0].livenessProbe", "spec.containers[0].lifecycle.preStop"
OVERRIDE = "spec.hostnameOverride"
NETWORKED = "may not be specified when 'hostNetwork' is true"


def of_container(**fields: Any) -> dict[str, Any]:
    return {"containers": [{"name": "c", "image": "i:1", **fields}]}


def probe(**action: Any) -> dict[str, Any]:
    return of_container(livenessProbe=action)


def http(**fields: Any) -> dict[str, Any]:
    return {"httpGet": {"port": 80, **fields}}


def refused(spec: dict[str, Any], gates: tuple[str, ...] = GATES) -> list[str]:
    registry = make_registry(feature_gates=gates)
    error = refusal(registry.create, ADMIN, "pods", pod(**spec), "default")
    assert error.code == 422
    return [f"{cause['field']}: {cause['message']}" for cause in error.details["causes"]]


def made(spec: dict[str, Any], gates: tuple[str, ...] = ()) -> dict[str, Any]:
    registry = make_registry(feature_gates=gates)
    created: dict[str, Any] = registry.create(ADMIN, "pods", pod(**spec), "default")
    found: dict[str, Any] = created["spec"]
    return found


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (
            probe(**http(protocol="HTTP3")),
            [
                f'{PROBE}.httpGet.protocol: Unsupported value: "HTTP3": supported values: "HTTP1", '
                '"HTTP2"'
            ],
        ),
        (
            probe(**http(protocol="HTTP2", scheme="HTTPS", host="a")),
            [
                f'{PROBE}.httpGet.protocol: Invalid value: "HTTP2": is only supported with HTTP '
                "(H2C)"
            ],
        ),
        (
            probe(**http(protocol="HTTP2", host="a")),
            [f'{PROBE}.httpGet.host: Invalid value: "a": must be empty when `protocol` is "HTTP2"'],
        ),
        (
            of_container(lifecycle={"preStop": http(protocol="HTTP2", scheme="HTTPS")}),
            [f'{HOOK}.httpGet.protocol: Invalid value: "HTTP2": is only supported with HTTP (H2C)'],
        ),
        (
            probe(grpc={"port": 0, "mode": "mTLS"}),
            [
                f"{PROBE}.grpc.port: Invalid value: 0: must be between 1 and 65535, inclusive",
                f'{PROBE}.grpc.mode: Unsupported value: "mTLS": supported values: "Plaintext", '
                '"TLS"',
            ],
        ),
        (
            {"shareProcessNamespace": True, "hostPID": True},
            [
                "spec.shareProcessNamespace: Invalid value: true: ShareProcessNamespace and "
                "HostPID cannot both be enabled"
            ],
        ),
        (
            {"hostUsers": False, "hostNetwork": True, "hostPID": True, "hostIPC": True},
            [
                f"spec.{field}: Forbidden: when `hostUsers` is false"
                for field in ("hostNetwork", "HostPID", "HostIPC")
            ],
        ),
        (
            {"securityContext": {"seLinuxChangePolicy": "z"}},
            [
                'spec.securityContext.seLinuxChangePolicy: Unsupported value: "z": supported '
                'values: "MountOption", "Recursive"'
            ],
        ),
        (
            {"hostNetwork": True, "securityContext": {"sysctls": [{"name": "net/a", "value": ""}]}},
            [f'spec.securityContext.sysctls[0].name: Invalid value: "net/a": {NETWORKED}'],
        ),
        ({"hostnameOverride": "A_b"}, [f'{OVERRIDE}: Invalid value: "A_b": {SUBDOMAIN}']),
        ({"hostnameOverride": "a" * 65}, [f"{OVERRIDE}: Too long: may not be more than 64 bytes"]),
        (
            {"hostnameOverride": "a", "hostNetwork": True},
            [f"{OVERRIDE}: Forbidden: may not be specified when hostNetwork is true"],
        ),
        (
            {"hostnameOverride": "a", "setHostnameAsFQDN": True},
            [f"{OVERRIDE}: Forbidden: may not be specified when setHostnameAsFQDN is true"],
        ),
        (
            {"dnsConfig": {"searches": ["_a_b.", ".", "-a"]}},
            [f'spec.dnsConfig.searches[2]: Invalid value: "-a": {SEARCH}'],
        ),
        (
            {"tolerations": [{"key": "a", "operator": "Lt", "value": "1"}]},
            [
                'spec.tolerations[0].operator: Unsupported value: "Lt": supported values: "Equal", '
                '"Exists", "Lt", "Gt"'
            ],
        ),
        (
            {"volumes": [{"name": "v", "emptyDir": {"sizeLimit": "-1", "mode": 0o2000}}]},
            [
                "spec.volumes[0].emptyDir.sizeLimit: Forbidden: SizeLimit field must be a valid "
                "resource quantity",
                "spec.volumes[0].emptyDir.mode: Invalid value: 1024: must be a number between 0 "
                "and 01777 (octal), both inclusive",
            ],
        ),
        (
            {
                **of_container(resources={"requests": {"cpu": "2"}}),
                "resources": {"requests": {"cpu": "1"}},
            },
            [
                'spec.resources.requests[cpu]: Invalid value: "1": must be greater than or equal '
                "to aggregate container requests of 2"
            ],
        ),
        (
            {
                **of_container(resources={"limits": {"cpu": "2"}}),
                "resources": {"limits": {"cpu": "1"}},
            },
            [
                'spec.resources.requests: Invalid value: "2": must be less than or equal to cpu '
                "limit of 1",
                'spec.resources.containers[0][cpu].limits: Invalid value: "2": must be less than '
                "or equal to pod limits of 1",
            ],
        ),
        (
            {"volumes": [{"name": "v", "projected": {"sources": [{"serviceAccountToken": {}}]}}]},
            ["spec.volumes[0].projected.path: Required value"],
        ),
    ],
)
def test_a_pod_is_refused_with_the_message_of_1_37(
    spec: dict[str, Any], expected: list[str]
) -> None:
    assert refused(spec) == expected


@pytest.mark.parametrize("hook", ["postStart", "preStop"])
def test_fields_of_probes_and_hooks_need_their_gates(hook: str) -> None:
    spec = of_container(
        readinessProbe=http(protocol="HTTP3"),
        startupProbe={"grpc": {"port": 80, "mode": "TLS"}},
        lifecycle={hook: http(protocol="HTTP2"), "stopSignal": "SIGTERM"},
    )
    spec["evictionResponders"] = [{"name": "a.b/c", "priority": 1}]
    stored = made(spec)
    container = stored["containers"][0]
    assert "protocol" not in container["readinessProbe"]["httpGet"]
    assert "protocol" not in container["lifecycle"][hook]["httpGet"]
    assert container["lifecycle"]["stopSignal"] == "SIGTERM"
    assert container["startupProbe"]["grpc"] == {"port": 80, "service": ""}
    assert "evictionResponders" not in stored
    spec["containers"][0]["readinessProbe"] = http(protocol="HTTP2")
    container = made(spec, GATES)["containers"][0]
    assert container["readinessProbe"]["httpGet"]["protocol"] == "HTTP2"
    assert container["startupProbe"]["grpc"]["mode"] == "TLS"
    plain = made(probe(**http()), GATES)["containers"][0]["livenessProbe"]["httpGet"]
    assert plain == {"port": 80, "protocol": "HTTP1", "path": "/", "scheme": "HTTP"}


@pytest.mark.parametrize(
    ("supplied", "of_containers", "expected"),
    [
        ({}, {}, {}),
        ({"requests": {"cpu": "1"}}, {}, {"requests": {"cpu": "1"}}),
        ({"limits": {"cpu": "1"}}, {}, {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}),
        (
            {"limits": {"cpu": "4"}},
            {"requests": {"cpu": "2", "memory": "1Gi"}},
            {"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"cpu": "4"}},
        ),
        (
            {"requests": {"memory": "1Gi"}, "limits": {"cpu": "4"}},
            {"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"memory": "2Gi"}},
            {"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"cpu": "4", "memory": "2Gi"}},
        ),
        (
            {"limits": {"hugepages-2Mi": "4Mi"}},
            {"limits": {"hugepages-2Mi": "2Mi", "cpu": "1"}},
            {
                "requests": {"cpu": "1", "hugepages-2Mi": "4Mi"},
                "limits": {"cpu": "1", "hugepages-2Mi": "4Mi"},
            },
        ),
    ],
)
def test_pod_level_resources_get_the_defaults_of_1_37(
    supplied: dict[str, Any], of_containers: dict[str, Any], expected: dict[str, Any]
) -> None:
    spec = {**of_container(resources=of_containers), "resources": supplied}
    assert made(spec)["resources"] == expected


def test_pod_level_limits_need_a_limit_of_every_container() -> None:
    both: list[dict[str, Any]] = [
        {"name": "a", "image": "i:1", "resources": {"limits": {"cpu": "1"}}},
        {"name": "b", "image": "i:1"},
    ]
    spec = {"containers": both, "resources": {"requests": {"cpu": "3"}}}
    assert made(spec)["resources"] == {"requests": {"cpu": "3"}}
    both[1]["resources"] = {"limits": {"cpu": "1"}}
    assert made(spec)["resources"] == {"requests": {"cpu": "3"}, "limits": {"cpu": "3"}}


@pytest.mark.parametrize("subresource", ["", "resize"])
def test_pod_level_resources_that_a_client_leaves_out_are_kept(subresource: str) -> None:
    registry = make_registry()
    own = {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}
    created = registry.create(ADMIN, "pods", pod(resources=own), "default")
    spec = {key: value for key, value in created["spec"].items() if key != "resources"}
    desired = {"metadata": {"name": "web"}, "spec": spec}
    after = registry.update(ADMIN, "pods", desired, "default", name="web", subresource=subresource)
    assert after["spec"]["resources"] == own


STATUS_OF_CLAIMS = {
    "resourceClaimStatuses": [{"name": "a", "resourceClaimName": "x"}],
    "extendedResourceClaimStatus": {"resourceClaimName": "y", "requestMappings": []},
}


def put_status(registry: Any, status: dict[str, Any]) -> dict[str, Any]:
    desired = {"metadata": {"name": "web"}, "status": {"phase": "Pending", **status}}
    after = registry.update(ADMIN, "pods", desired, "default", name="web", subresource="status")
    found: dict[str, Any] = after["status"]
    return found


def test_a_status_without_resource_claims_keeps_stored_ones() -> None:
    registry = make_registry()
    bound_pod(registry, resourceClaims=[{"name": "a", "resourceClaimName": "x"}])
    put_status(registry, STATUS_OF_CLAIMS)
    after = put_status(registry, {"phase": "Running"})
    assert after["resourceClaimStatuses"] == STATUS_OF_CLAIMS["resourceClaimStatuses"]
    assert after["extendedResourceClaimStatus"]["resourceClaimName"] == "y"


@pytest.mark.parametrize(
    ("status", "first", "entries"),
    [
        ({"podIP": "1.2.3.4"}, "1.2.3.4", [{"ip": "1.2.3.4"}]),
        ({"podIPs": [{"ip": "1.2.3.4"}]}, "1.2.3.4", [{"ip": "1.2.3.4"}]),
        (
            {"podIP": "1.2.3.4", "podIPs": [{"ip": "1.2.3.5"}, {"ip": "fd00::1"}]},
            "1.2.3.4",
            [{"ip": "1.2.3.4"}],
        ),
    ],
)
def test_the_addresses_of_a_status_agree(
    status: dict[str, Any], first: str, entries: list[dict[str, str]]
) -> None:
    registry = make_registry()
    bound_pod(registry)
    after = put_status(registry, status)
    assert (after["podIP"], after["podIPs"]) == (first, entries)


def test_the_health_of_a_volume_has_one_of_three_values() -> None:
    registry = make_registry(feature_gates=("CSIVolumeHealth",))
    bound_pod(registry, volumes=[{"name": "v"}])
    health = [{"name": "v", "healthConditions": [{"status": "x", "reason": "R"}]}]
    error = refusal(put_status, registry, {"volumeHealth": health})
    (cause,) = error.details["causes"]
    assert cause["field"] == "status.volumeHealth[0].healthConditions[0].status"
    supported = 'supported values: "DataLoss", "Degraded", "Inaccessible"'
    assert cause["message"] == f'Unsupported value: "x": {supported}'


def test_a_binding_needs_the_name_of_a_node() -> None:
    registry = make_registry()
    registry.create(ADMIN, "pods", pod(), "default")
    binding = {"target": {"name": "A_b"}}
    options = {"name": "web", "subresource": "binding"}
    error = refusal(registry.create, ADMIN, "pods", binding, "default", **options)
    assert (error.code, error.message) == (400, f'target.name: Invalid value: "A_b": {SUBDOMAIN}')


# The subresource pods/resize: accepted changes, unchanged fields, refusals and messages.

Pod = dict[str, Any]


def needs(requests: str = "", limits: str = "") -> dict[str, Any]:
    made = {}
    for kind, parts in (("requests", requests), ("limits", limits)):
        if parts:
            made[kind] = dict(word.split("=") for word in parts.split())
    return made


def container(name: str, resources: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": name, "image": "b:1", "resources": resources, **more}


BURST = needs("cpu=1 memory=1Gi ephemeral-storage=1Gi", "cpu=2 memory=2Gi")
SPEC: dict[str, Any] = {
    "containers": [container("a", BURST), container("b", needs("cpu=1"))],
    "initContainers": [
        container("i", needs("cpu=1")),
        container("s", needs("cpu=1"), restartPolicy="Always"),
    ],
}


def resizable(**spec: Any) -> tuple[Any, Pod]:
    registry = make_registry()
    room = {"cpu": "64", "memory": "256Gi", "pods": "10"}
    registry.create(ADMIN, "nodes", node(allocatable=room))
    return registry, bound_pod(registry, **{**copy.deepcopy(SPEC), **spec})


def resized(change: Any, **spec: Any) -> list[str]:
    """Replaces a pod through its resize subresource, as ``kubectl edit`` does; returns errors."""
    registry, pod = resizable(**spec)
    desired = copy.deepcopy(pod)
    change(desired)
    status = desired.pop("was", None)
    if status is not None:
        reported = {**pod, "status": {**pod["status"], **status}}
        registry.update(ADMIN, "pods", reported, "default", name="web", subresource="status")
        desired["metadata"].pop("resourceVersion")
    try:
        registry.update(ADMIN, "pods", desired, "default", name="web", subresource="resize")
    except ApiError as error:
        assert error.code == 422
        return [f"{cause['field']}: {cause['message']}" for cause in error.details["causes"]]
    return []


def give(resources: dict[str, Any], which: str = "containers", index: int = 0) -> Any:
    return lambda p: p["spec"][which][index].update(resources=resources)


def change(path: str, index: int, **fields: Any) -> Any:
    return lambda p: p["spec"][path][index].update(**fields)


@pytest.mark.parametrize(
    ("act", "expected"),
    [
        (give({**BURST, **needs("cpu=2 memory=2Gi ephemeral-storage=1Gi")}), []),
        (give(needs("cpu=1m memory=1 ephemeral-storage=1024Mi", "cpu=2m memory=2")), []),
        (give(needs("cpu=1 memory=1Gi"), index=1), []),
        (give(needs("cpu=2"), "initContainers", 0), []),
        (give(needs("cpu=2"), "initContainers", 1), []),
        (
            give(needs("cpu=1 memory=1Gi ephemeral-storage=1Gi", "cpu=2")),
            ["spec.containers[0].resources.limits: Forbidden: resource limits cannot be removed"],
        ),
        (
            give({}, index=1),
            [
                "spec.containers[1].resources.requests: Forbidden: resource requests cannot be "
                "removed"
            ],
        ),
        (lambda p: p["spec"].update(hostname="x"), []),
        (
            lambda p: p["spec"]["containers"].reverse(),
            [
                "spec.containers[0].name: Forbidden: containers may not be renamed or reordered on "
                "resize",
                "spec.containers[1].name: Forbidden: containers may not be renamed or reordered on "
                "resize",
            ],
        ),
    ],
)
def test_changes_that_a_resize_may_make(act: Any, expected: list[str]) -> None:
    assert resized(act) == expected


def test_other_fields_are_not_changed() -> None:
    registry, pod = resizable()
    desired = copy.deepcopy(pod)
    desired["spec"]["containers"][0].update(
        image="other", resources={**BURST, **needs("cpu=2 memory=1Gi ephemeral-storage=1Gi")}
    )
    desired["metadata"]["labels"] = {"x": "y"}
    desired["status"] = {"phase": "Failed"}
    after = registry.update(ADMIN, "pods", desired, "default", name="web", subresource="resize")
    expected = copy.deepcopy(pod)
    expected["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "2"
    expected["metadata"]["generation"] = pod["metadata"]["generation"] + 1
    for obj in (after, expected):
        obj["metadata"].pop("resourceVersion")
        obj["metadata"].pop("managedFields", None)
    assert after == expected


def test_a_limit_alone_sets_its_request() -> None:
    registry, _ = resizable()
    patch = {"spec": {"containers": [{"name": "b", "resources": {"limits": {"memory": "1Gi"}}}]}}
    after = registry.patch(ADMIN, "pods", "web", patch, "default", subresource="resize")
    assert after["spec"]["containers"][1]["resources"] == needs("cpu=1 memory=1Gi", "memory=1Gi")


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (needs("cpu=2"), needs("cpu=3"), []),
        (None, needs("cpu=3"), []),
        (needs("cpu=2"), None, []),
        (needs("cpu=2 memory=2Gi"), needs("cpu=2"), []),
        (
            needs("cpu=2", "cpu=4"),
            needs("cpu=2"),
            ["spec.resources.limits: Forbidden: pod-level resource limits cannot be removed"],
        ),
    ],
)
def test_pod_level_resources(before: Any, after: Any, expected: list[str]) -> None:
    def act(p: Pod) -> None:
        p["spec"].pop("resources", None)
        if after is not None:
            p["spec"]["resources"] = after

    plain = {"containers": [container("a", needs("cpu=1 memory=1Gi"))], "initContainers": []}
    level = {} if before is None else {"resources": before}
    assert resized(act, **plain, **level) == expected


def test_a_node_that_shows_no_resources_can_not_resize() -> None:
    def act(p: Pod) -> None:
        give(needs("cpu=2"), index=1)(p)
        p["was"] = {"containerStatuses": [{"name": "a", "state": {"running": {}}}]}

    assert resized(act) == ["spec: Forbidden: Pod running on node without support for resize"]


def test_an_init_container_that_would_have_to_restart_can_not_be_resized() -> None:
    policy = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]
    inits = [
        container("i", needs("cpu=1"), resizePolicy=policy),
        container("s", needs("cpu=1"), resizePolicy=policy, restartPolicy="Always"),
    ]
    assert resized(give(needs("cpu=2"), "initContainers", 1), initContainers=inits) == []
    assert resized(give(needs("cpu=2"), "initContainers", 0), initContainers=inits) == [
        "spec.initContainers[0]: Forbidden: non-sidecar init containers with a resize policy of "
        "RestartContainer cannot be resized"
    ]


def test_mirrors_and_windows_are_not_resized() -> None:
    assert resized(give(needs("cpu=2"), index=1), os={"name": "windows"}) == [
        ": Forbidden: windows pods cannot be resized"
    ]


def test_a_volume_of_another_kind_does_not_prevent_a_resize() -> None:
    volumes = [{"name": "v", "hostPath": {"path": "/x"}}]
    assert resized(give(needs("cpu=2"), index=1), volumes=volumes) == []


def in_memory(size: str | None = "1Mi", name: str = "v", medium: str = "Memory") -> dict[str, Any]:
    source = {"medium": medium, **({} if size is None else {"sizeLimit": size})}
    return {"name": name, "emptyDir": source}


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ([in_memory()], [in_memory("2Mi")], ""),
        ([in_memory()], [], "spec.volumes: volumes may not be added or removed on resize"),
        (
            [in_memory()],
            [in_memory(name="w")],
            "spec.volumes[0].name: volumes may not be renamed or reordered on resize",
        ),
        (
            [in_memory()],
            [in_memory(medium="")],
            "spec.volumes[0]: only sizeLimit of memory-backed emptyDir volumes is mutable on "
            "resize",
        ),
        (
            [in_memory()],
            [in_memory(None)],
            "spec.volumes[0].emptyDir.sizeLimit: adding or removing sizeLimit on an existing "
            "volume is not allowed",
        ),
        (
            [in_memory(medium="")],
            [in_memory("2Mi", medium="")],
            "spec.volumes[0].emptyDir.sizeLimit: sizeLimit is only mutable for memory-backed "
            "emptyDir volumes",
        ),
    ],
)
@pytest.mark.parametrize("gate", [False, True])
def test_only_sizes_of_volumes_in_memory_change_and_only_with_the_gate(
    gate: bool, old: list[Pod], new: list[Pod], problem: str
) -> None:
    registry, pod = resizable(volumes=old)
    registry.feature_gates = frozenset([MEMORY_VOLUMES_GATE] if gate else [])
    desired = copy.deepcopy(pod)
    desired["spec"]["volumes"] = new
    try:
        stored = registry.update(
            ADMIN, "pods", desired, "default", name="web", subresource="resize"
        )
    except ApiError as error:
        found = [f"{cause['field']}: {cause['message']}" for cause in error.details["causes"]]
        assert found == [problem.replace(": ", ": Forbidden: ", 1)]
        assert gate
    else:
        assert not (gate and problem)
        assert stored["spec"]["volumes"] == (new if gate else pod["spec"]["volumes"])
