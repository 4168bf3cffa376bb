"""Features that a node declares in its status, so that it gets no pod that needs others.

Pure. Source: KEP-5328; docs/reference/behaviour.md, l, o1.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType

from kubeletpy.pods.pod import Pod

GATE = "NodeDeclaredFeatures"


def _restarts_all(pod: Pod) -> bool:
    return any(
        rule.get("action") == "RestartAllContainers"
        for container in (*pod.init_containers, *pod.containers)
        for rule in container.get("restartPolicyRules") or ()
    )


def _own_users_on_the_nodes_network(pod: Pod) -> bool:
    return pod.host_network and pod.spec.get("hostUsers") is False


def _nobody(pod: Pod) -> bool:
    return False  # only later operations on a pod need it


FEATURES: Mapping[str, Callable[[Pod], bool]] = MappingProxyType(
    {
        "ExtendWebSocketsToKubelet": _nobody,
        "InPlacePodLevelResourcesVerticalScaling": _nobody,
        "InPlacePodVerticalScalingInitContainers": _nobody,
        "RestartAllContainersOnContainerExits": _restarts_all,
        "UserNamespacesHostNetworkSupport": _own_users_on_the_nodes_network,
    }
)
"""Feature -> whether a pod needs it in order to run. Each has a gate of the same name."""


def declared(enabled: Mapping[str, bool]) -> tuple[str, ...]:
    """What a node declares, given its feature gates; sorted. Unknown gates are off."""
    if not enabled.get(GATE):
        return ()
    return tuple(name for name in sorted(FEATURES) if enabled.get(name))


def lacking(pod: Pod, available: Collection[str]) -> list[str]:
    """Features that a pod needs and the node lacks, sorted."""
    return [name for name in sorted(FEATURES) if name not in available and FEATURES[name](pod)]
