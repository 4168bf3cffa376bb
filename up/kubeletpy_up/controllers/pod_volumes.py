"""Effect of a pod's volume claims on where it may run. Pure: the objects come as arguments.

Source: the default scheduler's VolumeBinding and VolumeRestrictions, as tests/contract has
recorded their messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from kubeletpy.base.api.types import JSON
from kubeletpy.base.structs import Struct, field
from kubeletpy.pods.pod import TERMINAL_PHASES
from kubeletpy_up.auth.node_restriction import claim_names
from kubeletpy_up.controllers import claim_matching as matching
from kubeletpy_up.kinds.storage import CLAIMS, CLASSES, VOLUMES, class_of

Find = Callable[[str, str, str], JSON | None]
"""(resource key, namespace, name) -> object or None."""
UNBOUND = "pod has unbound immediate PersistentVolumeClaims"
NOTHING_TO_BIND = "node(s) didn't find available persistent volumes to bind"
OTHER_NODE = "node(s) didn't match PersistentVolume's node affinity"
IN_USE = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already "
    "in-use by another pod"
)


class PodClaims(Struct, frozen=True):
    """The claims of one pod. ``problem``: why it can run nowhere."""

    problem: str = ""
    bound: tuple[JSON, ...] = ()
    waiting: tuple[JSON, ...] = ()
    """Those that are bound once the pod's node is known."""


class Reservation(Struct, frozen=True):
    """Volumes to bind to waiting claims on a node, and claims to provision volumes for."""

    volumes: tuple[JSON, ...] = ()
    claims: tuple[JSON, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.volumes or self.claims)


class Outlook(Struct, frozen=True):
    """Whether a node can have a pod's volumes: why not, or what to reserve."""

    reasons: tuple[str, ...] = ()
    reservation: Reservation = field(default=Reservation())


def claims_of(pod: JSON, find: Find) -> PodClaims:
    """Read a pod's claims."""
    namespace = pod["metadata"]["namespace"]
    bound: list[JSON] = []
    waiting: list[JSON] = []
    unbound = False
    own = {
        f"{pod['metadata']['name']}-{volume['name']}"
        for volume in (pod.get("spec") or {}).get("volumes") or ()
        if volume.get("ephemeral")
    }
    for name in sorted(claim_names(pod)):
        claim = find(CLAIMS, namespace, name)
        problem = _problem(pod, name, claim, is_own=name in own)
        if problem or claim is None:
            return PodClaims(problem)
        if matching.is_completed(claim) and (claim.get("status") or {}).get("phase") == "Bound":
            bound.append(claim)
        elif _is_delayed(claim, find) and not matching.volume_name(claim):
            waiting.append(claim)
        else:
            unbound = True
    if unbound:
        return PodClaims(UNBOUND)
    return PodClaims("", tuple(bound), tuple(waiting))


def _problem(pod: JSON, name: str, claim: JSON | None, *, is_own: bool) -> str:
    if claim is None:
        if is_own:
            return (
                "waiting for ephemeral volume controller to create the persistentvolumeclaim "
                f'"{name}"'
            )
        return f'persistentvolumeclaim "{name}" not found'
    about = claim["metadata"]
    if (claim.get("status") or {}).get("phase") == "Lost":
        lost = matching.volume_name(claim)
        return f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{lost}"'
    if about.get("deletionTimestamp"):
        return f'persistentvolumeclaim "{name}" is being deleted'
    if is_own and (matching.owner_of(claim) or {}).get("uid") != pod["metadata"]["uid"]:
        whose = f"{about['namespace']}/{pod['metadata']['name']}"
        return f"PVC {about['namespace']}/{name} was not created for pod {whose} (pod is not owner)"
    return ""


def _is_delayed(claim: JSON, find: Find) -> bool:
    found = find(CLASSES, "", class_of(claim) or "")
    return found is not None and found.get("volumeBindingMode") == matching.WAITS_FOR_POD


def outlook(
    claims: PodClaims, node: JSON, volumes: Sequence[JSON], find: Find, pods: Iterable[JSON]
) -> Outlook:
    """Whether a node can have a pod's volumes.

    Args:
        claims: of the pod.
        volumes: all PersistentVolumes.
        pods: all those in the claims' namespace.
    """
    if _used_alone(claims, pods):
        return Outlook((IN_USE,))
    reasons = []
    for claim in claims.bound:
        volume = find(VOLUMES, "", matching.volume_name(claim))
        if volume is not None and not matching.fits_node(volume, node):
            reasons.append(OTHER_NODE)
            break
    to_bind: list[JSON] = []
    to_make: list[JSON] = []
    taken: set[str] = set()
    for claim in claims.waiting:
        selected = matching.annotation(claim, matching.SELECTED_NODE)
        if selected not in (None, node["metadata"]["name"]):
            reasons.append(OTHER_NODE)
            break
        volume = matching.find_volume(claim, volumes, node=node, taken=taken)
        if volume is not None:
            taken.add(volume["metadata"]["name"])
            to_bind.append(matching.with_claim(volume, claim))
        elif _is_provisioned(claim, find):
            chosen = {matching.SELECTED_NODE: node["metadata"]["name"]}
            to_make.append(matching.annotated(claim, **chosen))
        else:
            reasons.append(NOTHING_TO_BIND)
            break
    return Outlook(tuple(reasons), Reservation(tuple(to_bind), tuple(to_make)))


def _is_provisioned(claim: JSON, find: Find) -> bool:
    found = find(CLASSES, "", class_of(claim) or "") or {}
    return found.get("provisioner") not in (None, "", matching.NO_PROVISIONER)


def _used_alone(claims: PodClaims, pods: Iterable[JSON]) -> bool:
    alone = {
        claim["metadata"]["name"]
        for claim in (*claims.bound, *claims.waiting)
        if "ReadWriteOncePod" in ((claim.get("spec") or {}).get("accessModes") or ())
    }
    return bool(alone) and any(
        not alone.isdisjoint(claim_names(pod))
        for pod in pods
        if (pod.get("spec") or {}).get("nodeName")
        and (pod.get("status") or {}).get("phase") not in TERMINAL_PHASES
    )
