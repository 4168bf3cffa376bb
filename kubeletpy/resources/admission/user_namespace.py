"""The requests of pods that an agent in a user namespace of a login user can't serve. Pure.

Such a node runs without root (``kubeletpy up --rootless``). A pod that requests one of these things
is refused; the node and other pods are not affected.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kubeletpy.base.structs import Struct
from kubeletpy.kubeapi.events.reasons import AdmissionReason
from kubeletpy.pods.pod import Pod, field_path
from kubeletpy.resources.admission.checks import Rejection

_MORE_IDS = "use 0, or give the login subordinate ids (`kubeletpy explain --node` has the command)"
_AS_ROOT = "run the node as root"


class UserNamespace(Struct, frozen=True):
    """The rights of a user namespace.

    Attributes:
        uids, gids: (first, count) of the ids in it.
        owns_network: whether it owns its network namespace; otherwise all pods share that one.
        first_port: the lowest port that a process may listen at in a network that it does not own.
    """

    uids: Sequence[tuple[int, int]]
    gids: Sequence[tuple[int, int]]
    owns_network: bool = True
    first_port: int = 1024


def refused(pod: Pod, rights: UserNamespace) -> Rejection | None:
    """Return why a pod can't run, as one sentence with the field and the remedy, or None."""
    for field, value, remedy in (
        *_ids(pod, rights),
        *_privileges(pod),
        *(() if rights.owns_network else _ports(pod, rights.first_port)),
    ):
        return Rejection(
            AdmissionReason.NEEDS_ROOT,
            f'pod "{pod.namespace}/{pod.name}" needs {field} {value}, which this node, run without '
            f"root, does not have; {remedy}",
        )
    return None


_Need = tuple[str, object, str]
"""A field, its value, and the remedy."""


def _ids(pod: Pod, rights: UserNamespace) -> Iterator[_Need]:
    context = pod.spec.get("securityContext") or {}
    path = "spec.securityContext"
    yield from _lacking(context, path, rights)
    groups = [context.get("fsGroup"), *(context.get("supplementalGroups") or ())]
    for number, group in enumerate(groups):
        if group is not None and not _within(group, rights.gids):
            yield f"{path}.{'supplementalGroups' if number else 'fsGroup'}", group, _MORE_IDS
    for kind, container in pod.all_containers():
        own = container.get("securityContext") or {}
        yield from _lacking(own, f"{field_path(kind, container['name'])}.securityContext", rights)


def _lacking(context: Mapping[str, Any], path: str, rights: UserNamespace) -> Iterator[_Need]:
    for name, ids in (("runAsUser", rights.uids), ("runAsGroup", rights.gids)):
        value = context.get(name)
        if value is not None and not _within(value, ids):
            yield f"{path}.{name}", value, _MORE_IDS


def _within(number: int, ids: Sequence[tuple[int, int]]) -> bool:
    return any(first <= number < first + count for first, count in ids)


def _privileges(pod: Pod) -> Iterator[_Need]:
    if pod.spec.get("hostUsers") is False:
        yield "spec.hostUsers", "false", "leave it out: the pod has no rights of the machine anyway"
    for kind, container in pod.all_containers():
        for device in container.get("volumeDevices") or ():
            yield f"{field_path(kind, container['name'])}.volumeDevices", device["name"], _AS_ROOT


def _ports(pod: Pod, first: int) -> Iterator[_Need]:
    for kind, container in pod.all_containers():
        for port in container.get("ports") or ():
            number = port.get("hostPort") or 0
            if 0 < number < first:
                field = f"{field_path(kind, container['name'])}.ports.hostPort"
                yield field, number, f"use a port from {first} on"
