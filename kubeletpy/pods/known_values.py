"""Values of a spec that weaken a pod where they are unknown: names of an enum, and ids. Pure.

An API server validates them, but a manifest, another API or a newer server's value reaches the node
as it is. An unknown restartPolicy would run a container again, an unknown imagePullPolicy would
skip the registry, and an id beyond 2^32 is root's in a runtime that cuts it off. Such a spec is
refused. Values whose default is the stronger one (procMount, mountPropagation) are not checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kubeletpy.base.api import types as api
from kubeletpy.pods.pod import Pod

MAX_ID = 2**31 - 1
"""The largest user or group id that API servers accept."""
PROTOCOLS = ("TCP", "UDP", "SCTP")
PULL_POLICIES = ("Always", "IfNotPresent", "Never")
RESTART_POLICIES = ("Always", "OnFailure", "Never")
POD_ENUMS: Mapping[str, tuple[str, ...]] = {
    "restartPolicy": RESTART_POLICIES,
    "dnsPolicy": ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"),
}
_ACTIONS = ("Restart", "RestartAllContainers")
_OPERATORS = ("In", "NotIn")
_IDS = ("runAsUser", "runAsGroup", "fsGroup")
_SHOWN = 40
"""Characters of a value in a message."""


def unknown(field: str, value: object, known: tuple[str, ...]) -> str:
    """The problem of a value that is not one of those known; empty when it is."""
    if value in known:
        return ""
    shown = "missing" if value is None else f'"{value!s:.{_SHOWN}}"'
    return f"{field} is {shown}, not one of {', '.join(known)}; correct the pod's spec"


def id_problem(field: str, value: int) -> str:
    """The problem of a user or group id; empty when it is one."""
    if 0 <= value <= MAX_ID:
        return ""
    return f"{field} is {value}, not an id from 0 to {MAX_ID}; correct the pod's spec"


def pod_problem(pod: Pod) -> str:
    """The first value for which no sandbox is made; empty when all are known."""
    return next(filter(None, _pod_problems(pod)), "")


def container_problem(container: api.Container) -> str:
    """The first value for which a container is not made; empty when all are known."""
    return next(filter(None, _container_problems(container)), "")


def pull_policy_problem(container: api.Container) -> str:
    """The problem of the pull policy of an image; none: that of its tag."""
    return _optional(container, "imagePullPolicy", PULL_POLICIES)


def context_problem(context: Mapping[str, Any]) -> str:
    """The first id of a security context, of a pod or a container, that is none; or empty."""
    ids = [(name, context.get(name)) for name in _IDS]
    ids += [("supplementalGroups", each) for each in context.get("supplementalGroups") or ()]
    found = (id_problem(f"securityContext.{n}", v) for n, v in ids if v is not None)
    return next(filter(None, found), "")


def _pod_problems(pod: Pod) -> Iterator[str]:
    for field, known in POD_ENUMS.items():
        yield _optional(pod.spec, field, known)
    yield context_problem(pod.spec.get("securityContext") or {})
    for _, container in pod.all_containers():
        for port in container.get("ports") or ():
            if problem := _optional(port, "protocol", PROTOCOLS):
                yield f"container {container['name']}: port's {problem}"


def _container_problems(container: api.Container) -> Iterator[str]:
    if (policy := container.get("restartPolicy")) is not None:
        yield unknown("restartPolicy", policy, RESTART_POLICIES)
    for rule in container.get("restartPolicyRules") or ():
        yield unknown("restartPolicyRules: action", rule.get("action"), _ACTIONS)
        if codes := rule.get("exitCodes"):
            yield unknown("restartPolicyRules: operator", codes.get("operator"), _OPERATORS)
    yield pull_policy_problem(container)
    yield context_problem(container.get("securityContext") or {})


def _optional(spec: Mapping[str, Any], field: str, known: tuple[str, ...]) -> str:
    value = spec.get(field)
    return unknown(field, value, known) if value else ""
