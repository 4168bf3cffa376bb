"""Names by which a container is found again: labels, annotations, hashes, log and file paths. Pure.

The agent, crictl and log collectors use them. Another agent or an untrusted peer may have written
the labels and annotations that are read back: anything may be missing or wrong, and reading never
fails. Names from specs become parts of paths: one that could lead elsewhere is refused. Source:
docs/reference/names.csv: cri-label, cri-annotation, log.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from kubeletpy.base.api import types as api
from kubeletpy.base.structs import Struct
from kubeletpy.pods.pod import Pod, fnv1a_32
from kubeletpy.remote.generated import api_pb2 as cri

# Hashes of a container's definition and of its configuration

_GO_JSON_ESCAPES = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)
CONFIG_HASH = "io.kubeletpy.container.configHash"
"""For root only, like the rest of what a container is made with."""


def container_hash(container: api.Container) -> str:
    """Return the hash of a container's definition, as its annotation has it: hexadecimal, unpadded.

    Covers only name and image and equals the kubelet's own, so that either agent adopts the other's
    containers without a restart. Source: docs/reference/names.csv: io.kubernetes.container.hash.
    """
    return _hash(container.get("name") or "", container.get("image") or "")


@lru_cache(maxsize=2048)
def _hash(name: str, image: str) -> str:
    document = json.dumps(
        {"image": image, "name": name}, ensure_ascii=False, separators=(",", ":")
    ).translate(_GO_JSON_ESCAPES)
    encoded = document.encode("utf-8", "replace")
    dump = f"([]uint8)[{' '.join(map(str, encoded))}]"
    return format(fnv1a_32(dump.encode("ascii")), "x")


def config_hash(config: cri.ContainerConfig, termination_path: str) -> str:
    """Return the hash of a config without itself and the host side of one mount.

    It covers everything else, and states whether an existing container is what would be made now.
    The mount is that at ``termination_path``: the termination message file is made anew at each
    try.
    """
    copied = cri.ContainerConfig()
    copied.CopyFrom(config)
    for mount in copied.mounts:
        if mount.container_path == termination_path:
            mount.host_path = ""
    copied.annotations.pop(CONFIG_HASH, None)
    return hashlib.sha256(copied.SerializeToString(deterministic=True)).hexdigest()


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
    return {**pod.labels, POD_NAME: pod.name, POD_NAMESPACE: pod.namespace, POD_UID: pod.uid}


def container_labels(pod: Pod, container: api.Container) -> dict[str, str]:
    """The four labels of a container."""
    return {
        POD_NAME: pod.name,
        POD_NAMESPACE: pod.namespace,
        POD_UID: pod.uid,
        CONTAINER_NAME: container["name"],
    }


def container_annotations(
    pod: Pod, container: api.Container, restart_count: int, extra: Mapping[str, str] | None = None
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
    requested = (pre_stop.get("httpGet") or {}).get("port")
    named = next((port for port in ports if port.get("name") and port["name"] == requested), None)
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


# Paths of container logs, and the links by which log collectors find them

MAX_FILE_NAME = 255
_LOG_SUFFIX = ".log"
_MIN_ID_LENGTH = 6


class UnsafeName(ValueError):
    """A name from a spec cannot be part of a path."""


def pod_log_directory(logs_root: str, namespace: str, name: str, uid: str) -> str:
    """``{root}/{namespace}_{name}_{uid}``: the sandbox's log_directory.

    Raises:
        UnsafeName: also where the name would be longer than the kernel allows.
    """
    directory = _log_path_part(f"{namespace}_{name}_{uid}")
    if (length := len(directory.encode("utf-8", "replace"))) > MAX_FILE_NAME:
        raise UnsafeName(
            "the directory of its logs, NAMESPACE_NAME_UID, would have a name of "
            f"{length} bytes, and a file name has {MAX_FILE_NAME} at most: give the pod a name "
            f"that is {length - MAX_FILE_NAME} bytes shorter"
        )
    return f"{logs_root}/{directory}"


def container_log_directory(
    logs_root: str, namespace: str, name: str, uid: str, container: str
) -> str:
    """The directory of one container's logs. Raises UnsafeName."""
    return f"{pod_log_directory(logs_root, namespace, name, uid)}/{_log_path_part(container)}"


def container_log_path(container: str, restart_count: int) -> str:
    """``{container}/{restart count}.log``, below the sandbox's log_directory. Raises UnsafeName."""
    return f"{_log_path_part(container)}/{restart_count}{_LOG_SUFFIX}"


def pod_uid_of_log_directory(directory_name: str) -> str:
    """The pod uid in the name of a pod's log directory."""
    return directory_name.rpartition("_")[2]


def log_link(
    links_root: str, pod_name: str, namespace: str, container: str, container_id: str
) -> str:
    """``{root}/{pod}_{namespace}_{container}-{id}.log``, the name cut to 255. Raises UnsafeName."""
    name = _log_path_part(f"{pod_name}_{namespace}_{container}-{container_id}")
    return f"{links_root}/{name[: MAX_FILE_NAME - len(_LOG_SUFFIX)]}{_LOG_SUFFIX}"


def container_id_of_log_link(link_name: str) -> str | None:
    """The container id (perhaps truncated) in a link's name; None when it is not such a name."""
    name = link_name.rpartition("-")[2]
    container_id = name.removesuffix(_LOG_SUFFIX)
    if container_id == name or len(container_id) < _MIN_ID_LENGTH:
        return None
    return container_id


def _log_path_part(name: str) -> str:
    if not name or "/" in name or "\0" in name or name in (".", ".."):
        raise UnsafeName(f"{name!r} cannot be part of a log path")
    return name


# Paths of the agent's own files for a container

_TERMINATION_FILE = re.compile(r"[0-9a-f]{8}")


def container_parts(uid: str, container: str) -> tuple[str, ...]:
    """A container's directory, below the kubelet's root directory. Raises UnsafeName."""
    for part in (uid, container):
        if not part or "/" in part or "\0" in part or part in (".", ".."):
            raise UnsafeName(f"{part!r} cannot be part of a path")
    return ("pods", uid, "containers", container)


def termination_file(root: str, uid: str, container: str, path: str) -> str:
    """The path of the mounted termination message file; empty for any other mount.

    ``path`` is the mounted path as the runtime reports it: it may have resolved links in ``root``.
    """
    directory, _, name = path.rpartition("/")
    if not _TERMINATION_FILE.fullmatch(name):
        return ""
    try:
        parts = container_parts(uid, container)
    except UnsafeName:
        return ""
    if not directory.endswith("/" + "/".join(parts)):
        return ""
    return "/".join((root.rstrip("/"), *parts, name))
