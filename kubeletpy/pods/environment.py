"""The environment of a container: from other objects, literals, the pod itself and services.

Errors name variables and objects, never values. Source: docs/reference/behaviour.md, h.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

from kubeletpy.base.api import types as api
from kubeletpy.base.structs import Struct, field
from kubeletpy.pods.config_errors import ContainerConfigError, NodeAddressError
from kubeletpy.pods.downward import (
    DownwardError,
    NodeFacts,
    NoNodeAddress,
    field_value,
    resource_value,
)
from kubeletpy.pods.expansion import ExpansionTooLong, expand
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.service_env import service_variables

MAX_ENVIRONMENT = 8 << 20
"""Characters in all variables combined; half of what one CRI message may hold."""
SERVICES_UNREAD = "services have not yet been read at least once, cannot construct envvars"
"""The kubelet's message, in the event and in the container's status."""


class EnvSources(Protocol):
    """Objects that environment variables refer to, read before the environment is built."""

    def config_map(self, name: str) -> Mapping[str, str] | None:
        """A config map's data; None when there is no such object."""
        ...

    def secret(self, name: str) -> Mapping[str, str] | None:
        """A secret's decoded data (surrogate escapes for invalid UTF-8); None when there is no such
        object."""
        ...

    def file_key(self, selector: api.FileKeySelector) -> str | None:
        """A key of an env file in a volume; None when the file lacks it.

        Raises:
            ContainerConfigError: the volume or the file cannot be read.
        """
        ...


class EnvironmentInputs(Struct, frozen=True):
    """Everything that goes into an environment besides the pod."""

    facts: NodeFacts = field(default_factory=NodeFacts)
    services: Sequence[api.Service] | None = ()
    """Those of the pod's namespace and of default; None: not listed yet."""
    sources: EnvSources | None = None
    """None: this version cannot look up config maps, secrets and files for environments."""


def build_environment(
    pod: Pod, container: api.Container, inputs: EnvironmentInputs
) -> dict[str, str]:
    """The environment variables of a container, each once.

    Raises:
        ContainerConfigError: a reference cannot be resolved, services are not known yet, or the
            result would be too large.
    """
    links = pod.spec.get("enableServiceLinks")
    if links is None:
        raise ContainerConfigError(
            "nil pod.spec.enableServiceLinks encountered, cannot construct envvars"
        )
    if inputs.services is None and not pod.is_static:
        raise ContainerConfigError(SERVICES_UNREAD)
    services = service_variables(inputs.services or (), pod.namespace, links)
    variables: dict[str, str] = {}
    size = 0
    for group in container.get("envFrom") or ():
        found = _group(group, inputs.sources)
        variables.update(found)
        size += sum(map(len, found.values()))
        if size > MAX_ENVIRONMENT:
            raise _too_large()

    def value_of(name: str) -> str | None:
        found = variables.get(name)
        return services.get(name) if found is None else found

    for entry in container.get("env") or ():
        name = entry.get("name") or ""
        try:
            if entry.get("value"):
                value: str | None = expand(entry["value"], value_of)
            else:
                value = _referred(pod, container, entry.get("valueFrom") or {}, inputs)
        except NoNodeAddress as error:
            raise NodeAddressError(f"environment variable {name}: {error}") from error
        except (DownwardError, ExpansionTooLong) as error:
            raise ContainerConfigError(f"environment variable {name}: {error}") from error
        if value is None:
            continue
        variables[name] = value
        size += len(value)
        if size > MAX_ENVIRONMENT:
            raise _too_large()
    for name, value in services.items():
        variables.setdefault(name, value)
    return variables


def _too_large() -> ContainerConfigError:
    return ContainerConfigError(f"the environment is larger than {MAX_ENVIRONMENT} characters")


def _group(group: api.EnvFromSource, sources: EnvSources | None) -> Mapping[str, str]:
    """One envFrom entry: all keys of an object; nothing when it is missing and optional."""
    prefix = group.get("prefix") or ""
    config_map, secret = group.get("configMapRef"), group.get("secretRef")
    data: Mapping[str, str] | None = None
    if config_map is not None:
        data = _object("configMap", config_map, sources)
    elif secret is not None:
        data = _object("secret", secret, sources)
    return {prefix + key: value for key, value in (data or {}).items()}


def _referred(
    pod: Pod, container: api.Container, origin: api.EnvVarSource, inputs: EnvironmentInputs
) -> str | None:
    """The value that valueFrom references; None when it is missing and optional."""
    field, resource = origin.get("fieldRef"), origin.get("resourceFieldRef")
    config_map, secret = origin.get("configMapKeyRef"), origin.get("secretKeyRef")
    if field is not None:
        return field_value(field, pod, inputs.facts)
    if resource is not None:
        return resource_value(resource, pod, container, inputs.facts)
    if config_map is not None:
        data = _object("configMap", config_map, inputs.sources)
        return _key(data, config_map, f"ConfigMap {pod.namespace}")
    if secret is not None:
        data = _object("secret", secret, inputs.sources)
        return _key(data, secret, f"Secret {pod.namespace}")
    file = origin.get("fileKeyRef")
    return "" if file is None else _file(file, inputs.sources)


def _object(
    kind: Literal["configMap", "secret"], reference: Mapping[str, Any], sources: EnvSources | None
) -> Mapping[str, str] | None:
    """The data of an object; None when it is missing and optional."""
    name = reference.get("name") or ""
    found = _supported(sources, f"{kind} {name}")
    data = found.secret(name) if kind == "secret" else found.config_map(name)
    if data is None and not reference.get("optional"):
        raise ContainerConfigError(f'{kind.lower()} "{name}" not found')
    return data


def _file(selector: api.FileKeySelector, sources: EnvSources | None) -> str | None:
    key, path = selector.get("key") or "", selector.get("path") or ""
    value = _supported(sources, f"file {path}").file_key(selector)
    if not value and not selector.get("optional"):
        raise ContainerConfigError(f'environment variable key "{key}" not found in file "{path}"')
    return value or None


def _key(data: Mapping[str, str] | None, selector: Mapping[str, Any], where: str) -> str | None:
    """One key of an object that exists, or that is missing and optional."""
    key = selector.get("key") or ""
    value = (data or {}).get(key)
    if value is None and not selector.get("optional"):
        name = selector.get("name") or ""
        raise ContainerConfigError(f"couldn't find key {key} in {where}/{name}")
    return value


def _supported(sources: EnvSources | None, what: str) -> EnvSources:
    if sources is None:
        raise ContainerConfigError(
            f"environment from {what}: not supported by this version of kubeletpy"
        )
    return sources
