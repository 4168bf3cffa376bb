"""The mounts of a container that is about to start: subPaths, the hosts file, checks.

Mounts that depend on earlier containers of the pod (an init container may have made the directory)
or on the pod's addresses are prepared here, at each start. Must never hand the runtime a path that
a container can change. Source: docs/reference/behaviour.md, i5, i10, i13.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from kubeletpy.base.api import types as api
from kubeletpy.base.host.disk_errors import complete_errors
from kubeletpy.base.host.patient_threads import PatientThreads
from kubeletpy.base.structs import replace
from kubeletpy.pods.environment import EnvironmentInputs
from kubeletpy.pods.pod import HostnameError, Mount, Pod, volume_groups
from kubeletpy.pods.runtime_status import ContainerConfigError, SubPathError
from kubeletpy.pods.shape import BIND_MOUNT_OPTIONS
from kubeletpy.runtime_manager.protocol import ContainerAdditions
from kubeletpy.volumes.containers import etc_hosts, pod_mounts
from kubeletpy.volumes.containers.sub_path import bind_sub_path, path_inside
from kubeletpy.volumes.files.paths import PodPaths, UnsafePath
from kubeletpy.volumes.files.syscalls import REQUIRED, MountRights

OPTIONS_GATE = "VolumeBindMountOptions"
NODE_HOSTS = Path("/etc/hosts")
NO_OPTIONS = "the container runtime does not support it"
"""Why no bind mount may have options, if the runtime does not report that it adds them."""


async def _default_handler(pod: Pod) -> str:
    return ""


class ContainerMounts:
    """Completes a container's mounts."""

    def __init__(
        self,
        pods_dir: Path,
        *,
        cluster_domain: str = "",
        recursive_read_only: Callable[[], frozenset[str]] = frozenset,
        options_refused: Callable[[], str] = lambda: NO_OPTIONS,
        handler: Callable[[Pod], Awaitable[str]] = _default_handler,
        rights: MountRights = REQUIRED,
    ) -> None:
        """Args:
        pods_dir: ``{root}/pods``.
        cluster_domain: used for names in hosts files.
        recursive_read_only: the handlers that support it, as it is now; "" is the default one.
        options_refused: why ``bindMountOptions`` cannot be honored now; empty: they can.
        handler: the CRI handler of a pod's RuntimeClass.
        rights: whether a path inside a volume may replace a mount of it.
        """
        self._rights = rights
        self._pods_dir = str(pods_dir)
        self._cluster_domain = cluster_domain
        self._recursive_read_only = recursive_read_only
        self._options_refused = options_refused
        self._handler = handler
        self._patient = PatientThreads()

    async def provide(
        self,
        pod: Pod,
        container: api.Container,
        pod_ips: tuple[str, ...],
        given: ContainerAdditions,
    ) -> ContainerAdditions:
        """The container's mounts. Raises ContainerConfigError."""
        mounted = [mount for mount in given.mounts if not mount.device]
        devices = [mount for mount in given.mounts if mount.device]
        made = await self.prepare(pod, container, pod_ips, given.environment, mounted)
        needed = volume_groups(pod, given.mounts)
        groups = [*given.groups, *(group for group in needed if group not in given.groups)]
        return replace(given, mounts=[*made, *devices], groups=groups)

    async def prepare(
        self,
        pod: Pod,
        container: api.Container,
        pod_ips: tuple[str, ...],
        environment: EnvironmentInputs,
        mounts: Sequence[Mount],
    ) -> Sequence[Mount]:
        """The mounts to start a container with.

        Raises:
            ContainerConfigError: a mount cannot be made; the message names it.
        """
        specs = container.get("volumeMounts") or ()
        handler = ""
        if any(spec.get("recursiveReadOnly") for spec in specs):
            handler = await self._handler(pod)
        recursive = handler in self._recursive_read_only()
        sub_paths: Mapping[int, list[str]] = {}
        if any(spec.get("subPath") or spec.get("subPathExpr") for spec in specs):
            # expansion and a large environment take time
            sub_paths = await asyncio.to_thread(pod_mounts.sub_paths, pod, container, environment)
        decided = [self._decide(m, specs[m.index], sub_paths, recursive) for m in mounts]
        hosts = etc_hosts.is_managed(pod, container, pod_ips)
        if not sub_paths and not hosts:
            return decided
        # parts of volumes that are not ours may be on a disk that does not answer
        own = f"{self._pods_dir}/"
        foreign = any(m.index in sub_paths and not m.host_path.startswith(own) for m in mounts)
        return await asyncio.get_running_loop().run_in_executor(
            self._patient if foreign else None,
            partial(
                self._make, pod, container["name"], pod_ips if hosts else None, sub_paths, decided
            ),
        )

    def _decide(
        self,
        mount: Mount,
        spec: Mapping[str, Any],
        sub_paths: Mapping[int, list[str]],
        recursive: bool,
    ) -> Mount:
        if mount.image:
            part = "/".join(sub_paths.get(mount.index, ()))
            mount = replace(mount, image_sub_path=part)
        refused = self._options_refused() if spec.get("bindMountOptions") else ""
        return replace(
            mount,
            recursive_read_only=recursive_read_only(spec, mount, recursive),
            options=bind_mount_options(spec, mount, refused),
        )

    def _make(
        self,
        pod: Pod,
        container: str,
        hosts_for: tuple[str, ...] | None,
        sub_paths: Mapping[int, list[str]],
        mounts: list[Mount],
    ) -> Sequence[Mount]:
        paths = PodPaths(self._pods_dir, pod.uid)
        made = [
            self._bind(paths, container, mount, sub_paths[mount.index])
            if mount.index in sub_paths and not mount.image
            else mount
            for mount in mounts
        ]
        if hosts_for is not None:
            made.append(self._hosts(paths, pod, hosts_for))
        return made

    def _bind(self, paths: PodPaths, container: str, mount: Mount, parts: list[str]) -> Mount:
        try:
            # the kubelet's name for it: after a change of agents, either takes it down
            name = mount.spec_name or mount.volume
            target = paths.sub_path(name, container, mount.index)
            with complete_errors("/".join((mount.host_path, *parts))):
                try:
                    bind_sub_path(mount.host_path, parts, target, read_only=False)
                except OSError as error:
                    if not self._rights.does_without(error):
                        raise
                    target = path_inside(mount.host_path, parts, read_only=False)
        except (UnsafePath, OSError) as error:
            raise SubPathError(
                f'failed to prepare subPath for volumeMount "{mount.volume}" of container '
                f'"{container}": {error}'
            ) from error
        return replace(mount, host_path=target)

    def _hosts(self, paths: PodPaths, pod: Pod, pod_ips: tuple[str, ...]) -> Mount:
        try:
            node = ""
            if pod.host_network:
                node = NODE_HOSTS.read_text("utf-8", "surrogateescape")
            text = etc_hosts.hosts_text(pod, pod_ips, self._cluster_domain, node)
            etc_hosts.write_hosts(paths.hosts_file, text)
        except (HostnameError, UnsafePath, OSError) as error:
            raise ContainerConfigError(f"hosts file: {error}") from error
        return Mount(etc_hosts.CONTAINER_PATH, paths.hosts_file, selinux_relabel=True)


def recursive_read_only(spec: Mapping[str, Any], mount: Mount, supported: bool) -> bool:
    """Whether a mount is read-only down to the mounts below it.

    Raises:
        ContainerConfigError: it must be, but cannot be.
    """
    asked = spec.get("recursiveReadOnly")
    if asked in (None, "Disabled"):
        return False
    if not mount.readonly:
        problem = "requires readOnly"
    elif mount.propagation != "PRIVATE":
        problem = "requires mountPropagation to be unset or None"
    elif asked == "IfPossible":
        return supported
    elif asked != "Enabled":
        problem = f"unknown value {asked!r}"
    elif supported:
        return True
    else:
        problem = "the container runtime does not support it"
    raise ContainerConfigError(f'volumeMount "{mount.volume}": recursiveReadOnly: {problem}')


def bind_mount_options(spec: Mapping[str, Any], mount: Mount, refused: str) -> tuple[str, ...]:
    """The options that the runtime adds to a mount, each once.

    Args:
        spec: the volumeMount.
        mount: what it mounts.
        refused: why no options can be honored on this node now; empty: they can.

    Raises:
        ContainerConfigError: options can't be honored. A container never starts without them: they
            are there to keep it from running or using what the volume holds.
    """
    asked = spec.get("bindMountOptions")
    if not asked:
        return ()
    unknown = next((each for each in asked if each not in BIND_MOUNT_OPTIONS), None)
    problem = refused if unknown is None else f"unknown option {pod_mounts.shortened(unknown)!r}"
    if problem:
        raise ContainerConfigError(f'volumeMount "{mount.volume}": bindMountOptions: {problem}')
    return tuple(dict.fromkeys(asked))
