"""Decodes manifests into static pods (docs/reference/behaviour.md, s).

Pure. A manifest is written by people and programs that may be wrong or hostile: whatever it holds,
the result is pods or one ManifestError that states what is wrong.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

import yaml

from kubeletpy.base.api import types as api
from kubeletpy.base.structs import Component, Struct
from kubeletpy.config.problems import TooDeep, check_depth
from kubeletpy.pods import defaults, shape
from kubeletpy.pods.defaults import canonical_spec
from kubeletpy.pods.pod import CONFIG_HASH, LABEL, SUBDOMAIN, MalformedPod, Pod
from kubeletpy.pods.pod_manager import static_name
from kubeletpy.pods.resources import NODE_CRITICAL_CLASS
from kubeletpy.pods.shape import container_problem, pod_problem
from kubeletpy.pods.shape import unknown_value as value_problem

# -- references that a static pod may not have: it starts without an API -----------------------

_VOLUMES = {
    "configMap": "configmaps",
    "secret": "secrets",
    "csi": "CSI volumes",
    "glusterfs": "endpoints",
    "persistentVolumeClaim": "persistentvolumeclaims",
    "ephemeral": "ephemeral volumes",
    "azureFile": "secrets",
}
_SECRET_REF_VOLUMES = ("cephfs", "flexVolume", "iscsi", "rbd", "scaleIO", "storageos", "cinder")


def forbidden_reference(spec: Any) -> str:
    """The kind of object that a static pod's spec references but may not; empty: none."""
    if spec.get("serviceAccountName") or spec.get("serviceAccount"):
        return "serviceaccounts"
    if spec.get("imagePullSecrets"):
        return "secrets"
    if spec.get("resourceClaims"):
        return "resourceclaims"
    for container in _containers(spec):
        if what := _in_environment(container):
            return what
    for volume in _mappings(spec.get("volumes")):
        if what := _in_volume(volume):
            return what
    return ""


def _in_environment(container: Mapping[str, Any]) -> str:
    for source in _mappings(container.get("envFrom")):
        if source.get("secretRef"):
            return "secrets"
        if source.get("configMapRef"):
            return "configmaps"
    for variable in _mappings(container.get("env")):
        value_from = variable.get("valueFrom")
        if isinstance(value_from, Mapping):
            if value_from.get("secretKeyRef"):
                return "secrets"
            if value_from.get("configMapKeyRef"):
                return "configmaps"
    return ""


def _in_volume(volume: Mapping[str, Any]) -> str:
    for field, what in _VOLUMES.items():
        if field in volume:
            return what
    for field in _SECRET_REF_VOLUMES:
        source = volume.get(field)
        if isinstance(source, Mapping) and source.get("secretRef"):
            return "secrets"
    projected = volume.get("projected")
    if isinstance(projected, Mapping):
        for source in _mappings(projected.get("sources")):
            others = [field for field in source if field != "downwardAPI"]
            if others:
                return f"{others[0]} projected volume sources"
    return ""


def _containers(spec: Any) -> Iterator[Mapping[str, Any]]:
    for field in ("initContainers", "containers", "ephemeralContainers"):
        yield from _mappings(spec.get(field))


def _mappings(value: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, list):
        yield from (item for item in value if isinstance(item, Mapping))


# -- decoding --------------------------------------------------------------------------------

MAX_MANIFEST = 10 * 1024 * 1024
"""Bytes."""
MAX_NODES = 200_000
"""Values in one manifest once its YAML aliases are expanded."""
_UID = re.compile(r"[A-Za-z0-9][-A-Za-z0-9]{0,127}")


class ManifestError(ValueError):
    """A manifest that yields no pods; the message contains the reason."""


_BASE: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_BASE):  # type: ignore[misc]
    """YAML limited to JSON's types: no dates, no merge keys, which can blow up without bound."""


_NOT_JSON = ("tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:merge")
_Loader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if tag not in _NOT_JSON]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


class Origin(Struct, frozen=True):
    """Where a manifest comes from, which its pods' uids depend on."""

    node_name: str
    location: str
    """Path of the file, or URL."""
    is_file: bool


def decode_manifest(data: bytes, origin: Origin, computed: set[str] | None = None) -> list[api.Pod]:
    """Read a manifest: one Pod, or from a URL also a PodList.

    Adds to ``computed`` the uids that the manifest does not contain.

    Raises:
        ManifestError: too large, not YAML or JSON, not a Pod, or a Pod that may not run as a static
            pod.
    """
    if len(data) > MAX_MANIFEST:
        raise ManifestError(f"larger than {MAX_MANIFEST} bytes")
    document = _parse(data)
    kind, version = document.get("kind"), document.get("apiVersion")
    if version != "v1":
        raise ManifestError(f"apiVersion is {version!r}, not 'v1'")
    if kind == "Pod":
        return [static_pod(document, origin, computed)]
    if kind == "PodList" and not origin.is_file:
        items = document.get("items") or []
        if not isinstance(items, list):
            raise ManifestError("items is not a list")
        return [static_pod(item, origin, computed) for item in items]
    raise ManifestError(f"kind is {kind!r}, not 'Pod'")


def static_pod(manifest: Any, origin: Origin, computed: set[str] | None = None) -> api.Pod:
    """Make a pod of this node from a manifest's Pod. Raises ManifestError."""
    if not isinstance(manifest, Mapping):
        raise ManifestError("a pod is not an object")
    metadata, spec = manifest.get("metadata"), manifest.get("spec")
    if not isinstance(metadata, Mapping) or not isinstance(spec, Mapping):
        raise ManifestError("metadata or spec is missing")
    name = metadata.get("name")
    if not isinstance(name, str) or not name:
        raise ManifestError("invalid pod: name is needed for the pod")
    annotations = metadata.get("annotations") or {}
    if not isinstance(annotations, Mapping):
        raise ManifestError("metadata.annotations is not an object")
    uid = metadata.get("uid") or _uid(manifest, origin)
    namespace = metadata.get("namespace") or "default"
    if not isinstance(namespace, str) or not LABEL.fullmatch(namespace):
        raise ManifestError(f"invalid pod: metadata.namespace {namespace!r} is not a DNS label")
    if not isinstance(uid, str) or not _UID.fullmatch(uid):
        raise ManifestError(f"invalid pod: metadata.uid {uid!r} is not a uid")
    full_name = static_name(name, origin.node_name)
    if len(full_name) > 253 or not SUBDOMAIN.fullmatch(full_name):
        raise ManifestError(f"invalid pod: metadata.name {full_name!r} is not a DNS subdomain")
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **metadata,
            "name": full_name,
            "namespace": namespace,
            "uid": uid,
            "annotations": {**annotations, CONFIG_HASH: uid},
        },
        "spec": _spec(spec, origin),
        "status": {"phase": "Pending"},
    }
    _check(pod)
    try:
        filled = defaults.pod_spec(canonical_spec(pod["spec"]))
    except ValueError as error:
        raise ManifestError(f"invalid pod: {error}") from error
    if computed is not None and not metadata.get("uid"):
        computed.add(uid)
    return cast(api.Pod, {**pod, "spec": filled})


def renamed(pod: api.Pod, uids: Mapping[str, str]) -> api.Pod:
    """The pod with the uid that ``uids`` has for its own; unchanged if there is none."""
    metadata = pod["metadata"]
    uid = uids.get(metadata["uid"])
    if uid is None:
        return pod
    annotations = {**(metadata.get("annotations") or {}), CONFIG_HASH: uid}
    return cast(api.Pod, {**pod, "metadata": {**metadata, "uid": uid, "annotations": annotations}})


def _yaml_problem(error: Exception) -> str:
    """The error and its position, without the text itself."""
    if not isinstance(error, yaml.MarkedYAMLError):
        return str(error).partition("\n")[0]
    stated = ", ".join(each for each in (error.context, error.problem) if each)
    mark = error.problem_mark or error.context_mark
    return stated if mark is None else f"{stated} (line {mark.line + 1}, column {mark.column + 1})"


def _parse(data: bytes) -> Mapping[str, Any]:
    try:
        check_depth(data, _Loader)
        documents = [d for d in yaml.load_all(data, _Loader) if d is not None]
    except TooDeep as error:
        raise ManifestError(str(error)) from error
    except (yaml.YAMLError, UnicodeDecodeError, ValueError) as error:
        raise ManifestError(f"neither YAML nor JSON: {_yaml_problem(error)}") from error
    if len(documents) != 1:
        raise ManifestError(f"holds {len(documents)} documents, not one")
    (document,) = documents
    if not isinstance(document, Mapping):
        raise ManifestError("is not an object")
    try:
        plain: Mapping[str, Any] = _plain(document, iter(range(MAX_NODES)))
    except RecursionError as error:
        raise ManifestError("is nested too deeply") from error
    return plain


def _plain(value: Any, budget: Iterator[int]) -> Any:
    """Copy to what JSON has: string keys, no shared parts, bounded; null fields are dropped."""
    if next(budget, None) is None:
        raise ManifestError(f"holds more than {MAX_NODES} values")
    if isinstance(value, Mapping):
        if "<<" in value:
            raise ManifestError("uses a YAML merge key (<<)")
        return {
            key if isinstance(key, str) else json.dumps(key, default=str): _plain(item, budget)
            for key, item in value.items()
            if item is not None
        }
    if isinstance(value, list):
        return [_plain(item, budget) for item in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise ManifestError(f"holds a value of type {type(value).__name__}")


def _uid(manifest: Mapping[str, Any], origin: Origin) -> str:
    """Depends on the manifest's content and location."""
    content = json.dumps(manifest, sort_keys=True, separators=(",", ":"))
    place = (
        f"host:{origin.node_name}file:{origin.location}"
        if origin.is_file
        else f"url:{origin.location}"
    )
    return hashlib.md5(f"{content}{place}".encode(), usedforsecurity=False).hexdigest()


def _spec(spec: Mapping[str, Any], origin: Origin) -> dict[str, Any]:
    """The spec as that of a pod on this node."""
    made: dict[str, Any] = {**spec, "nodeName": origin.node_name}
    if origin.is_file:
        desired = {"operator": "Exists", "effect": "NoExecute"}
        tolerations = spec.get("tolerations") or []
        if isinstance(tolerations, list) and desired not in tolerations:
            made["tolerations"] = [*tolerations, desired]
    return made


def _check(pod: Mapping[str, Any]) -> None:
    if problem := pod_problem(pod):
        raise ManifestError(f"invalid pod: {problem}")
    try:
        view = Pod(pod)  # type: ignore[arg-type]
    except MalformedPod as error:
        raise ManifestError(f"invalid pod: {error}") from error
    names: set[str] = set()
    for _, container in view.all_containers():
        name = container["name"]
        if not LABEL.fullmatch(name):
            raise ManifestError(f"invalid pod: container name {name!r} is not a DNS label")
        if name in names:
            raise ManifestError(f"invalid pod: two containers are named {name!r}")
        names.add(name)
        image = container.get("image")
        if not isinstance(image, str) or not image.strip():
            raise ManifestError(f"invalid pod: container {name} has no image")
        if problem := container_problem(container):
            raise ManifestError(f"invalid pod: container {name}: {problem}")
    if problem := value_problem(view):
        raise ManifestError(f"invalid pod: {problem}")
    if refused := next(shape.problems(view.spec), None):
        raise ManifestError(f"invalid pod: {refused}")
    what = forbidden_reference(view.spec)
    if what:
        raise ManifestError(f"static pods may not reference {what}")


# -- priority --------------------------------------------------------------------------------

NODE_CRITICAL = 2_000_001_000
_MIRROR = "the API server may refuse the mirror pod"
_REMEDY = f"set priorityClassName {NODE_CRITICAL_CLASS} and priority {NODE_CRITICAL}, or neither"


def priority_warning(pod: Pod) -> str:
    """Why the priority in a static pod's manifest is of no use; empty when it is of use or absent.

    Nothing resolves the class of a static pod, and a pod that is not node-critical counts as
    evictable in the API though the node never evicts it.
    """
    priority, name = pod.spec.get("priority"), pod.spec.get("priorityClassName") or ""
    if priority is None and not name:
        return ""
    if priority is None:
        why = f"priorityClassName without priority has no effect on this node, and {_MIRROR}"
    elif not name:
        why = f"priority without priorityClassName: {_MIRROR} unless it is the default priority"
    elif (priority, name) != (NODE_CRITICAL, NODE_CRITICAL_CLASS):
        why = "the API shows a pod that can be preempted or evicted, but the node never evicts it"
    else:
        return ""
    return f"{why}; {_REMEDY}"


class ReadySources(Component):
    """The configured sources by name, and whether all have delivered their full set.

    Until then it is not known which pods should run, and nothing may be ended or released.
    """

    names: Iterable[str]

    def __post_init__(self) -> None:
        self._expected = frozenset(self.names)
        self._seen: set[str] = set()

    def has_spoken(self, name: str) -> None:
        """A source has delivered its full set."""
        self._seen.add(name)

    def all(self) -> bool:
        """Whether every source has delivered its full set."""
        return self._seen >= self._expected
