"""Labels and annotations by which the agent, crictl and log collectors find a container's pod.

Another agent or an untrusted peer may have written what is read back: anything may be missing or
wrong, and reading never fails. Source: docs/reference/names.csv: cri-label, cri-annotation.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kubeletpy.base.api import types as api
from kubeletpy.base.structs import Struct
from kubeletpy.pods.pod import Pod
from kubeletpy.runtime_manager.names.container_hash import container_hash

if TYPE_CHECKING:
    from kubeletpy.remote.generated import api_pb2 as cri

POD_NAME = "io.kubernetes.pod.name"
POD_NAMESPACE = "io.kubernetes.pod.namespace"
POD_UID = "io.kubernetes.pod.uid"
CONTAINER_NAME = "io.kubernetes.container.name"

HASH = "io.kubernetes.container.hash"
RESTART_COUNT = "io.kubernetes.container.restartCount"
TERMINATION_MESSAGE_PATH = "io.kubernetes.container.terminationMessagePath"
TERMINATION_MESSAGE_POLICY = "io.kubernetes.container.terminationMessagePolicy"
PRE_STOP_HANDLER = "io.kubernetes.container.preStopHandler"
KEPT_PRE_STOP = "io.kubeletpy.container.keptPreStopHandler"
"""Digest of a preStop handler that is too large for an annotation: see kept_hooks."""
PORTS = "io.kubernetes.container.ports"
POD_DELETION_GRACE_PERIOD = "io.kubernetes.pod.deletionGracePeriod"
POD_TERMINATION_GRACE_PERIOD = "io.kubernetes.pod.terminationGracePeriod"

MAX_HANDLER = 4096
"""Maximum characters of a preStop handler, or of a list of ports, in an annotation. A runtime lists
all annotations of the node in one answer of at most 16 MiB."""
_MAX_COUNT = 2**31 - 2  # the next one must still be an API int32
_POD_KEYS = (POD_NAME, POD_NAMESPACE, POD_UID)


class LabeledInfo(Struct, frozen=True):
    """The pod of a sandbox, or the pod and the name of a container, by its labels.

    Empty strings for missing ones.
    """

    pod_name: str
    pod_namespace: str
    pod_uid: str
    container_name: str


class AnnotatedContainerInfo(Struct, frozen=True):
    """The fields of its spec that a container's stop needs, as its annotations record them."""

    pre_stop: api.LifecycleHandler | None = None
    kept_pre_stop: str = ""
    """Where a handler is kept that is too large for an annotation."""
    ports: tuple[api.ContainerPort, ...] = ()
    deletion_grace_period: int | None = None
    """Seconds."""
    termination_grace_period: int | None = None
    """Seconds."""


def sandbox_labels(pod: Pod) -> dict[str, str]:
    """The pod's labels, plus the three that identify the sandbox, which win."""
    return {
        **pod.labels,
        POD_NAME: pod.name,
        POD_NAMESPACE: pod.namespace,
        POD_UID: pod.uid,
    }


def container_labels(pod: Pod, container: api.Container) -> dict[str, str]:
    """The four labels of a container."""
    return {
        POD_NAME: pod.name,
        POD_NAMESPACE: pod.namespace,
        POD_UID: pod.uid,
        CONTAINER_NAME: container["name"],
    }


def container_annotations(
    pod: Pod,
    container: api.Container,
    restart_count: int,
    extra: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Facts that are needed once the pod is removed; ``extra`` (devices) never wins."""
    annotations = {
        **(extra or {}),
        HASH: container_hash(container),
        RESTART_COUNT: str(restart_count),
        TERMINATION_MESSAGE_PATH: container.get("terminationMessagePath") or "",
        TERMINATION_MESSAGE_POLICY: container.get("terminationMessagePolicy") or "",
    }
    if pod.deletion_grace_period is not None:
        annotations[POD_DELETION_GRACE_PERIOD] = str(pod.deletion_grace_period)
    grace = pod.spec.get("terminationGracePeriodSeconds")
    if grace is not None:
        annotations[POD_TERMINATION_GRACE_PERIOD] = str(grace)
    if handler := pre_stop_text(container):
        if len(handler) <= MAX_HANDLER:
            annotations[PRE_STOP_HANDLER] = handler
        else:
            annotations[KEPT_PRE_STOP] = digest(handler)
    if ports := _ports_text(container):
        annotations[PORTS] = ports
    return annotations


def pre_stop_text(container: api.Container) -> str:
    """A container's preStop handler as JSON; "" when it has none."""
    pre_stop = (container.get("lifecycle") or {}).get("preStop")
    return json.dumps(pre_stop, separators=(",", ":")) if pre_stop else ""


def digest(text: str) -> str:
    """The name by which an annotation refers to a handler that is kept elsewhere."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _ports_text(container: api.Container) -> str:
    """The ports as JSON; if very many, only the one that the preStop hook refers to by name."""
    ports = container.get("ports")
    if not ports:
        return ""
    text = json.dumps(ports, separators=(",", ":"))
    if len(text) <= MAX_HANDLER:
        return text
    pre_stop = (container.get("lifecycle") or {}).get("preStop") or {}
    asked = (pre_stop.get("httpGet") or {}).get("port")
    named = next((port for port in ports if port.get("name") and port["name"] == asked), None)
    text = "" if named is None else json.dumps([named], separators=(",", ":"))
    return text if len(text) <= MAX_HANDLER else ""


def pod_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """The labels of a sandbox that are its pod's own."""
    return {key: value for key, value in labels.items() if key not in _POD_KEYS}


def sandbox_rank(sandbox: cri.PodSandbox | cri.PodSandboxStatus) -> tuple[int, int]:
    """Higher is newer, among those of one pod: as SandboxStatus.rank."""
    return sandbox.metadata.attempt, sandbox.created_at


def read_labels(labels: Mapping[str, str]) -> LabeledInfo:
    """Read whose a sandbox or container is from its labels."""
    return LabeledInfo(
        labels.get(POD_NAME, ""),
        labels.get(POD_NAMESPACE, ""),
        labels.get(POD_UID, ""),
        labels.get(CONTAINER_NAME, ""),
    )


def read_restart_count(annotations: Mapping[str, str]) -> int:
    """How often a container was restarted; 0 for a value that cannot be read."""
    return min(max(0, _integer(annotations.get(RESTART_COUNT)) or 0), _MAX_COUNT)


def read_container_annotations(annotations: Mapping[str, str]) -> AnnotatedContainerInfo:
    """Read what a container's stop needs; a value that cannot be read counts as absent."""
    pre_stop = _json(annotations.get(PRE_STOP_HANDLER))
    ports = _json(annotations.get(PORTS))
    return AnnotatedContainerInfo(
        pre_stop=pre_stop if isinstance(pre_stop, dict) else None,  # type: ignore[arg-type]
        kept_pre_stop=annotations.get(KEPT_PRE_STOP, ""),
        ports=tuple(port for port in ports if isinstance(port, dict))  # type: ignore[misc]
        if isinstance(ports, list)
        else (),
        deletion_grace_period=_integer(annotations.get(POD_DELETION_GRACE_PERIOD)),
        termination_grace_period=_integer(annotations.get(POD_TERMINATION_GRACE_PERIOD)),
    )


def _integer(text: str | None) -> int | None:
    if text is None or len(text) > 19:
        return None
    try:
        return int(text)
    except ValueError:
        return None


def _json(text: str | None) -> Any:
    if not text:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
