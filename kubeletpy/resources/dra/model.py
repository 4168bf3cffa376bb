"""The node's claims, and the resulting calls to drivers and devices of containers. Pure.

Source: docs/reference/behaviour-resources.md, ru.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from kubeletpy.base.structs import Struct, field, replace
from kubeletpy.pods.pod import Pod
from kubeletpy.resources.dra.claims import EVERY, Allocated, ClaimProblem, ClaimUse


class ClaimDevice(Struct, frozen=True):
    """One device that a driver has prepared.

    Attributes:
        requests: the claim's requests that it serves; empty: all.
        cdi: names of CDI devices, ``vendor.com/class=name``; a device may have none.
    """

    pool: str
    name: str
    requests: tuple[str, ...] = ()
    cdi: tuple[str, ...] = ()
    share: str | None = None


class ClaimInfo(Struct, frozen=True):
    """One claim that pods of this node use.

    Attributes:
        pods: uids of the pods that use it.
        drivers: each driver of the allocation, with what it has prepared.
        prepared: since this agent started. It is kept nowhere else: after a restart a new
            sandbox has its claims prepared again.
        restored: from the checkpoint: ``drivers`` is what an earlier agent was given.
        skips: by driver the calls that are not made, by name or "*".
    """

    uid: str
    name: str
    namespace: str
    pods: frozenset[str] = frozenset()
    drivers: Mapping[str, tuple[ClaimDevice, ...]] = field(default_factory=dict)
    prepared: bool = False
    restored: bool = False
    skips: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def called(self, call: str) -> tuple[str, ...]:
        """The drivers that get a call for this claim."""
        return tuple(
            driver for driver in self.drivers if not {call, EVERY} & {*self.skips.get(driver, ())}
        )

    @property
    def key(self) -> ClaimKey:
        """Namespace and name, which only one claim has at a time."""
        return self.namespace, self.name

    @property
    def shown(self) -> str:
        """For people."""
        return f"{self.namespace}/{self.name}"

    @property
    def usable(self) -> bool:
        """Whether it is known what its drivers have prepared."""
        return self.prepared or self.restored


class ContainerClaim(Struct, frozen=True):
    """A claim that a container uses, with what the drivers have prepared for it.

    Attributes:
        devices: driver -> those of the whole claim, including requests that others use.
    """

    name: str
    namespace: str
    devices: Mapping[str, tuple[ClaimDevice, ...]]


class ClaimWait(Struct, frozen=True):
    """A call to a driver in progress.

    Attributes:
        claims: names of the ResourceClaims that it is for.
        since: by the event loop's clock.
        until: when it is given up.
    """

    claims: str
    driver: str
    call: str
    since: float
    until: float


class BadClaimState(ValueError):
    """A state file that cannot be used; the message contains the reason."""


ClaimKey = tuple[str, str]
"""Namespace and name."""
Claims = Mapping[ClaimKey, ClaimInfo]


def referenced(
    known: ClaimInfo | None, claim: Allocated, pod: str, *, may_skip: bool = False
) -> ClaimInfo:
    """A claim with one more pod that uses it.

    Args:
        may_skip: whether the allocation may exempt drivers from calls. The decision for a claim
            holds until its last pod has ended, also in agents that decide otherwise.

    Raises:
        ClaimProblem: an older claim of that name is still in use, or drivers may not be exempted.
    """
    if known is None:
        if claim.skips and not may_skip:
            raise ClaimProblem(
                f"ResourceClaim {claim.namespace}/{claim.name} skips calls to DRA driver "
                f"{', '.join(claim.skips)}, and the DRAOptionalNodeOperations feature gate is "
                "disabled on kubelet"
            )
        drivers: dict[str, tuple[ClaimDevice, ...]] = dict.fromkeys(claim.drivers, ())
        pods = frozenset({pod})
        return ClaimInfo(claim.uid, claim.name, claim.namespace, pods, drivers, skips=claim.skips)
    if known.uid != claim.uid:
        raise ClaimProblem(
            f"old ResourceClaim with same name {known.name} and different UID {known.uid} still "
            "exists: its drivers have not unprepared it yet"  # the kubelet's text, then the cause
        )
    return replace(known, pods=known.pods | {pod})


def to_call(claims: Iterable[ClaimInfo], call: str) -> dict[str, list[ClaimInfo]]:
    """The claims of each driver that gets a call: the content of one call."""
    found: dict[str, list[ClaimInfo]] = {}
    for claim in claims:
        for driver in claim.called(call):
            found.setdefault(driver, []).append(claim)
    return found


def exempted(claims: Iterable[ClaimInfo], call: str) -> list[str]:
    """The drivers that a call is not made to, once for each claim."""
    return [
        driver for claim in claims for driver in claim.drivers if driver not in claim.called(call)
    ]


def leaving(claims: Claims, pod: str) -> tuple[list[ClaimInfo], list[ClaimInfo]]:
    """The effect of a pod's end on its claims.

    Returns:
        the claims that others still use, without this pod, and those to unprepare.
    """
    used = [claim for claim in claims.values() if pod in claim.pods]
    kept = [replace(claim, pods=claim.pods - {pod}) for claim in used if len(claim.pods) > 1]
    return kept, [claim for claim in used if len(claim.pods) == 1]


def cdi_devices(
    claims: Claims,
    pod: Pod,
    uses: Collection[ClaimUse],
    asked: Iterable[tuple[str, str]],
) -> tuple[str, ...]:
    """The CDI devices of one container, each once.

    Args:
        asked: claims of the pod by their names in it, each with a request or "".

    Raises:
        ClaimProblem: a claim is not prepared.
    """
    objects = {use.name: use.claim for use in uses}
    found: dict[str, None] = {}
    for name, request in asked:
        if name not in objects:
            continue  # its template needs no claim
        claim = claims.get((pod.namespace, objects[name]))
        if claim is None or not claim.usable or pod.uid not in claim.pods:
            raise ClaimProblem(
                f"ResourceClaim {pod.namespace}/{objects[name]} is not prepared for this pod"
            )
        for devices in claim.drivers.values():
            for device in devices:
                if not request or not device.requests or request in device.requests:
                    found.update(dict.fromkeys(device.cdi))
    return tuple(found)


def container_claims(
    claims: Claims, pod: Pod, uses: Collection[ClaimUse], asked: Iterable[str]
) -> tuple[ContainerClaim, ...]:
    """The claims of one container, each once; those that are not prepared are left out.

    Args:
        asked: claims of the pod by their names in it.
    """
    objects = {use.name: use.claim for use in uses}
    found = []
    for name in dict.fromkeys(asked):
        claim = claims.get((pod.namespace, objects.get(name, "")))
        if claim is not None and claim.usable and pod.uid in claim.pods:
            found.append(ContainerClaim(claim.name, claim.namespace, claim.drivers))
    return tuple(found)
