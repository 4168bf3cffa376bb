"""The environment of a container: from other objects, literals, the pod itself and services.

Errors name variables and objects, never values. Source: docs/reference/behaviour.md, h.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import ROUND_CEILING, Decimal
from typing import Any, Literal, Protocol

from kubeletpy.base.api import types as api
from kubeletpy.base.api.quantity import milli_value, parse
from kubeletpy.base.host.errors import Cause, CauseKind
from kubeletpy.base.structs import Struct, field
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.resources import COMPUTE, HUGEPAGES_PREFIX, pod_level_limit
from kubeletpy.pods.runtime_status import ContainerConfigError, NodeAddressError

# -- the downward API, also for volumes (docs/reference/behaviour.md, h2) --------------------

_NODE_DEFAULTED = ("cpu", "memory", "ephemeral-storage")


class DownwardError(ValueError):
    """A reference to a field or resource that cannot be followed; the message names it."""


class NoNodeAddress(DownwardError):
    """A reference to an address of the node, which has none yet."""


class NodeFacts(Struct, frozen=True):
    """Facts about the node that a pod may read."""

    pod_ips: tuple[str, ...] = ()
    """The preferred family first."""
    host_ips: tuple[str, ...] = ()
    allocatable: Mapping[str, str] | None = None
    """Quantities; used in place of limits that a container does not have."""


def field_value(selector: api.ObjectFieldSelector, pod: Pod, facts: NodeFacts) -> str:
    """The value of a fieldRef in an environment.

    Raises:
        DownwardError: the field cannot be referenced.
    """
    path = selector.get("fieldPath") or ""
    if path.endswith("']"):
        holder, bracket, key = path.removesuffix("']").partition("['")
        if bracket and holder == "metadata.labels":
            return pod.labels.get(key, "")
        if bracket and holder == "metadata.annotations":
            return pod.annotations.get(key, "")
        raise DownwardError(f'fieldPath "{path}" does not support subscript')
    match path:
        case "metadata.name":
            return pod.name
        case "metadata.namespace":
            return pod.namespace
        case "metadata.uid":
            return pod.uid
        case "spec.nodeName":
            return pod.spec.get("nodeName") or ""
        case "spec.serviceAccountName":
            return pod.spec.get("serviceAccountName") or ""
        case "status.hostIP" | "status.hostIPs" if not facts.host_ips:
            raise _not_known(path)
        case "status.podIP" | "status.podIPs" if _waits_for_address(pod, facts):
            raise _not_known(path)
        case "status.hostIP":
            return facts.host_ips[0]
        case "status.hostIPs":
            return ",".join(facts.host_ips)
        case "status.podIP":
            return next(iter(facts.pod_ips), "")
        case "status.podIPs":
            return ",".join(facts.pod_ips)
        case _:
            raise DownwardError(f"unsupported fieldPath: {path}")


def _waits_for_address(pod: Pod, facts: NodeFacts) -> bool:
    """Whether the pod is to get the node's address, and there is none yet.

    A static pod does not wait: the API server may be one, and no address comes without it.
    """
    return pod.host_network and not pod.is_static and not facts.pod_ips


def _not_known(path: str) -> NoNodeAddress:
    return NoNodeAddress(
        f"{path} is not known: the Node object has no InternalIP; a cloud controller adds it, or "
        "start the node's agent with --node-ip"
    )


def resource_value(
    selector: api.ResourceFieldSelector, pod: Pod, container: api.Container, facts: NodeFacts
) -> str:
    """The value of a resourceFieldRef, in units of the divisor, rounded up.

    An unset limit falls back to the pod's, then to the node's allocatable.

    Raises:
        DownwardError: there is no such container or resource, or an amount is not a quantity.
    """
    name = selector.get("containerName")
    if name:
        container = _main_container(pod, name)
    reference = selector.get("resource") or ""
    which, _, resource = reference.partition(".")
    known = resource in _NODE_DEFAULTED or resource.startswith(HUGEPAGES_PREFIX)
    if which not in ("requests", "limits") or not known:
        raise DownwardError(f"unsupported container resource : {reference}")
    resources = container.get("resources") or {}
    quantities = resources.get("requests") if which == "requests" else resources.get("limits")
    text = (quantities or {}).get(resource, "0")
    try:
        if which == "limits" and resource in _NODE_DEFAULTED and parse(text) == 0:
            text = _default_limit(pod, resource, facts)
        return _in_units(text, selector.get("divisor"), resource)
    except ValueError as error:
        raise DownwardError(f"resourceFieldRef {reference}: {error}") from error


def _default_limit(pod: Pod, resource: str, facts: NodeFacts) -> str:
    allocatable = (facts.allocatable or {}).get(resource)
    if allocatable is None:
        return "0"
    of_pod = pod_level_limit(pod, resource) if resource in COMPUTE else None
    return of_pod if of_pod is not None and parse(of_pod) else allocatable


def _in_units(text: str, divisor: str | None, resource: str) -> str:
    if resource == "cpu":
        amount, unit = Decimal(milli_value(text)), Decimal(milli_value(divisor or "1") or 1000)
    else:
        amount, unit = parse(text), parse(divisor or "1") or Decimal(1)
    return str(int((amount / unit).to_integral_value(ROUND_CEILING)))


def _main_container(pod: Pod, name: str) -> api.Container:
    for container in (*pod.containers, *pod.init_containers):
        if container.get("name") == name:
            return container
    raise DownwardError(f"container {name} not found")


# -- $(NAME) references in values, commands and arguments ------------------------------------

MAX_EXPANDED = 1 << 20
"""Characters; the kernel accepts 128 KiB for one argument or variable."""
MAX_TOTAL = 6 << 20
"""Characters of a complete command; the kernel accepts no more arguments and variables."""


class ExpansionTooLong(ValueError):
    """The expanded text would be longer than the kernel passes to any process."""


def expand(text: str, lookup: Callable[[str], str | None]) -> str:
    """Replace the ``$(NAME)`` references in a text; linear in its length, and bounded.

    Unknown names are left unchanged, and ``$$`` is a dollar sign that starts no reference.
    References to references could grow without limit.

    Raises:
        ExpansionTooLong: the result is longer than MAX_EXPANDED.
    """
    parts: list[str] = []
    size = 0
    position = 0
    last_close = text.rfind(")")
    while True:
        dollar = text.find("$", position)
        if dollar < 0 or dollar + 1 >= len(text):
            parts.append(text[position:])
            break
        parts.append(text[position:dollar])
        following = text[dollar + 1]
        position = dollar + 2
        if following == "$":
            piece = "$"
        elif following == "(" and position <= last_close:
            close = text.index(")", position)
            value = lookup(text[position:close])
            piece = text[dollar : close + 1] if value is None else value
            position = close + 1
        else:
            piece = "$" + following
        parts.append(piece)
        size += len(piece)
        if size > MAX_EXPANDED:
            raise ExpansionTooLong(f"longer than {MAX_EXPANDED} characters after expansion")
    return "".join(parts)


def expand_all(texts: Iterable[str], variables: Mapping[str, str]) -> list[str]:
    """Expand a command or its arguments. Raises ExpansionTooLong."""
    parts: list[str] = []
    left = MAX_TOTAL
    for text in texts:
        parts.append(expand(text, variables.get))
        left -= len(parts[-1])
        if left < 0:
            raise ExpansionTooLong(f"longer than {MAX_TOTAL} characters after expansion")
    return parts


# -- services (docs/reference/behaviour.md, h4) ----------------------------------------------


def service_variables(
    services: Iterable[api.Service], namespace: str, links: bool
) -> dict[str, str]:
    """Variables for default/kubernetes, and with ``links`` for the namespace's other services.

    Services without a cluster IP have none.
    """
    variables: dict[str, str] = {}
    for service in _visible(services, namespace, links):
        _add_service(variables, service)
    return variables


def _visible(services: Iterable[api.Service], namespace: str, links: bool) -> list[api.Service]:
    """The visible services, one per name; default/kubernetes wins over a service of the
    namespace."""
    found: dict[str, api.Service] = {}
    for service in services:
        metadata = service.get("metadata") or {}
        spec = service.get("spec") or {}
        name = metadata.get("name") or ""
        if spec.get("clusterIP", "") in ("", "None") or not spec.get("ports"):
            continue
        if metadata.get("namespace") == "default" and name == "kubernetes":
            found[name] = service
        elif links and metadata.get("namespace") == namespace:
            found.setdefault(name, service)
    return list(found.values())


def _add_service(variables: dict[str, str], service: api.Service) -> None:
    prefix = _variable(service["metadata"]["name"])
    address = service["spec"]["clusterIP"]
    ports = service["spec"]["ports"]
    variables[f"{prefix}_SERVICE_HOST"] = address
    variables[f"{prefix}_SERVICE_PORT"] = str(ports[0].get("port"))
    for index, port in enumerate(ports):
        number = str(port.get("port"))
        protocol = port.get("protocol") or "TCP"
        if port.get("name"):
            variables[f"{prefix}_SERVICE_PORT_{_variable(port['name'])}"] = number
        host = f"[{address}]" if ":" in address else address
        url = f"{protocol.lower()}://{host}:{number}"
        if index == 0:
            variables[f"{prefix}_PORT"] = url
        one = f"{prefix}_PORT_{number}_{protocol.upper()}"
        variables[one] = url
        variables[f"{one}_PROTO"] = protocol.lower()
        variables[f"{one}_PORT"] = number
        variables[f"{one}_ADDR"] = address


def _variable(name: str) -> str:
    return name.replace("-", "_").upper()


# -- the complete environment ----------------------------------------------------------------

MAX_ENVIRONMENT = 8 << 20
"""Characters in all variables combined; half of what one CRI message may hold."""
"""The kubelet's message, in the event and in the container's status."""


class EnvSources(Protocol):
    """Objects that environment variables refer to, read before the environment is built."""

    def config_map(self, name: str) -> Mapping[str, str] | None:
        """A config map's data; None when there is no such object."""

    def secret(self, name: str) -> Mapping[str, str] | None:
        """A secret's decoded data (surrogate escapes for invalid UTF-8); None when there is no such
        object."""

    def file_key(self, selector: api.FileKeySelector) -> str | None:
        """A key of an env file in a volume; None when the file lacks it.

        Raises:
            ContainerConfigError: the volume or the file cannot be read.
        """


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
        raise ContainerConfigError(
            "services have not yet been read at least once, cannot construct envvars",
            Cause(CauseKind.SERVICES_UNREAD),
        )
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
        raise ContainerConfigError(
            f'{kind.lower()} "{name}" not found', Cause(CauseKind.OBJECT_MISSING, name, kind)
        )
    return data


def _file(selector: api.FileKeySelector, sources: EnvSources | None) -> str | None:
    key, path = selector.get("key") or "", selector.get("path") or ""
    value = _supported(sources, f"file {path}").file_key(selector)
    if not value and not selector.get("optional"):
        raise ContainerConfigError(
            f'environment variable key "{key}" not found in file "{path}"',
            Cause(CauseKind.ENV_FILE_KEY, key, path),
        )
    return value or None


def _key(data: Mapping[str, str] | None, selector: Mapping[str, Any], where: str) -> str | None:
    """One key of an object that exists, or that is missing and optional."""
    key = selector.get("key") or ""
    value = (data or {}).get(key)
    if value is None and not selector.get("optional"):
        name = selector.get("name") or ""
        raise ContainerConfigError(
            f"couldn't find key {key} in {where}/{name}", Cause(CauseKind.KEY_MISSING, key, name)
        )
    return value


def _supported(sources: EnvSources | None, what: str) -> EnvSources:
    if sources is None:
        raise ContainerConfigError(
            f"environment from {what}: not supported by this version of kubeletpy"
        )
    return sources
