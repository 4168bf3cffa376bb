"""Strict mode, row by row: requests of a node that a real cluster allows or refuses."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy_up.errors import ApiError
from kubeletpy_up.registry.reading import ListOptions
from kubeletpy_up.registry.registry import Registry
from kubeletpy_up.requests import ADMIN, Caller, DeleteOptions, node_caller
from tests.kit.clocks import START, SetClock
from tests.kit.embedded import NODE, bound_pod, make_registry, node, pod, refusal

MINE, OTHERS = "mine", "theirs"


def chosen(fields: str) -> dict[str, Any]:
    return {"options": ListOptions(field_selector=fields)}


def _slice(name: str, node_name: str) -> dict[str, Any]:
    pool = {"name": node_name, "resourceSliceCount": 1}
    spec = {"driver": "a.com", "nodeName": node_name, "pool": pool}
    return {"metadata": {"name": name}, "spec": spec}


def _world() -> Registry:
    registry = make_registry()
    for name in ("n1", "n2"):
        registry.create(node_caller(name), "nodes", node(name))
    for name in ("s-env", "s-from", "s-vol", "s-proj", "s-pull", "s-theirs", "s-free"):
        registry.create(ADMIN, "secrets", {"metadata": {"name": name}}, "default")
    for name in ("c-env", "c-vol", "c-theirs"):
        registry.create(ADMIN, "configmaps", {"metadata": {"name": name}}, "default")
    container = {
        "name": "c",
        "image": "b:1",
        "env": [
            {"name": "A", "valueFrom": {"secretKeyRef": {"name": "s-env", "key": "k"}}},
            {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "c-env", "key": "k"}}},
        ],
        "envFrom": [{"secretRef": {"name": "s-from"}}],
    }
    volumes = [
        {"name": "a", "secret": {"secretName": "s-vol"}},
        {"name": "b", "configMap": {"name": "c-vol"}},
        {"name": "p", "projected": {"sources": [{"secret": {"name": "s-proj"}}]}},
        {"name": "v", "persistentVolumeClaim": {"claimName": "claim"}},
    ]
    bound_pod(
        registry, MINE, "n1", containers=[container], volumes=volumes,
        imagePullSecrets=[{"name": "s-pull"}],
        resourceClaims=[
            {"name": "d", "resourceClaimName": "devices"},
            {"name": "t", "resourceClaimTemplateName": "template"},
        ],
    )  # fmt: skip
    made = {"resourceClaimStatuses": [{"name": "t", "resourceClaimName": "made"}]}
    registry.patch(ADMIN, "pods", MINE, {"status": made}, "default", subresource="status")
    for name in ("devices", "made", "other-devices"):
        registry.create(ADMIN, "resourceclaims", {"metadata": {"name": name}}, "default")
    for name in ("n1", "n2"):
        registry.create(ADMIN, "resourceslices", _slice(f"s-{name}", name))
    bound_pod(
        registry, OTHERS, "n2",
        volumes=[
            {"name": "a", "secret": {"secretName": "s-theirs"}},
            {"name": "b", "configMap": {"name": "c-theirs"}},
        ],
    )  # fmt: skip
    claim = {
        "metadata": {"name": "claim"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            "volumeName": "disk",
        },
    }
    registry.create(ADMIN, "persistentvolumeclaims", claim, "default")
    for name, used_by in (("disk", "claim"), ("other-disk", "other")):
        volume = {
            "claimRef": {"namespace": "default", "name": used_by},
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": "/x"},
        }
        registry.create(ADMIN, "persistentvolumes", {"metadata": {"name": name}, "spec": volume})
    return registry


def _allowed(registry: Registry, verb: str, *args: Any, **kwargs: Any) -> bool:
    try:
        getattr(registry, verb)(NODE, *args, **kwargs)
    except ApiError as error:
        if error.code == 403:
            assert "forbidden" in error.message
            return False
        assert error.code in (400, 404, 409, 422), error.message
    return True


_STATUS = {"status": {"phase": "Running"}}
_LABELS = {"metadata": {"labels": {"a": "b"}}}


@pytest.mark.parametrize(
    ("allowed", "verb", "args", "kwargs"),
    [
        # nodes
        (True, "watch", ("nodes",), chosen("metadata.name=n1")),
        (False, "list", ("nodes",), chosen("metadata.name=n2")),
        (False, "list", ("nodes",), chosen("metadata.name!=n1")),
        (False, "delete_collection", ("nodes",), {}),
        (False, "patch", ("nodes", "n2", _LABELS), {}),
        # pods
        (False, "watch", ("pods", "default"), {}),
        (False, "list", ("pods",), chosen("spec.nodeName!=n1")),
        (True, "patch", ("pods", "gone", _STATUS, "default"), {"subresource": "status"}),
        (True, "create", ("pods", {}, "default"), {"name": MINE, "subresource": "eviction"}),
        # secrets and configmaps
        *(
            (True, "get", ("secrets", f"s-{how}", "default"), {})
            for how in ("env", "from", "vol", "proj", "pull")
        ),
        (True, "get", ("configmaps", "c-env", "default"), {}),
        (True, "get", ("configmaps", "c-vol", "default"), {}),
        (False, "get", ("secrets", "s-env", "kube-system"), {}),
        (True, "list", ("configmaps", "default"), chosen("metadata.name=c-env")),
        (False, "watch", ("configmaps",), {}),
        (False, "create", ("secrets", {"metadata": {"name": "x"}}, "default"), {}),
        # volumes
        (True, "list", ("persistentvolumeclaims", "default"), chosen("metadata.name=claim")),
        (True, "watch", ("persistentvolumeclaims", "default"), chosen("metadata.name=claim")),
        (False, "list", ("persistentvolumeclaims", "default"), chosen("metadata.name=other")),
        (False, "list", ("persistentvolumeclaims", "default"), chosen("metadata.name!=other")),
        (True, "list", ("persistentvolumes",), chosen("metadata.name=disk")),
        (True, "watch", ("persistentvolumes",), chosen("metadata.name=disk")),
        (False, "list", ("persistentvolumes",), chosen("metadata.name=other-disk")),
        # claims of devices and slices
        (True, "get", ("resourceclaims", "devices", "default"), {}),
        (True, "get", ("resourceclaims", "made", "default"), {}),
        (False, "get", ("resourceclaims", "other-devices", "default"), {}),
        (False, "list", ("resourceclaims", "default"), {}),
        (False, "patch", ("resourceclaims", "devices", {}, "default"), {"subresource": "status"}),
        (False, "list", ("deviceclasses",), {}),
        (True, "create", ("resourceslices", _slice("new", "n1")), {}),
        (False, "create", ("resourceslices", _slice("new", "n2")), {}),
        (True, "get", ("resourceslices", "s-n1"), {}),
        (False, "get", ("resourceslices", "s-n2"), {}),
        (True, "delete", ("resourceslices", "s-n1"), {}),
        (False, "delete", ("resourceslices", "s-n2"), {}),
        (True, "list", ("resourceslices",), chosen("spec.nodeName=n1")),
        (False, "list", ("resourceslices",), chosen("spec.nodeName=n2")),
        (False, "delete_collection", ("resourceslices",), {}),
        # leases
        (True, "update", ("leases", {"metadata": {"name": "n1"}}, "kube-node-lease"), {}),
        (False, "get", ("leases", "n1", "default"), {}),
        # readable by every node
        *((True, "list", (plural,), {}) for plural in ("services", "runtimeclasses", "csidrivers")),
        (True, "watch", ("services",), {}),
        (False, "create", ("services", {"metadata": {"name": "x"}}, "default"), {}),
        # events and reviews
        (True, "create", ("events", {"metadata": {"name": "e"}}, "default"), {}),
        (True, "patch", ("events", "e", {}, "default"), {}),
        (False, "get", ("events", "e", "default"), {}),
        (False, "list", ("events",), {}),
        (True, "create", ("tokenreviews", {"spec": {"token": "x"}}), {}),
        (True, "create", ("subjectaccessreviews", {"spec": {"user": "x"}}), {}),
        (True, "create", ("selfsubjectreviews", {}), {}),
        # the rest
        (False, "get", ("serviceaccounts", "default", "kube-system"), {}),
        (False, "get", ("serviceaccounts", "other", "default"), {}),
        (False, "list", ("serviceaccounts", "default"), {}),
        (False, "list", ("priorityclasses",), {}),
    ],
)
def test_the_node_authorizer(
    allowed: bool, verb: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    registry = _world()
    assert _allowed(registry, verb, *args, **kwargs) is allowed
    if not allowed:
        registry.strict = False
        assert _allowed(registry, verb, *args, **kwargs), "strict mode is what refused it"


@pytest.mark.parametrize(
    ("change", "allowed"),
    [
        ({"metadata": {"labels": {"kubernetes.io/os": "linux"}}}, True),
        ({"metadata": {"labels": {"node.kubernetes.io/x": "1"}}}, True),
        ({"metadata": {"labels": {"kubelet.kubernetes.io/x": "1"}}}, True),
        ({"metadata": {"labels": {"topology.kubernetes.io/zone": "z"}}}, True),
        ({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}}, False),
        ({"metadata": {"labels": {"kubernetes.io/anything": "1"}}}, False),
        ({"metadata": {"labels": {"foo.k8s.io/x": "1"}}}, False),
    ],
)
def test_changes_that_a_node_may_make_to_itself(change: dict[str, Any], allowed: bool) -> None:
    assert _allowed(_world(), "patch", "nodes", "n1", change) is allowed


@pytest.mark.parametrize(
    ("labels", "name", "allowed"),
    [
        ({"kubernetes.io/arch": "amd64"}, "n3", True),
        ({"node-role.kubernetes.io/x": ""}, "n3", False),
        ({}, "n4", False),
    ],
)
def test_a_node_registers_itself_only(labels: dict[str, str], name: str, allowed: bool) -> None:
    registry = _world()
    made = node(name)
    made["metadata"]["labels"] = labels
    if allowed:
        registry.create(node_caller("n3"), "nodes", made)
    else:
        assert refusal(registry.create, node_caller("n3"), "nodes", made).code == 403


def _mirror(registry: Registry, **spec: Any) -> dict[str, Any]:
    own = registry.get(ADMIN, "nodes", "n1")["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": own, "controller": True}
    made = pod("static-n1", nodeName="n1", **spec)
    made["metadata"] |= {
        "annotations": {"kubernetes.io/config.mirror": "hash"},
        "ownerReferences": [owner],
    }
    return made


def test_mirror_pods_may_be_created_and_their_references_grant_nothing() -> None:
    registry = _world()
    registry.create(NODE, "pods", _mirror(registry), "default")
    stored = registry.find("pods", "default", "static-n1")
    assert stored is not None
    assert "serviceAccountName" not in stored["spec"]
    spec = {**stored["spec"], "volumes": [{"name": "a", "secret": {"secretName": "s-free"}}]}
    registry.store.put("pods", "default", "static-n1", {**stored, "spec": spec})
    assert not _allowed(registry, "get", "secrets", "s-free", "default")


def _without(made: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    *parents, last = path.split(".")
    current: Any = made
    for part in parents:
        current = current[int(part)] if isinstance(current, list) else current[part]
    if value is None:
        del current[last]
    else:
        current[last] = value
    return made


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.ownerReferences.0.name", "n2"),
        ("metadata.ownerReferences.0.kind", "Pod"),
        ("metadata.ownerReferences.0.controller", False),
        ("metadata.ownerReferences.0.blockOwnerDeletion", True),
        ("spec.imagePullSecrets", [{"name": "s-env"}]),
        ("spec.volumes", [{"name": "v", "configMap": {"name": "c-env"}}]),
        ("spec.volumes", [{"name": "v", "persistentVolumeClaim": {"claimName": "claim"}}]),
    ],
)
def test_a_node_creates_no_other_pods(path: str, value: Any) -> None:
    registry = _world()
    made = _without(_mirror(registry), path, value)
    assert refusal(registry.create, NODE, "pods", made, "default").code == 403


@pytest.mark.parametrize(
    ("reference", "allowed"),
    [
        ({"kind": "Pod", "name": MINE, "uid": "right"}, True),
        ({"kind": "Pod", "name": MINE, "uid": "wrong"}, False),
        ({"kind": "Pod", "name": MINE}, False),
        ({"kind": "Pod", "name": OTHERS, "uid": "right"}, False),
        ({"kind": "Pod", "name": "gone", "uid": "right"}, False),
        ({"kind": "Secret", "name": "s-env"}, False),
        ({}, False),
    ],
)
def test_tokens_only_for_its_own_pods(reference: dict[str, str], allowed: bool) -> None:
    registry = _world()
    if reference.get("uid") == "right":
        found = registry.find("pods", "default", reference["name"])
        reference = {**reference, "uid": found["metadata"]["uid"] if found else "x"}
    request = {"spec": {"audiences": ["a"], "boundObjectRef": reference}}
    call = ("serviceaccounts", request, "default")
    assert _allowed(registry, "create", *call, name="default", subresource="token") is allowed


def test_a_user_with_a_nodes_name_but_no_group_is_refused() -> None:
    fake = Caller("system:node:n1", ("system:authenticated",))
    assert refusal(_world().get, fake, "nodes", "n1").code == 403


# Service account tokens, and their TokenReview.


def _request(registry: Registry, **spec: Any) -> Any:
    return registry.create(
        ADMIN,
        "serviceaccounts",
        {"spec": {"audiences": ["vault"], **spec}},
        "default",
        name="default",
        subresource="token",
    )


def _review(registry: Registry, token: str, *audiences: str) -> Any:
    spec = {"token": token, "audiences": list(audiences)}
    return registry.create(ADMIN, "tokenreviews", {"spec": spec})["status"]


def test_a_token_authenticates_its_account_until_it_expires() -> None:
    clock = SetClock()
    registry = make_registry(clock=clock)
    answer = _request(registry, expirationSeconds=600)
    token = answer["status"]["token"]
    assert answer["status"]["expirationTimestamp"] == "2023-11-14T22:23:20Z"
    status = _review(registry, token, "vault", "other")
    assert status.get("authenticated", False) is True
    assert status["user"]["username"] == "system:serviceaccount:default:default"
    assert status["audiences"] == ["vault"]
    assert _review(registry, token, "other").get("authenticated", False) is False
    assert _review(registry, token).get("authenticated", False) is False, "not for the API itself"
    clock.time = START + 601
    assert _review(registry, token, "vault").get("authenticated", False) is False


def test_a_bound_token_ends_with_its_pod() -> None:
    registry = make_registry()
    uid = bound_pod(registry)["metadata"]["uid"]
    reference = {"kind": "Pod", "apiVersion": "v1", "name": "web", "uid": uid}
    token = _request(registry, boundObjectRef=reference)["status"]["token"]
    assert _review(registry, token, "vault").get("authenticated", False) is True
    registry.delete(ADMIN, "pods", "web", "default", DeleteOptions(grace_period_seconds=0))
    assert _review(registry, token, "vault").get("authenticated", False) is False


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        ({"boundObjectRef": {"kind": "Pod", "name": "gone"}}, 404),
        ({"boundObjectRef": {"kind": "Service", "name": "x"}}, 400),
        ({"expirationSeconds": "x"}, 400),
    ],
)
def test_refused_requests(spec: dict[str, Any], code: int) -> None:
    assert refusal(_request, make_registry(), **spec).code == code


@pytest.mark.parametrize(
    "spoil",
    [
        lambda t: t[:-2] + "AA",
        lambda t: "a.b.c",
        str.upper,
        lambda t: t + "=",  # a decoder ignores what these two add
        lambda t: t[:-4] + "\0" + t[-4:],
    ],
)
def test_forged_tokens(spoil: Any) -> None:
    registry = make_registry()
    token = spoil(_request(registry)["status"]["token"])
    status = _review(registry, token, "vault")
    assert status.get("authenticated", False) is False
    assert token not in str(status) or not token


def test_another_key_does_not_verify() -> None:
    token = _request(make_registry(signing_key=b"a" * 32))["status"]["token"]
    other = make_registry(signing_key=b"b" * 32)
    assert _review(other, token, "vault").get("authenticated", False) is False
