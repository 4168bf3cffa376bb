"""The files of a configMap, secret, downwardAPI or projected volume: path -> content and mode.

Pure. Errors name objects, keys and paths, never contents. Source: docs/reference/behaviour.md, i4,
i13; KEP-368.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from kubeletpy.base.api import types as api
from kubeletpy.base.api.types import JSON
from kubeletpy.base.host.errors import Cause, CauseKind, cause_of
from kubeletpy.base.structs import Component, Struct
from kubeletpy.pods.environment import DownwardError, NodeFacts, field_value, resource_value
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.shape import MAX_ID
from kubeletpy.volumes.files import paths
from kubeletpy.volumes.pod_volumes.planned import PlannedVolume

DEFAULT_MODE = 0o644
TOKEN_MODE_WITH_OWNER = 0o600
MAX_MODE = 0o777
OWNERS_GATE = "AtomicWriteVolumeUserFields"
MAX_POD_BYTES = 64 << 20
"""The most bytes in the files of all volumes of a pod made of objects and fields; each file counts,
even where many show the same content.
"""


@dataclass(frozen=True, slots=True)
class DownwardInput:
    """The data from which the items of a downward API source are rendered.

    Two are equal when everything that items can refer to is equal. Comparing is cheap; rendering
    may take seconds and is done in threads.
    """

    pod: Pod = field(compare=False, repr=False)
    spec: Mapping[str, Any] = field(repr=False)
    labels: Mapping[str, str] = field(repr=False)
    annotations: Mapping[str, str] = field(repr=False)
    allocatable: Mapping[str, str] | None


Input = (
    JSON
    | paths.TokenInput
    | paths.TrustInput
    | paths.CertificateInput
    | DownwardInput
    | Exception
    | None
)
"""The state of one source: an object, None when it does not exist, a token, certificates, the pod's
own fields, or why it could not be read.
"""


class FileOwner(Struct, frozen=True):
    """The owners of the files of a pod's volumes."""

    user: int | None = None
    """The one user that all containers run as."""
    group: int | None = None
    """The pod's fsGroup."""
    chosen: bool = False
    """Whether the fields ``defaultUser`` and ``user`` of volumes are obeyed: they have a gate."""


def build_payload(
    volume: PlannedVolume,
    inputs: Sequence[Input],
    namespace: str,
    owner: FileOwner,
    left: int = MAX_POD_BYTES,
) -> paths.Payload:
    """The files of a volume, from its sources in order; a later path wins.

    Args:
        inputs: the state of its sources.
        namespace: the pod's.
        owner: the user the files are for.
        left: bytes that the files may have: what the pod's other volumes leave of its limit.

    Raises:
        PayloadError: names what is wrong with each source, or that they are too large.
    """
    most = left
    default = _mode(volume.source.get("defaultMode"), DEFAULT_MODE)
    user = volume.source.get("defaultUser") if owner.chosen else None
    files: paths.Payload = {}
    problems: list[paths.PayloadError] = []
    for (kind, source), found in zip(sources_of(volume), inputs, strict=True):
        try:
            context = _Context(namespace, default, user, owner, left, most)
            made = _SOURCES[kind](source, found, context)
        except paths.PayloadError as error:
            problems.append(error)
            continue
        left -= payload_size(made)
        if left < 0:
            raise too_large(most)
        files.update(made)
    if problems:
        joined = ", ".join(map(str, problems))
        text = f"[{joined}]" if len(problems) > 1 else joined
        raise paths.PayloadError(text, next((each.cause for each in problems if each.cause), None))
    return files


def sources_of(volume: PlannedVolume) -> list[tuple[str, Mapping[str, Any]]]:
    """Kind and source of each part of a volume: a projected volume's sources, else the volume."""
    if volume.kind != "projected":
        return [(volume.kind, volume.source)]
    parts: list[tuple[str, Mapping[str, Any]]] = []
    for source in volume.source.get("sources") or ():
        kind = next((k for k, v in source.items() if isinstance(v, Mapping)), "")
        parts.append((kind if kind in _SOURCES else "", {"kind": kind, **source.get(kind, {})}))
    return parts


def payload_size(payload: paths.Payload) -> int:
    """Bytes of all files together."""
    return sum(len(content.data) for content in payload.values())


def too_large(left: int) -> paths.PayloadError:
    """The error for files that exceed what is left of a pod's limit."""
    return paths.PayloadError(
        f"its files have over {left} bytes: the files of all configMap, secret, downwardAPI and "
        f"projected volumes of a pod may have {MAX_POD_BYTES} bytes together"
    )


class _Context(Struct, frozen=True):
    namespace: str
    default_mode: int
    default_user: int | None
    """``defaultUser`` of the volume, if it is obeyed."""
    owner: FileOwner
    left: int
    """The most bytes that files may have."""
    most: int
    """The same of all files of the volume."""


def _config_map(source: Mapping[str, Any], found: Input, context: _Context) -> paths.Payload:
    name = source.get("name") or ""
    obj = _object(found, "configMap", name, source)
    if obj is None:
        return {}
    data = {key: text.encode("utf-8", "surrogatepass") for key, text in _texts(obj.get("data"))}
    for key, text in _texts(obj.get("binaryData")):
        data[key] = _decoded(text, f"configmap {context.namespace}/{name}", key)
    missing = f"configmap {context.namespace}/{name} references non-existent config key: "
    return _select(data, source, missing, context)


def _secret(source: Mapping[str, Any], found: Input, context: _Context) -> paths.Payload:
    name = source.get("secretName") or source.get("name") or ""
    obj = _object(found, "secret", name, source)
    if obj is None:
        return {}
    where = f"secret {context.namespace}/{name}"
    data = {key: _decoded(text, where, key) for key, text in _texts(obj.get("data"))}
    return _select(data, source, f"{where} references non-existent secret key: ", context)


def _downward(source: Mapping[str, Any], found: Input, context: _Context) -> paths.Payload:
    if isinstance(found, Exception):
        raise paths.PayloadError(str(found))
    assert isinstance(found, DownwardInput), "the pod's own fields"
    render = Renderer(found.pod, NodeFacts(allocatable=found.allocatable))
    files: paths.Payload = {}
    left = context.left
    for item in source.get("items") or ():
        try:
            data = render.item(item)
        except DownwardError as error:
            raise paths.PayloadError(str(error)) from error
        left -= len(data)
        if left < 0:
            raise too_large(context.most)
        mode = _mode(item.get("mode"), context.default_mode)
        files[_path(item.get("path"))] = paths.FileContent(data, mode, _chosen(item, context))
    return files


def _token(source: Mapping[str, Any], found: Input, context: _Context) -> paths.Payload:
    if not isinstance(found, paths.TokenInput):
        raise paths.PayloadError(str(found))
    return {_path(source.get("path")): _for_owner(found.token.encode(), source, context)}


def _trust(source: Mapping[str, Any], found: Input, context: _Context) -> paths.Payload:
    if not isinstance(found, paths.TrustInput):
        cause = cause_of(found) if isinstance(found, Exception) else None
        raise paths.PayloadError(str(found), cause)
    return {_path(source.get("path")): _for_owner(found.pem, source, context)}


def _certificate(source: Mapping[str, Any], found: Input, context: _Context) -> paths.Payload:
    if not isinstance(found, paths.CertificateInput):
        raise paths.PayloadError(str(found))
    files = {
        "credentialBundlePath": found.key + found.chain,
        "keyPath": found.key,
        "certificateChainPath": found.chain,
    }
    return {
        _path(source[name]): _for_owner(data, source, context)
        for name, data in files.items()
        if source.get(name)
    }


def _for_owner(data: bytes, source: Mapping[str, Any], context: _Context) -> paths.FileContent:
    """A file that only its user and the pod's group may read, if there is one of them.

    Its user is the one that the volume names, else the one that all containers run as.
    """
    user = _chosen(source, context)
    if user is None:
        user = context.owner.user
    owned = user is not None or context.owner.group is not None
    mode = TOKEN_MODE_WITH_OWNER if owned else context.default_mode
    return paths.FileContent(data, mode, user)


def _chosen(item: Mapping[str, Any], context: _Context) -> int | None:
    """The owner that the volume names for a file; 0 is root, None is the default.

    Raises:
        PayloadError: no user can have that number.
    """
    user = item.get("user") if context.owner.chosen else None
    if user is None:
        user = context.default_user
    if user is not None and not 0 <= user <= MAX_ID:
        raise paths.PayloadError(f"user {user} is not between 0 and {MAX_ID}")
    return user


def _unsupported(source: Mapping[str, Any], found: Input, context: _Context) -> paths.Payload:
    kind = source.get("kind") or "a projected volume's empty source"
    raise paths.PayloadError(f"{kind} is not supported by this version of kubeletpy")


_SOURCES: dict[str, Callable[[Mapping[str, Any], Input, _Context], paths.Payload]] = {
    "configMap": _config_map,
    "secret": _secret,
    "downwardAPI": _downward,
    "serviceAccountToken": _token,
    "clusterTrustBundle": _trust,
    "podCertificate": _certificate,
    "": _unsupported,
}


def _object(found: Input, kind: str, name: str, source: Mapping[str, Any]) -> JSON | None:
    if isinstance(found, Exception):
        raise paths.PayloadError(str(found))
    if found is None:
        if source.get("optional"):
            return None
        raise paths.PayloadError(
            f'{kind.lower()} "{name}" not found', Cause(CauseKind.OBJECT_MISSING, name, kind)
        )
    assert isinstance(found, dict), "an object"
    return found


def _select(
    data: Mapping[str, bytes], source: Mapping[str, Any], missing: str, context: _Context
) -> paths.Payload:
    """All keys under their names, or the listed keys at their paths."""
    items = source.get("items")
    if not items:
        mode, user = context.default_mode, _chosen({}, context)
        return {_path(key): paths.FileContent(content, mode, user) for key, content in data.items()}
    files: paths.Payload = {}
    for item in items:
        key = item.get("key") or ""
        if key not in data:
            if source.get("optional"):
                continue
            raise paths.PayloadError(f"{missing}{key}", Cause(CauseKind.KEY_MISSING, key))
        mode = _mode(item.get("mode"), context.default_mode)
        files[_path(item.get("path"))] = paths.FileContent(data[key], mode, _chosen(item, context))
    return files


def _texts(data: Any) -> list[tuple[str, str]]:
    """The valid entries of an object's data."""
    if not isinstance(data, Mapping):
        return []
    return [(k, v) for k, v in data.items() if isinstance(v, str)]


def _decoded(text: str, where: str, key: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise paths.PayloadError(f"{where}: the value of key {key} is not base64") from None


def _path(path: Any) -> str:
    try:
        return paths.payload_path(path if isinstance(path, str) else "")
    except paths.UnsafePath as error:
        raise paths.PayloadError(str(error)) from error


def _mode(mode: Any, default: int) -> int:
    return mode & MAX_MODE if isinstance(mode, int) else default


# downwardAPI files: the values of environment variables, and complete maps too (table i4, KEP-368).

_ESCAPES = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    "\\": "\\\\",
    '"': '\\"',
}


class Renderer(Component):
    """Renders the items of one source; maps and texts that many items share are rendered once."""

    pod: Pod
    facts: NodeFacts

    def __post_init__(self) -> None:
        self._known: dict[str, bytes] = {}

    def item(self, item: Mapping[str, Any]) -> bytes:
        """The content of one file. Raises DownwardError."""
        path = (item.get("fieldRef") or {}).get("fieldPath") or ""
        known = self._known.get(path)
        if known is not None:
            return known
        data = item_value(item, self.pod, self.facts).encode("utf-8", "surrogatepass")
        if path:
            self._known[path] = data
        return data


def item_value(item: Mapping[str, Any], pod: Pod, facts: NodeFacts) -> str:
    """The content of one file.

    Raises:
        DownwardError: its reference cannot be resolved.
    """
    field, resource = item.get("fieldRef"), item.get("resourceFieldRef")
    if field is not None:
        path = field.get("fieldPath")
        if path == "metadata.labels":
            return format_map(pod.labels)
        if path == "metadata.annotations":
            return format_map(pod.annotations)
        return field_value(cast(api.ObjectFieldSelector, field), pod, facts)
    if resource is not None:
        if not resource.get("containerName"):
            raise DownwardError("resourceFieldRef of a volume: containerName is missing")
        selector = cast(api.ResourceFieldSelector, resource)
        return resource_value(selector, pod, next(iter(pod.containers)), facts)
    raise DownwardError(f"downwardAPI item {item.get('path')!r} has neither field nor resource")


def format_map(values: Mapping[str, str]) -> str:
    """``key="value"`` lines, sorted by key, values quoted as Go writes strings."""
    return "\n".join(f"{key}={quoted(values[key])}" for key in sorted(values))


def quoted(text: str) -> str:
    """A double-quoted Go string literal: printable characters stay as they are."""
    if not (text.isprintable() and "\\" not in text and '"' not in text):
        text = "".join(map(_escaped, text))
    return f'"{text}"'


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable():
        return character
    code = ord(character)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\U{code:08x}" if code >> 16 else f"\\u{code:04x}"
