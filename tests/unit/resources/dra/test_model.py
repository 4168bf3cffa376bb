"""Results computed from the claims of a node: driver calls, ends of pods, container devices."""

from __future__ import annotations

import pytest

from kubeletpy.base.structs import replace
from kubeletpy.resources.dra.model import (
    CALLS,
    AllocatedClaim,
    ClaimDevice,
    ClaimInfo,
    ClaimProblem,
    Claims,
    ContainerClaim,
    cdi_devices,
    claim_uses,
    claims_by_driver,
    container_claims,
    leaving,
    referenced,
)
from tests.unit.resources.dra.node import user

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
