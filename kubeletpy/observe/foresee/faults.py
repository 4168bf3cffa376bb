"""The faults for which an API server refuses a pod, or an admitted pod can never start. Pure.

The rules are those that the worker applies after the admission: volumes, the sandbox, and each
container's image and configuration (docs/reference/behaviour.md, c, h, i, j). The contents of other
objects are not checked here (:mod:`kubeletpy.observe.foresee.start`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from kubeletpy.base.api import types as api
from kubeletpy.base.api.quantity import parse
from kubeletpy.base.structs import Struct
from kubeletpy.base.text import reported_image
from kubeletpy.images.policy import NEVER, ImageErrorCode, never_pulled
from kubeletpy.images.reference import InvalidReference, default_pull_policy, with_default_tag
from kubeletpy.kubeapi.events.reasons import Reason
from kubeletpy.observe.foresee.model import PresentImage, StartFault
from kubeletpy.pods.environment import EnvironmentInputs, NodeFacts
from kubeletpy.pods.pod import SUBDOMAIN, Pod
from kubeletpy.pods.runtime_status import ContainerConfigError, SandboxConfigError
from kubeletpy.pods.shape import POD_ENUMS, PULL_POLICIES
from kubeletpy.runtime_manager.config.container_config import (
    ContainerInputs,
    build_container_config,
)
from kubeletpy.runtime_manager.config.sandbox_config import ResolverConfig, build_pod_sandbox_config
from kubeletpy.runtime_manager.config.settings import (
    RuntimeSettings,
    UserNamespaceRange,
    requests_user_namespace,
)
from kubeletpy.volumes.containers.pod_mounts import sub_paths
from kubeletpy.volumes.files.paths import UnsafePath, payload_path
from kubeletpy.volumes.pod_volumes.planned import VolumePlan, volume_source

CONFIG_ERROR = "CreateContainerConfigError"
MAX_PORT = 65535
_PROPAGATIONS = ("None", "HostToContainer", "Bidirectional")
_VOLUME_ENUMS = {
    "emptyDir": ("medium", ("Memory", "HugePages")),
    "hostPath": (
        "type",
        (
            "DirectoryOrCreate",
            "Directory",
            "FileOrCreate",
            "File",
            "Socket",
            "CharDevice",
            "BlockDevice",
        ),
    ),
}
_ADDRESS = ("192.0.2.1",)
"""Stands for addresses that are known once the pod runs."""
_SOME_USER = 1
"""Stands for the user of an image that is not on the node."""


class _AnyData(Mapping[str, str]):
    """Data of an object that is not read: it has every key."""

    def __getitem__(self, key: str) -> str:
        return ""

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 1


class _AnyObjects(Struct, frozen=True):
    """Sources of variables in which all objects and keys exist."""

    pod: Pod

    def config_map(self, name: str) -> Mapping[str, str]:
        return _AnyData()

    def secret(self, name: str) -> Mapping[str, str]:
        return _AnyData()

    def file_key(self, selector: api.FileKeySelector) -> str:
        volume, path = selector.get("volumeName") or "", selector.get("path") or ""
        for declared in self.pod.spec.get("volumes") or ():
            source: Mapping[str, Any] = {**declared}
            if declared.get("name") == volume and volume_source(source)[0] == "emptyDir":
                return "any"
        raise ContainerConfigError(
            f'file "{path}" in volume "{volume}" cannot be read: it is not an emptyDir volume of '
            "the pod"
        )


def api_refusal(pod: Pod) -> str:
    """Return why no API server accepts the pod, as far as a node can check; "" if nothing is wrong.

    Example: ``two containers have the name "a"``.
    """
    if not SUBDOMAIN.fullmatch(pod.name):
        return f'metadata.name "{pod.name}" is no DNS subdomain'
    names = (container["name"] for _, container in pod.all_containers())
    volumes = (str(each.get("name")) for each in pod.spec.get("volumes") or ())
    for what, each_name in (("containers", names), ("volumes", volumes)):
        for name, count in Counter(each_name).items():
            if count > 1:
                return f'{count} {what} have the name "{name}"'
    for field, allowed in POD_ENUMS.items():
        if problem := _enum_problem(pod.spec, field, allowed):
            return f"spec.{problem}"
    for _, container in pod.all_containers():
        if problem := _container_problem(container):
            return f"container {container['name']}: {problem}"
    for volume in pod.spec.get("volumes") or ():
        kind, source = volume_source({**volume})
        field, allowed = _VOLUME_ENUMS.get(kind, ("", ()))
        if field and (problem := _enum_problem(source, field, allowed)):
            return f"volume {volume.get('name')}: {kind}.{problem}"
        if kind == "emptyDir" and (problem := _size_problem(source.get("sizeLimit"))):
            return f"volume {volume.get('name')}: emptyDir.sizeLimit {problem}"
    return ""


def _size_problem(size: Any) -> str:
    try:
        return "" if size is None or parse(size) >= 0 else f"is {size}: must be at least 0"
    except ValueError:
        return f"is {size}: must be a quantity such as 1Gi"


def _container_problem(container: api.Container) -> str:
    if problem := _enum_problem(container, "imagePullPolicy", PULL_POLICIES):
        return problem
    for variable in container.get("env") or ():
        if not (name := variable.get("name")) or "=" in name:
            return f'env: a variable has the name "{name or ""}"'
    resources = container.get("resources") or {}
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    for field, amounts in (("requests", requests), ("limits", limits)):
        for name, amount in amounts.items():
            if parse(amount) < 0:
                return f"resources.{field}[{name}] is {amount}: must be at least 0"
    for name, amount in requests.items():
        if name in limits and parse(amount) > parse(limits[name]):
            return f"resources.requests[{name}] is {amount}, more than its limit {limits[name]}"
    for port in container.get("ports") or ():
        for field in ("containerPort", "hostPort"):
            number = port.get(field)
            if isinstance(number, int) and not 0 <= number <= MAX_PORT:
                return f"ports: {field} is {number}: must be at most {MAX_PORT}"
    for mount in container.get("volumeMounts") or ():
        if problem := _enum_problem(mount, "mountPropagation", _PROPAGATIONS):
            return f"volumeMounts: {problem}"
    return ""


def _enum_problem(found: Mapping[str, Any], field: str, allowed: Collection[str]) -> str:
    value = found.get(field)
    if not value or value in allowed or (field == "medium" and _huge_pages(str(value))):
        return ""
    return f"{field} is {value}: must be one of {', '.join(allowed)}"


def _huge_pages(medium: str) -> bool:
    return medium == "HugePages" or medium.startswith("HugePages-")


def start_faults(
    pod: Pod,
    plan: VolumePlan,
    images: Mapping[str, PresentImage | None],
    settings: RuntimeSettings,
    names: Collection[str],
) -> tuple[StartFault, ...]:
    """Return the faults of a pod with the containers ``names``, in the order of its start.

    Args:
        images: image -> what the node has of it; None or no entry if the runtime did not report it.
        settings: of the node's containers.
    """
    userns = UserNamespaceRange(0) if requests_user_namespace(pod) else None
    found = [*_volume_faults(plan)]
    try:
        build_pod_sandbox_config(pod, 0, settings, ResolverConfig(), userns=userns)
    except SandboxConfigError as error:
        found.append(StartFault("sandbox", Reason.FAILED_CREATE_POD_SANDBOX, str(error)))
    environment = EnvironmentInputs(NodeFacts(_ADDRESS, _ADDRESS), (), _AnyObjects(pod))
    for kind, container in pod.all_containers():
        if container["name"] not in names:
            continue
        subject = f"container {container['name']}"
        image = container.get("image") or ""
        present = images.get(image)
        found += _image_faults(subject, container, present)
        user = present.user if present is not None and present.exists else _SOME_USER
        inputs = ContainerInputs(
            restart_count=0,
            image_ref=image,
            image_user=user,
            environment=environment,
            userns=userns,
        )
        try:
            build_container_config(pod, container, kind, settings, inputs)
            sub_paths(pod, container, environment)
        except ContainerConfigError as error:
            found.append(StartFault(subject, CONFIG_ERROR, str(error)))
    return tuple(found)


def _image_faults(
    subject: str, container: api.Container, present: PresentImage | None
) -> Iterator[StartFault]:
    image = container.get("image") or ""
    try:
        with_default_tag(image)
    except InvalidReference as error:
        message = f'Failed to apply default image tag "{reported_image(image)}": {error}'
        yield StartFault(subject, ImageErrorCode.INVALID_NAME, message)
        return
    policy = container.get("imagePullPolicy") or default_pull_policy(image)
    absent = present is not None and not present.exists
    if absent and policy == NEVER:
        message = never_pulled(reported_image(image), present=False)
        yield StartFault(subject, ImageErrorCode.NEVER_PULL, message)


def _volume_faults(plan: VolumePlan) -> Iterator[StartFault]:
    problems = dict(plan.problems)
    for volume in plan.volumes:
        try:
            if volume.kind == "image":
                with_default_tag(str(volume.source.get("reference") or ""))
            for path in _paths(volume.kind, volume.source):
                payload_path(path)
        except InvalidReference as error:
            name = reported_image(str(volume.source.get("reference") or ""))
            problems[volume.name] = f'couldn\'t parse image name "{name}": {error}'
        except UnsafePath as error:
            problems[volume.name] = str(error)
    for name, problem in problems.items():
        yield StartFault(f"volume {name}", Reason.FAILED_MOUNT, problem)


def _paths(kind: str, source: Mapping[str, Any]) -> Iterator[str]:
    """Yield the paths of the files of a volume that the agent writes."""
    if kind == "projected":
        for part in source.get("sources") or ():
            for name, projection in part.items():
                if isinstance(projection, Mapping):
                    yield from _paths(name, projection)
    elif kind in ("configMap", "secret", "downwardAPI"):
        yield from (str(item.get("path") or "") for item in source.get("items") or ())
    elif kind in ("serviceAccountToken", "clusterTrustBundle"):
        yield str(source.get("path") or "")
