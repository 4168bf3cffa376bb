"""The desired pods of the node: by uid and by full name, static pods joined with their mirrors.

A plain data structure, fed by the sync loop only. Must never decide what happens to a pod.
"""

from __future__ import annotations

from itertools import islice

from kubeletpy.base.structs import Struct
from kubeletpy.pods.pod import Pod

MAX_NAMESAKES = 5
"""Pods that an error message names."""


def static_name(manifest_name: str, node_name: str) -> str:
    """The name of the static pod of a manifest."""
    return f"{manifest_name}-{node_name.lower()}"


class Resolved(Struct, frozen=True):
    """A pod object from a source, resolved to the pod that runs and its mirror."""

    pod: Pod | None
    """The pod that runs; None for a mirror without a static pod here."""
    mirror: Pod | None
    was_mirror: bool
    """Whether the object in question was the mirror."""


class PodManager:
    """All pods from all sources. A static pod and its mirror share a full name."""

    def __init__(self) -> None:
        self._pods: dict[str, Pod] = {}
        self._mirrors: dict[str, Pod] = {}
        self._pod_by_name: dict[str, Pod] = {}
        self._mirror_by_name: dict[str, Pod] = {}

    def put(self, pod: Pod) -> None:
        """Add a pod, or replace the object of a known pod."""
        if pod.is_mirror:
            self._mirrors[pod.uid] = pod
            self._mirror_by_name[pod.full_name] = pod
        else:
            self._pods[pod.uid] = pod
            self._pod_by_name[pod.full_name] = pod

    def remove(self, pod: Pod) -> None:
        """Remove a pod; its name stays with a newer pod that has taken it."""
        self._mirrors.pop(pod.uid, None)
        self._pods.pop(pod.uid, None)
        for by_name in (self._mirror_by_name, self._pod_by_name):
            holder = by_name.get(pod.full_name)
            if holder is not None and holder.uid == pod.uid:
                del by_name[pod.full_name]

    def pods(self) -> list[Pod]:
        """All pods that should run here, without mirrors."""
        return list(self._pods.values())

    def uids(self) -> frozenset[str]:
        """The uids of the pods that should run here."""
        return frozenset(self._pods)

    def mirrors(self) -> list[Pod]:
        """All mirrors, also those without a static pod."""
        return list(self._mirrors.values())

    def get(self, uid: str) -> Pod | None:
        """The pod (not a mirror) with that uid."""
        return self._pods.get(uid)

    def by_name(self, namespace: str, name: str) -> Pod | None:
        """The pod (not a mirror) with that namespace and name."""
        return self._pod_by_name.get(f"{name}_{namespace}")

    def lookup(self, namespace: str, name: str, node_name: str) -> Pod | None:
        """The pod that a person names: by its name, its uid, or that in a static pod's manifest.

        The uid may be that of its mirror. A static pod is named after its manifest and the node.
        """
        named = self.by_name(namespace, name) or self.get(self.translate_uid(name))
        static = self.by_name(namespace, static_name(name, node_name))
        return named or (static if static is not None and static.is_static else None)

    def namesakes(self, name: str, node_name: str) -> str:
        """The pods that ``lookup`` finds in any namespace, for the end of a sentence.

        Example: ``; use shop/web or kube-system/web-n1, which this node has``. Empty without any.
        """
        namespaces = {pod.namespace for pod in self._pods.values()}
        found = (self.lookup(each, name, node_name) for each in sorted(namespaces))
        keys = " or ".join(islice((pod.key for pod in found if pod is not None), MAX_NAMESAKES))
        return f"; use {keys}, which this node has" if keys else ""

    def mirror_of(self, pod: Pod) -> Pod | None:
        """The mirror of a static pod."""
        return self._mirror_by_name.get(pod.full_name)

    def static_of(self, mirror: Pod) -> Pod | None:
        """The static pod of a mirror."""
        return self._pod_by_name.get(mirror.full_name)

    def resolve(self, pod: Pod) -> Resolved:
        """For either of the two objects: the pod that runs, and its mirror."""
        if pod.is_mirror:
            return Resolved(self.static_of(pod), pod, True)
        return Resolved(pod, self.mirror_of(pod), False)

    def current(self, uid: str) -> tuple[Pod, Pod | None] | None:
        """The newest object of a pod and its mirror."""
        pod = self._pods.get(uid)
        return None if pod is None else (pod, self.mirror_of(pod))

    def translate_uid(self, uid: str) -> str:
        """The uid under which a pod runs: for a mirror, its static pod's."""
        mirror = self._mirrors.get(uid)
        static = None if mirror is None else self.static_of(mirror)
        return uid if static is None else static.uid

    def orphan_mirrors(self) -> list[Pod]:
        """Mirrors without a static pod."""
        return [m for m in self._mirror_by_name.values() if m.full_name not in self._pod_by_name]
