"""Which Linux namespaces a pod and its containers share with the node or with each other.

Source: docs/reference/behaviour.md, j2.
"""

from __future__ import annotations

from kubeletpy.base.structs import Struct
from kubeletpy.pods.pod import Pod
from kubeletpy.remote.generated import api_pb2 as cri


class UserNamespaceRange(Struct, frozen=True):
    """The node's ids that a pod with hostUsers false is mapped to, starting at its id 0."""

    first_host_id: int
    length: int = 65536


def namespace_options(
    pod: Pod, userns: UserNamespaceRange | None = None, target_id: str = ""
) -> cri.NamespaceOption:
    """The namespaces of a pod's sandbox or of one container.

    ``target_id`` is the container whose processes an ephemeral container targets; it counts
    only where containers have process namespaces of their own.
    """
    host_pid = pod.spec.get("hostPID")
    shared_pid = pod.spec.get("shareProcessNamespace")
    pid = cri.CONTAINER
    if host_pid:
        pid = cri.NODE
    elif shared_pid:
        pid = cri.POD
    elif target_id:
        pid = cri.TARGET
    options = cri.NamespaceOption(
        network=cri.NODE if pod.host_network else cri.POD,
        ipc=cri.NODE if pod.spec.get("hostIPC") else cri.POD,
        pid=pid,
        target_id=target_id if pid == cri.TARGET else "",
    )
    if userns is not None:
        ids = id_mappings(userns)
        options.userns_options.CopyFrom(cri.UserNamespace(mode=cri.POD, uids=ids, gids=ids))
    return options


def id_mappings(userns: UserNamespaceRange) -> list[cri.IDMapping]:
    """The one mapping, which applies to users and to groups."""
    return [cri.IDMapping(host_id=userns.first_host_id, container_id=0, length=userns.length)]


def requests_user_namespace(pod: Pod) -> bool:
    """Whether the pod requests its own user namespace (hostUsers false)."""
    return pod.spec.get("hostUsers") is False
