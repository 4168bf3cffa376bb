"""The CRI config of one container: all fields of its spec, in CRI terms. Pure.

Must never read a file or an object itself, and never put a value of
the environment into an error.

Source: docs/reference/behaviour.md, h5, j2, k2; docs/reference/names.csv: cri-annotation,
cri-metadata.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from kubeletpy.base.api import types as api
from kubeletpy.base.structs import Struct, field
from kubeletpy.pods.environment import (
    EnvironmentInputs,
    ExpansionTooLong,
    build_environment,
    expand_all,
)
from kubeletpy.pods.pod import NOWHERE, ContainerKind, DeviceNode, Mount, Placement, Pod
from kubeletpy.pods.runtime_status import ContainerConfigError
from kubeletpy.pods.shape import container_problem
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.runtime_manager.config.resources import container_resources, placed
from kubeletpy.runtime_manager.config.security_context import (
    ImageUser,
    build_security_context,
    verify_image_user,
    verify_run_as_non_root,
)
from kubeletpy.runtime_manager.config.settings import (
    RuntimeSettings,
    UserNamespaceRange,
    id_mappings,
)
from kubeletpy.runtime_manager.names import (
    UnsafeName,
    container_annotations,
    container_labels,
    container_log_path,
)

_SIGNAL_PREFIX = "SIGNAL_"
"""The CRI puts it before each name; pods have SIGTERM."""
_SIGNALS = cast(
    Mapping[str, cri.Signal],
    {name.removeprefix(_SIGNAL_PREFIX): number for name, number in cri.Signal.items()},
)
PATH_MAX = 4096
"""Bytes of a path in Linux, including the terminating zero."""
_PROPAGATION = {
    "PRIVATE": cri.PROPAGATION_PRIVATE,
    "HOST_TO_CONTAINER": cri.PROPAGATION_HOST_TO_CONTAINER,
    "BIDIRECTIONAL": cri.PROPAGATION_BIDIRECTIONAL,
}


class ContainerInputs(Struct, frozen=True):
    """The inputs of a container config besides pod, container and node settings."""

    restart_count: int
    image_ref: str
    """The image as known to the runtime, from ImageStatus or PullImage."""
    image_user: ImageUser = None
    environment: EnvironmentInputs = field(default_factory=EnvironmentInputs)
    mounts: Sequence[Mount] = ()
    termination_log: str = ""
    """Host path of the file to mount at terminationMessagePath; empty: none."""
    target_container_id: str = ""
    """For an ephemeral container: the container whose processes it sees."""
    extra_groups: Sequence[int] = ()
    """Supplemental groups of the pod's persistent volumes."""
    extra_annotations: Mapping[str, str] = field(default_factory=dict)
    extra_envs: Sequence[tuple[str, str]] = ()
    """Variables before the container's own."""
    devices: Sequence[DeviceNode] = ()
    """Listed before those that are volumes."""
    cdi_devices: Sequence[str] = ()
    placement: Placement = NOWHERE
    userns: UserNamespaceRange | None = None


def build_container_config(
    pod: Pod,
    container: api.Container,
    kind: ContainerKind,
    settings: RuntimeSettings,
    inputs: ContainerInputs,
) -> cri.ContainerConfig:
    """The config for CreateContainer.

    Raises:
        ContainerConfigError: the spec requests something impossible; the message states what.
    """
    try:
        return _build(pod, container, kind, settings, inputs)
    except ContainerConfigError:
        raise
    except (UnsafeName, ExpansionTooLong) as error:
        raise ContainerConfigError(f"container {container['name']}: {error}") from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        # No API server has validated this pod: some field has a form that CRI cannot hold.
        raise ContainerConfigError(
            f"container {container['name']} has a malformed field: {error}"
        ) from error


def _build(
    pod: Pod,
    container: api.Container,
    kind: ContainerKind,
    settings: RuntimeSettings,
    inputs: ContainerInputs,
) -> cri.ContainerConfig:
    name = container["name"]
    if problem := container_problem(container):
        raise ContainerConfigError(f"container {name} has a malformed field: {problem}")
    verify_run_as_non_root(pod, container, inputs.image_user)
    verify_image_user(pod, container, inputs.image_user, settings.uids)
    environment = build_environment(pod, container, inputs.environment)
    if len(path := container.get("terminationMessagePath") or "") >= PATH_MAX:
        raise ContainerConfigError(
            f"terminationMessagePath has {len(path)} characters, a path less than {PATH_MAX}"
        )
    return cri.ContainerConfig(
        metadata=cri.ContainerMetadata(name=name, attempt=inputs.restart_count),
        image=cri.ImageSpec(
            image=inputs.image_ref, user_specified_image=container.get("image") or ""
        ),
        command=expand_all(container.get("command") or (), environment),
        args=expand_all(container.get("args") or (), environment),
        working_dir=container.get("workingDir") or "",
        envs=[
            cri.KeyValue(key=key, value=value.encode("utf-8", "surrogateescape"))
            for key, value in (*inputs.extra_envs, *environment.items())
        ],
        mounts=_mounts(container, inputs, settings),
        devices=_devices(inputs),
        CDI_devices=[cri.CDIDevice(name=name) for name in dict.fromkeys(inputs.cdi_devices)],
        labels=container_labels(pod, container),
        annotations=container_annotations(
            pod, container, inputs.restart_count, inputs.extra_annotations
        ),
        log_path=container_log_path(name, inputs.restart_count),
        stdin=bool(container.get("stdin")),
        stdin_once=bool(container.get("stdinOnce")),
        tty=bool(container.get("tty")),
        stop_signal=stop_signal_of(container, enabled=settings.stop_signals),
        linux=cri.LinuxContainerConfig(
            resources=placed(container_resources(pod, container, kind, settings), inputs.placement),
            security_context=build_security_context(
                pod,
                container,
                settings,
                inputs.image_user,
                target_id=inputs.target_container_id,
                extra_groups=inputs.extra_groups,
                userns=inputs.userns,
            ),
        ),
    )


def _devices(inputs: ContainerInputs) -> list[cri.Device]:
    of_volumes = [
        DeviceNode(mount.container_path, mount.host_path, mount.device)
        for mount in inputs.mounts
        if mount.device
    ]
    return [
        cri.Device(
            container_path=device.container_path,
            host_path=device.host_path,
            permissions=device.permissions,
        )
        for device in (*inputs.devices, *of_volumes)
    ]


def _mounts(
    container: api.Container, inputs: ContainerInputs, settings: RuntimeSettings
) -> list[cri.Mount]:
    mappings = [] if inputs.userns is None else id_mappings(inputs.userns)
    mounts = [
        cri.Mount(
            container_path=mount.container_path,
            host_path=mount.host_path,
            readonly=mount.readonly,
            selinux_relabel=mount.selinux_relabel and settings.selinux_enabled,
            propagation=_PROPAGATION[mount.propagation],
            recursive_read_only=mount.recursive_read_only,
            uidMappings=mappings,
            gidMappings=mappings,
            image=_image(mount),
            image_sub_path=mount.image_sub_path,
            mount_options=mount.options,
        )
        for mount in inputs.mounts
        if not mount.device
    ]
    path = container.get("terminationMessagePath")
    if inputs.termination_log and path:
        mounts.append(
            cri.Mount(
                container_path=path if path.startswith("/") else f"/{path}",
                host_path=inputs.termination_log,
                selinux_relabel=settings.selinux_enabled,
                uidMappings=mappings,
                gidMappings=mappings,
            )
        )
    return mounts


def _image(mount: Mount) -> cri.ImageSpec | None:
    if not mount.image:
        return None
    return cri.ImageSpec(image=mount.image_ref or mount.image, user_specified_image=mount.image)


def stop_signal_of(container: api.Container, *, enabled: bool) -> cri.Signal:
    """Return the signal that stops a container: the spec's if the gate is on, else the image's.

    ``enabled`` is the gate ContainerStopSignals (KEP-4960).

    Raises:
        ContainerConfigError: there is no such signal.
    """
    name = (container.get("lifecycle") or {}).get("stopSignal")
    if not enabled or not name:
        return cri.SIGNAL_RUNTIME_DEFAULT
    signal = _SIGNALS.get(name, cri.SIGNAL_RUNTIME_DEFAULT)
    if signal == cri.SIGNAL_RUNTIME_DEFAULT:
        raise ContainerConfigError(f"lifecycle.stopSignal: no such signal: {name!s:.40}")
    return signal


def why_stop_signal_ignored(
    container: api.Container, status: cri.ContainerStatus | None, *, enabled: bool
) -> str:
    """Return why a container may not get the stop signal its spec requests; empty when it will.

    The runtime sends the signal. One that does not support it silently sends the image's signal
    instead; one that does reports it in the status of the container. One that sends it and does
    not report it (CRI-O 1.37) cannot be distinguished from one that ignores it.

    ``status`` is the runtime's status of the container that was made, or None if not queried.
    """
    name = (container.get("lifecycle") or {}).get("stopSignal")
    if not name:
        return ""
    field = f"lifecycle.stopSignal {name!s:.40}"
    if not enabled:
        return (
            f"{field} is not sent, but the image's stop signal: "
            "the feature gate ContainerStopSignals is off"
        )
    if status is not None and status.stop_signal == cri.SIGNAL_RUNTIME_DEFAULT:
        return (
            f"{field} is not confirmed by the container runtime: "
            "one without support for stop signals sends the image's"
        )
    return ""
