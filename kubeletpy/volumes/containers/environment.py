"""Resolves the references of environment variables: objects, services, the node, env files.

Gathers the inputs from which the runtime manager makes a container's variables. Must never put a
value into an error. Source: docs/reference/behaviour.md, h3; KEP-3721.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import os
import stat
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kubeletpy.base.api import types as api
from kubeletpy.base.api.types import JSON
from kubeletpy.base.host.errors import Cause, CauseKind
from kubeletpy.base.structs import Component, Hidden, HidesFields, Struct, field, replace
from kubeletpy.kubeapi.errors import ApiError
from kubeletpy.kubeapi.protocol import CONFIGMAPS, SECRETS
from kubeletpy.kubeapi.tracked_object import ObjectKey
from kubeletpy.pods.environment import EnvironmentInputs, NodeFacts
from kubeletpy.pods.pod import Pod, pod_addresses
from kubeletpy.pods.runtime_status import ContainerConfigError
from kubeletpy.runtime_manager.protocol import ContainerAdditions
from kubeletpy.volumes.files.paths import PodPaths, UnsafePath, sub_path_parts
from kubeletpy.volumes.files.safe_path import open_beneath
from kubeletpy.volumes.pod_volumes.planned import ObjectRef, environment_objects, volume_source

if TYPE_CHECKING:
    from kubeletpy.kubeapi.tracked_object import PodObjects

MAX_FILE = 64 << 10
"""The most bytes of a file that are read; a longer file is an error."""
_SPACE = " \t"
MAX_FILES = 4 << 20
"""The most characters of all env files that one container refers to, together."""
Services = Callable[[Pod], Awaitable[Sequence[api.Service] | None]]
RESOURCES = {"configMap": CONFIGMAPS, "secret": SECRETS}


def object_key(ref: ObjectRef, namespace: str) -> ObjectKey:
    """The API path of an object in a pod's namespace."""
    return ObjectKey(RESOURCES[ref.kind], namespace, ref.name)


class ContainerEnvironment(Component):
    """Gathers the sources of a container's environment."""

    # ``{root}/pods``
    pods_dir: Path
    # configMaps and secrets
    objects: PodObjects
    # lists the services that a pod sees; None: there are none
    services: Services | None = None
    # the node's addresses, which may change while it runs
    host_ips: Sequence[str] = ()
    # the node's allocatable resources, as quantities
    allocatable: Mapping[str, str] | None = None

    async def provide(
        self, pod: Pod, container: api.Container, supplied: ContainerAdditions
    ) -> ContainerAdditions:
        """Add everything that the container's variables refer to.

        Raises:
            ContainerConfigError: an object could not be read.
        """
        host_ips = tuple(self.host_ips)
        pod_ips = tuple(pod_addresses(pod, supplied.environment.facts.pod_ips, host_ips))
        facts = NodeFacts(pod_ips, host_ips, self.allocatable)
        services = await self.services(pod) if self.services is not None else ()
        refs = set(environment_objects([container]))
        sources = _Sources(PodPaths(str(self.pods_dir), pod.uid), pod)
        for ref in refs:
            try:
                found = await self.objects.get(object_key(ref, pod.namespace))
            except ApiError as error:
                raise ContainerConfigError(error.message) from error
            sources.objects[ref] = found
        if any((entry.get("valueFrom") or {}).get("fileKeyRef") for entry in _env(container)):
            await asyncio.to_thread(sources.read_files, container)
        return replace(supplied, environment=EnvironmentInputs(facts, services, sources))


class _Sources(HidesFields, Struct):
    """The runtime manager's EnvSources, all read beforehand."""

    paths: PodPaths
    pod: Pod
    objects: Hidden[dict[ObjectRef, JSON | None]] = field(default_factory=dict)
    files: Hidden[dict[tuple[str, str], EnvFile | ContainerConfigError]] = field(
        default_factory=dict
    )
    _texts: Hidden[dict[ObjectRef, Mapping[str, str]]] = field(default_factory=dict)

    def config_map(self, name: str) -> Mapping[str, str] | None:
        return self._once(ObjectRef("configMap", name), _texts)

    def secret(self, name: str) -> Mapping[str, str] | None:
        try:
            return self._once(ObjectRef("secret", name), _decoded)
        except (binascii.Error, ValueError):
            raise ContainerConfigError(
                f'secret "{name}" holds a value that is not base64'
            ) from None

    def _once(
        self, ref: ObjectRef, read: Callable[[Any], Mapping[str, str]]
    ) -> Mapping[str, str] | None:
        """An object's data, decoded once: thousands of variables may refer to the same object."""
        found = self.objects.get(ref)
        if found is None:
            return None
        if ref not in self._texts:
            self._texts[ref] = read(found.get("data"))
        return self._texts[ref]

    def file_key(self, selector: api.FileKeySelector) -> str | None:
        volume, path = selector.get("volumeName") or "", selector.get("path") or ""
        found = self.files.get((volume, path), EnvFile())
        if isinstance(found, ContainerConfigError):
            raise found
        try:
            return found.get(selector.get("key") or "")
        except EnvFileError as error:
            raise ContainerConfigError(f'file "{path}" in volume "{volume}": {error}') from error

    def read_files(self, container: api.Container) -> None:
        """Read the env files that a container refers to, each once; blocking."""
        left = MAX_FILES
        for entry in _env(container):
            selector = (entry.get("valueFrom") or {}).get("fileKeyRef")
            if selector is None:
                continue
            volume, path = selector.get("volumeName") or "", selector.get("path") or ""
            if (volume, path) in self.files:
                continue
            try:
                text = self._read(volume, path)
                left -= len(text)
                if left < 0:
                    raise UnsafePath(f"the env files together have over {MAX_FILES} bytes")
                self.files[volume, path] = parse_env_file(text)
            except (UnsafePath, OSError) as error:
                # a pod's message should not show a path of the host
                why = error.strerror if isinstance(error, OSError) else str(error)
                self.files[volume, path] = ContainerConfigError(
                    f'file "{path}" in volume "{volume}" cannot be read: {why}',
                    Cause(CauseKind.ENV_FILE, path, volume),
                )

    def _read(self, volume: str, path: str) -> str:
        declared = {v.get("name"): v for v in self.pod.spec.get("volumes") or ()}
        found: Mapping[str, Any] = declared.get(volume) or {"name": volume, "": {}}
        kind, _ = volume_source(found)
        if kind != "emptyDir":
            raise UnsafePath("it is not an emptyDir volume of the pod")
        entry = open_beneath(self.paths.volume("emptyDir", volume), sub_path_parts(path))
        try:
            if not stat.S_ISREG(os.fstat(entry).st_mode):
                raise UnsafePath("it is not a regular file")
            with open(f"/proc/self/fd/{entry}", "rb") as file:  # noqa: PTH123 - what was checked
                data = file.read(MAX_FILE + 1)
        finally:
            os.close(entry)
        if len(data) > MAX_FILE:
            raise UnsafePath(f"it is larger than {MAX_FILE} bytes")
        return data.decode("utf-8", "surrogateescape")


def _env(container: api.Container) -> Sequence[Mapping[str, Any]]:
    entries: Any = container.get("env") or ()
    return [entry for entry in entries if entry]


def _decoded(data: Any) -> dict[str, str]:
    """Raises ValueError."""
    return {
        key: base64.b64decode(text, validate=True).decode("utf-8", "surrogateescape")
        for key, text in _texts(data).items()
    }


def _texts(data: Any) -> dict[str, str]:
    if not isinstance(data, Mapping):
        return {}
    return {k: v for k, v in data.items() if isinstance(k, str) and isinstance(v, str)}


# Env files (fileKeyRef, table h3): ``KEY='text'`` lines and comments.
#
# A container may have written any text. Errors name lines, never values.


class EnvFileError(ValueError):
    """The file violates the grammar; the message states where."""


class EnvFile(HidesFields, Struct, frozen=True):
    """The content of a file, up to where it is malformed."""

    values: Hidden[Mapping[str, str]] = field(default_factory=dict)
    problem: str = ""

    def get(self, key: str) -> str | None:
        """The value of a key; None when there is no such key.

        Raises:
            EnvFileError: the file is malformed, and the key does not occur before that.
        """
        value = self.values.get(key)
        if value is None and self.problem:
            raise EnvFileError(self.problem)
        return value


def parse_env_file(text: str) -> EnvFile:
    """All variables; the first of a name wins. Lines end in LF or CRLF."""
    values: dict[str, str] = {}
    try:
        for name, value in _entries(text):
            values.setdefault(name, value)
    except EnvFileError as error:
        return EnvFile(values, str(error))
    return EnvFile(values)


def _entries(text: str) -> Iterator[tuple[str, str]]:
    """Name and value of each variable in order. Raises EnvFileError."""
    text = text.replace("\r\n", "\n")
    position, line = 0, 1
    while position < len(text):
        end = _line_end(text, position)
        stripped = text[position:end].lstrip(_SPACE)
        if not stripped or stripped.startswith("#"):
            position, line = end + 1, line + 1
            continue
        name, equals, value = stripped.partition("=")
        _check_name(name, equals, line)
        if value.startswith((" ", "\t")):
            yield name, ""  # like a shell
            position, line = end + 1, line + 1
            continue
        if not value.startswith("'"):
            raise _error(line, "the value must be in single quotes")
        opening = end - len(value)
        closing = text.find("'", opening + 1)
        if closing == -1:
            raise _error(line, "the single quote is not closed")
        end = _line_end(text, closing)
        after = text[closing + 1 : end].lstrip(_SPACE)
        if after and not after.startswith("#"):
            raise _error(line, "there is text after the closing quote")
        yield name, text[opening + 1 : closing]
        line += text.count("\n", position, end) + 1
        position = end + 1


def _check_name(name: str, equals: str, line: int) -> None:
    if not equals:
        raise _error(line, "'=' is missing")
    if not name.strip(_SPACE):
        raise _error(line, "the name is empty")
    if name != name.rstrip(_SPACE):
        raise _error(line, "whitespace before '=' is not allowed")


def _line_end(text: str, position: int) -> int:
    end = text.find("\n", position)
    return len(text) if end < 0 else end


def _error(line: int, why: str) -> EnvFileError:
    return EnvFileError(f"invalid environment variable format at line {line}: {why}")
