"""Results computed from the claims of a node: driver calls, ends of pods, container devices."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.base.structs import replace
from kubeletpy.pods.pod import Pod
from kubeletpy.resources.dra.model import (
    CALLS,
    AllocatedClaim,
    ClaimDevice,
    ClaimInfo,
    ClaimProblem,
    Claims,
    ClaimUse,
    ContainerClaim,
    allocated_claim,
    cdi_devices,
    claim_uses,
    claims_by_driver,
    container_claims,
    container_requests,
    container_uses_claims,
    extended_requests,
    leaving,
    referenced,
    uses_claims,
)
from tests.kit.claims import user
from tests.kit.pods import pod_object

A, B = "a.example.com", "b.example.com"
CLAIM = ClaimInfo("c-uid", "c", "default", frozenset({"uid-p"}), {A: (), B: ()})
D0 = ClaimDevice("pool", "d0", ("r0",), (f"{A}/gpu=0", f"{A}/common=x"))
D1 = ClaimDevice("pool", "d1", ("r1",), (f"{A}/gpu=1", f"{A}/common=x"))
D2 = ClaimDevice("pool", "d2", (), (f"{B}/nic=2",))
READY = replace(CLAIM, drivers={A: (D0, D1), B: (D2,)}, prepared=True)


def known(*claims: ClaimInfo) -> Claims:
    return {claim.key: claim for claim in claims}


def test_one_more_pod_uses_a_claim() -> None:
    claim = AllocatedClaim("c-uid", "c", "default", (A, B))
    assert referenced(None, claim, "uid-p") == CLAIM
    both = replace(READY, pods=frozenset({"uid-p", "uid-q"}))
    assert referenced(READY, claim, "uid-q") == both
    assert referenced(both, claim, "uid-q") == both
    with pytest.raises(ClaimProblem, match=r"same name c and different UID old still exists"):
        referenced(replace(READY, uid="old"), claim, "uid-q")


def test_claims_are_grouped_by_driver() -> None:
    other = replace(CLAIM, uid="o-uid", name="o", drivers={B: ()})
    assert claims_by_driver([CLAIM, other], CALLS[0]) == {A: [CLAIM], B: [CLAIM, other]}
    assert claims_by_driver([], CALLS[0]) == {}


def test_the_end_of_a_pod() -> None:
    shared = replace(READY, name="s", pods=frozenset({"uid-p", "uid-q", "uid-r"}))
    others = replace(READY, name="o", pods=frozenset({"uid-q"}))
    left = replace(shared, pods=frozenset({"uid-q", "uid-r"}))
    pair = replace(READY, name="t", pods=frozenset({"uid-p", "uid-q"}))
    other = replace(pair, pods=frozenset({"uid-q"}))
    assert leaving(known(READY, shared, others, pair), "uid-p") == ([left, other], [READY])
    assert leaving(known(others), "uid-p") == ([], [])


@pytest.mark.parametrize(
    ("requested", "devices"),
    [
        ([], ()),
        ([("c", "")], (f"{A}/gpu=0", f"{A}/common=x", f"{A}/gpu=1", f"{B}/nic=2")),
        ([("c", "r0")], (f"{A}/gpu=0", f"{A}/common=x", f"{B}/nic=2")),
        ([("c", "r1"), ("c", "r1")], (f"{A}/gpu=1", f"{A}/common=x", f"{B}/nic=2")),
        # created from a template that needs no claim
        ([("none", "")], ()),
    ],
)
def test_devices_of_a_container(requested: list[tuple[str, str]], devices: tuple[str, ...]) -> None:
    pod = user("p", "c")
    assert cdi_devices(known(READY), pod, claim_uses(pod), requested) == devices
    restored = replace(READY, prepared=False, restored=True)
    assert cdi_devices(known(restored), pod, claim_uses(pod), requested) == devices


@pytest.mark.parametrize(
    "claims",
    [
        known(),
        known(replace(READY, prepared=False)),
        known(replace(READY, pods=frozenset({"uid-q"}))),
        known(replace(READY, namespace="other")),
    ],
)
def test_claims_not_prepared_for_a_pod(claims: Claims) -> None:
    pod = user("p", "c")
    with pytest.raises(ClaimProblem, match="default/c is not prepared for this pod"):
        cdi_devices(claims, pod, claim_uses(pod), [("c", "")])
    assert container_claims(claims, pod, claim_uses(pod), ["c"]) == ()


def test_claims_of_a_container() -> None:
    pod = user("p", "c", "d")
    other = replace(READY, uid="d-uid", name="d", prepared=False, restored=True)
    reported = [ContainerClaim(name, "default", READY.drivers) for name in ("c", "d")]
    requested = ["c", "d", "c", "none"]
    assert container_claims(known(READY, other), pod, claim_uses(pod), requested) == tuple(reported)


# Claims that a pod uses, and which of them may be prepared for it.

TEMPLATE = {"name": "gpu", "resourceClaimTemplateName": "t"}
EXTENDED = {
    "resourceClaimName": "web-extended",
    "requestMappings": [
        {"containerName": "main", "resourceName": "example.com/gpu", "requestName": "r0"}
    ],
}


def pod(*claims: Any, **status: Any) -> Pod:
    obj = pod_object(resourceClaims=list(claims))
    obj["status"] = status
    return Pod(obj)


def made(name: str | None) -> list[Any]:
    return [{"name": "gpu"} if name is None else {"name": "gpu", "resourceClaimName": name}]


@pytest.mark.parametrize(
    ("supplied", "expected"),
    [
        (pod(), ()),
        (pod({"name": "gpu", "resourceClaimName": "c"}), (ClaimUse("gpu", "c"),)),
        (
            pod(TEMPLATE, resourceClaimStatuses=made("web-gpu-1")),
            (ClaimUse("gpu", "web-gpu-1", owned=True),),
        ),
        (pod(TEMPLATE, resourceClaimStatuses=made(None)), ()),
        (pod(extendedResourceClaimStatus=EXTENDED), (ClaimUse("", "web-extended", owned=True),)),
    ],
)
def test_claims_of_a_pod(supplied: Pod, expected: tuple[ClaimUse, ...]) -> None:
    assert claim_uses(supplied) == expected


@pytest.mark.parametrize(
    ("supplied", "why"),
    [
        (pod(TEMPLATE), "no ResourceClaim has been made of the template t"),
        (pod({"name": "gpu"}), "neither"),
    ],
)
def test_claims_without_a_name(supplied: Pod, why: str) -> None:
    assert uses_claims(supplied)
    with pytest.raises(ClaimProblem, match=why):
        claim_uses(supplied)


def test_containers_with_devices() -> None:
    bare: Any = {"name": "main"}
    asking: Any = {"name": "side", "resources": {"claims": [{"name": "gpu"}]}}
    assert not container_uses_claims(pod(TEMPLATE), bare)
    assert container_uses_claims(pod(TEMPLATE), asking)
    assert container_uses_claims(pod(extendedResourceClaimStatus=EXTENDED), bare)


def test_requests_of_a_container() -> None:
    asking: Any = {"name": "main", "resources": {"claims": [{"name": "g", "request": "r"}, {}]}}
    mappings = [{"containerName": name, "requestName": f"for-{name}"} for name in ("main", "side")]
    supplied = pod(TEMPLATE, extendedResourceClaimStatus={**EXTENDED, "requestMappings": mappings})
    assert container_requests(supplied, asking) == [("g", "r"), ("", ""), ("", "for-main")]
    assert extended_requests(supplied, "side") == ("for-side",)


OWNER = {"uid": "uid-web", "controller": True}
RESULTS = [
    {"driver": "a.example.com", "request": "r0"},
    {"driver": "b.example.com", "request": "r1"},
    {"driver": "a.example.com", "request": "r2"},
]


def claim(**changes: Any) -> dict[str, Any]:
    status = {
        "reservedFor": [{"uid": "other"}, {"uid": "uid-web"}],
        "allocation": {"devices": {"results": RESULTS}},
    }
    metadata = {"uid": "claim-uid", "ownerReferences": changes.pop("owners", [OWNER])}
    return {"metadata": metadata, "status": {**status, **changes}}


def test_a_claim_that_may_be_prepared() -> None:
    found = allocated_claim(pod(), ClaimUse("gpu", "c", owned=True), claim())
    assert found == AllocatedClaim("claim-uid", "c", "default", ("a.example.com", "b.example.com"))


@pytest.mark.parametrize(
    ("use", "supplied", "why"),
    [
        (ClaimUse("g", "c", owned=True), claim(owners=[]), "does not control it"),
        (ClaimUse("g", "c", owned=True), claim(owners=[{"uid": "uid-web"}]), "does not control"),
        (
            ClaimUse("g", "c", owned=True),
            claim(owners=[{"uid": "uid-db", "controller": True}]),
            "^ResourceClaim default/c was not made for this pod: the pod does not control it$",
        ),
        (ClaimUse("g", "c"), claim(reservedFor=[{"uid": "x"}]), "is not reserved for this pod"),
        (ClaimUse("g", "c"), claim(reservedFor=None), "is not reserved for this pod"),
        (ClaimUse("g", "c"), claim(allocation=None), "is not allocated"),
    ],
)
def test_claims_that_may_not(use: ClaimUse, supplied: dict[str, Any], why: str) -> None:
    with pytest.raises(ClaimProblem, match=why):
        allocated_claim(pod(), use, supplied)


GROUP = {
    "apiVersion": "scheduling.k8s.io/v1beta1",
    "kind": "PodGroup",
    "name": "g",
    "uid": "uid-g",
    "controller": True,
}
FOR_GROUP = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "uid-g"}


@pytest.mark.parametrize(
    ("group", "owner", "reserved", "why"),
    [
        ("g", {}, {}, ""),
        ("g", {"uid": "uid-web", "kind": "Pod"}, {}, ""),
        ("g", {}, {"uid": "uid-web", "resource": "pods"}, ""),
        ("", {}, {}, "the pod does not control it"),
        ("h", {}, {}, "neither the pod nor PodGroup h controls it"),
        ("g", {"name": "h"}, {}, "neither the pod nor PodGroup g controls it"),
        ("g", {"kind": "Pod"}, {}, "neither the pod nor PodGroup g controls it"),
        ("g", {"controller": False}, {}, "neither the pod nor PodGroup g controls it"),
        ("g", {"apiVersion": "example.com/v1"}, {}, "neither the pod nor PodGroup g controls it"),
        ("g", {}, {"name": "h"}, "is not reserved for this pod"),
        ("g", {}, {"resource": "pods"}, "is not reserved for this pod"),
        ("g", {}, {"apiGroup": "example.com"}, "is not reserved for this pod"),
    ],
)
def test_claims_of_a_pod_group(
    group: str, owner: dict[str, Any], reserved: dict[str, Any], why: str
) -> None:
    one = pod()
    if group:
        one.spec["schedulingGroup"] = {"podGroupName": group}
    supplied = claim(owners=[{**GROUP, **owner}], reservedFor=[{**FOR_GROUP, **reserved}])
    if not why:
        assert allocated_claim(one, ClaimUse("g", "c", owned=True), supplied).name == "c"
        return
    with pytest.raises(ClaimProblem, match=why):
        allocated_claim(one, ClaimUse("g", "c", owned=True), supplied)


def test_a_shared_claim_needs_no_owner() -> None:
    assert allocated_claim(pod(), ClaimUse("g", "c"), claim(owners=[])).name == "c"


PREPARE, UNPREPARE = "NodePrepareResources", "NodeUnprepareResources"


@pytest.mark.parametrize(
    ("results", "skips"),
    [
        ([("a", ())], {}),
        ([("a", ("*",))], {"a": ("*",)}),
        ([("a", (UNPREPARE,))], {"a": (UNPREPARE,)}),
        ([("a", (UNPREPARE, PREPARE))], {"a": (PREPARE, UNPREPARE)}),
        # a driver is called if one of its devices needs it
        ([("a", ("*",)), ("a", ())], {}),
        ([("a", ("*",)), ("a", (UNPREPARE,))], {"a": (UNPREPARE,)}),
        ([("a", (PREPARE, UNPREPARE)), ("a", (UNPREPARE,))], {"a": (UNPREPARE,)}),
        ([("a", ("*",)), ("b", ())], {"a": ("*",)}),
        ([("a", ("NodeDance",))], {}),
    ],
)
def test_calls_that_no_device_of_a_driver_needs(results: Any, skips: Any) -> None:
    found: Any = [{"driver": driver, "skipNodeOperations": list(each)} for driver, each in results]
    claim = {
        "metadata": {"uid": "c"},
        "status": {
            "reservedFor": [{"uid": pod().uid}],
            "allocation": {"devices": {"results": found}},
        },
    }
    assert allocated_claim(pod(), ClaimUse("c", "c"), claim).skips == skips
