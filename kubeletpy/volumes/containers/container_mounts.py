"""The mounts of a container that is about to start: subPaths, the hosts file, checks.

Mounts that depend on earlier containers of the pod (an init container may have made the directory)
or on the pod's addresses are prepared here, at each start. Must never hand the runtime a path that
a container can change. Work on files blocks, and is done in threads. Source:
docs/reference/behaviour.md, i5, i10, i13; CVE-2017-1002101.
"""

from __future__ import annotations

import asyncio
import errno
import os
import stat
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from kubeletpy.base.api import types as api
from kubeletpy.base.host.disk_errors import complete_errors
from kubeletpy.base.host.patient_threads import PatientThreads
from kubeletpy.base.structs import Component, replace
from kubeletpy.pods.environment import EnvironmentInputs
from kubeletpy.pods.pod import HostnameError, Mount, Pod, pod_domain, pod_hostname, volume_groups
from kubeletpy.pods.runtime_status import ContainerConfigError, SubPathError
from kubeletpy.pods.shape import BIND_MOUNT_OPTIONS
from kubeletpy.runtime_manager.protocol import ContainerAdditions
from kubeletpy.volumes.containers import pod_mounts
from kubeletpy.volumes.files.disk import MS_BIND, REQUIRED, MountRights, detach, mount
from kubeletpy.volumes.files.paths import PodPaths, UnsafePath
from kubeletpy.volumes.files.safe_path import open_beneath

OPTIONS_GATE = "VolumeBindMountOptions"
NODE_HOSTS = Path("/etc/hosts")
NO_OPTIONS = "the container runtime does not support it"
"""Why no bind mount may have options, if the runtime does not report that it adds them."""
_DIRECTORY_MODE = 0o750
CONTAINER_PATH = "/etc/hosts"
MODE = 0o644
_HEADER = "# Kubernetes-managed hosts file.\n"
_HOST_HEADER = "# Kubernetes-managed hosts file (host network).\n"
_ALIASES_HEADER = "\n# Entries added by HostAliases.\n"
_LOCAL = (
    "127.0.0.1\tlocalhost\n"
    "::1\tlocalhost ip6-localhost ip6-loopback\n"
    "fe00::0\tip6-localnet\n"
    "fe00::0\tip6-mcastprefix\n"
    "fe00::1\tip6-allnodes\n"
    "fe00::2\tip6-allrouters\n"
)


async def _default_handler(pod: Pod) -> str:
    return ""


class ContainerMounts(Component):
    """Completes the mounts of a container that is about to start."""

    # ``{root}/pods``
    pods_dir: Path
    # used for names in hosts files
    cluster_domain: str = ""
    # the handlers that support it now; "" is the default one
    recursive_read_only: Callable[[], frozenset[str]] = frozenset
    # why ``bindMountOptions`` cannot be honored now; empty: they can
    options_refused: Callable[[], str] = lambda: NO_OPTIONS
    # the CRI handler of a pod's RuntimeClass
    handler: Callable[[Pod], Awaitable[str]] = _default_handler
    # whether a path inside a volume may replace a mount of it
    rights: MountRights = REQUIRED

    def __post_init__(self) -> None:
        self._patient = PatientThreads()

    async def provide(
        self, pod: Pod, container: api.Container, supplied: ContainerAdditions
    ) -> ContainerAdditions:
        """Add the container's mounts and groups to ``supplied``. Raises ContainerConfigError."""
        mounted = [mount for mount in supplied.mounts if not mount.device]
        devices = [mount for mount in supplied.mounts if mount.device]
        made = await self.prepare(pod, container, supplied.environment, mounted)
        needed = volume_groups(pod, supplied.mounts)
        groups = [*supplied.groups, *(group for group in needed if group not in supplied.groups)]
        return replace(supplied, mounts=[*made, *devices], groups=groups)

    async def prepare(
        self,
        pod: Pod,
        container: api.Container,
        environment: EnvironmentInputs,
        mounts: Sequence[Mount],
    ) -> Sequence[Mount]:
        """The mounts to start a container with.

        Raises:
            ContainerConfigError: a mount cannot be made; the message names it.
        """
        pod_ips = environment.facts.pod_ips
        specs = container.get("volumeMounts") or ()
        handler = ""
        if any(spec.get("recursiveReadOnly") for spec in specs):
            handler = await self.handler(pod)
        recursive = handler in self.recursive_read_only()
        sub_paths: Mapping[int, list[str]] = {}
        if any(spec.get("subPath") or spec.get("subPathExpr") for spec in specs):
            # expansion and a large environment take time
            sub_paths = await asyncio.to_thread(pod_mounts.sub_paths, pod, container, environment)
        decided = [self._decide(m, specs[m.index], sub_paths, recursive) for m in mounts]
        hosts = is_managed(pod, container, pod_ips)
        if not sub_paths and not hosts:
            return decided
        # parts of volumes that are not ours may be on a disk that does not answer
        own = f"{self.pods_dir}/"
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
        refused = self.options_refused() if spec.get("bindMountOptions") else ""
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
        paths = PodPaths(str(self.pods_dir), pod.uid)
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
            # subPathExpr may hold the value of a secret, so errors name the volume alone
            with complete_errors(mount.host_path, replace_path=True):
                volume = mount.host_path
                if self.rights.does_without(
                    partial(bind_sub_path, volume, parts, target, read_only=False)
                ):
                    target = path_inside(volume, parts, read_only=False)
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
            text = hosts_text(pod, pod_ips, self.cluster_domain, node)
            write_hosts(paths.hosts_file, text)
        except (HostnameError, UnsafePath, OSError) as error:
            raise ContainerConfigError(f"hosts file: {error}") from error
        return Mount(CONTAINER_PATH, paths.hosts_file, selinux_relabel=True)


def recursive_read_only(spec: Mapping[str, Any], mount: Mount, supported: bool) -> bool:
    """Whether a mount is read-only down to the mounts below it.

    Raises:
        ContainerConfigError: it must be, but cannot be.
    """
    requested = spec.get("recursiveReadOnly")
    if requested in (None, "Disabled"):
        return False
    if not mount.readonly:
        problem = "requires readOnly"
    elif mount.propagation != "PRIVATE":
        problem = "requires mountPropagation to be unset or None"
    elif requested == "IfPossible":
        return supported
    elif requested != "Enabled":
        problem = f"unknown value {requested!r}"
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
    requested = spec.get("bindMountOptions")
    if not requested:
        return ()
    unknown = next((each for each in requested if each not in BIND_MOUNT_OPTIONS), None)
    problem = refused if unknown is None else f"unknown option {pod_mounts.shortened(unknown)!r}"
    if problem:
        raise ContainerConfigError(f'volumeMount "{mount.volume}": bindMountOptions: {problem}')
    return tuple(dict.fromkeys(requested))


# A part of a volume (subPath), mounted where the runtime can use it.
#
# The runtime gets a mount of exactly the file that was checked (CVE-2017-1002101). A container
# could replace a path inside a volume by a symlink to the host.


def bind_sub_path(volume: str, parts: Sequence[str], target: str, *, read_only: bool) -> None:
    """Mount a path of a volume at ``target``; an existing mount of the same path stays.

    A mount at ``target`` that shows another file, or that does not answer any more (a stale NFS
    handle, a FUSE server that has died), is replaced.

    Args:
        volume: host path of the volume.
        parts: the path inside.
        target: a path below the pod's ``volume-subpaths``, used by the agent alone.
        read_only: nothing is made in the volume.

    Raises:
        UnsafePath: the path leads out of the volume.
        OSError: it is missing, or cannot be mounted.
    """
    source = open_beneath(volume, parts, create=not read_only)
    try:
        found = os.fstat(source)
        if stat.S_ISLNK(found.st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), "/".join(parts))
        if _same_file(target, found):
            return
        _make_target(target, is_directory=stat.S_ISDIR(found.st_mode))
        mount(f"/proc/self/fd/{source}", target, flags=MS_BIND)
    finally:
        os.close(source)


def path_inside(volume: str, parts: Sequence[str], *, read_only: bool) -> str:
    """A path of a volume that leads nowhere else now, where the kernel refuses the mount.

    Whoever writes to the volume can replace it later. Its links are not resolved: files of a
    configMap move at each update. Arguments and errors are those of :func:`bind_sub_path`.
    """
    os.close(open_beneath(volume, parts, create=not read_only))
    return str(Path(volume, *parts))


def _same_file(target: str, desired: os.stat_result) -> bool:
    """Whether a target shows this file. A broken mount fails with ESTALE, ENOTCONN, EIO and others:
    the caller replaces whatever cannot be examined."""
    try:
        there = os.lstat(target)
    except OSError:
        return False
    return (there.st_dev, there.st_ino) == (desired.st_dev, desired.st_ino)


def _make_target(target: str, *, is_directory: bool) -> None:
    """An empty directory or file without a mount on it."""
    path = Path(target)
    path.parent.mkdir(_DIRECTORY_MODE, parents=True, exist_ok=True)
    _clear(path)
    if is_directory:
        path.mkdir(_DIRECTORY_MODE)
    else:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o640))


def _clear(path: Path) -> None:
    """Remove the leftovers of an earlier start.

    Mounts are detached, not flushed: a FUSE server that hangs must not block a container's start.
    """
    while True:
        try:
            detach(str(path))
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOENT):
                raise
            break
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    else:
        path.unlink(missing_ok=True)


# The managed /etc/hosts of a pod (table i10).


def is_managed(pod: Pod, container: Mapping[str, Any], pod_ips: Sequence[str]) -> bool:
    """Whether a container gets the managed file: not if it mounts something there itself."""
    mounts = container.get("volumeMounts") or ()
    if any(mount.get("mountPath") == CONTAINER_PATH for mount in mounts):
        return False
    return pod.host_network or bool(pod_ips)


def hosts_text(pod: Pod, pod_ips: Sequence[str], cluster_domain: str, node_hosts: str) -> str:
    """The text of the hosts file.

    Args:
        pod: with its hostname, subdomain and hostAliases.
        pod_ips: its addresses, the preferred family first.
        cluster_domain: from the node's settings.
        node_hosts: the node's own /etc/hosts, for pods on the host's network.

    Raises:
        HostnameError: the pod cannot be named as its spec requires.
    """
    aliases = _aliases(pod.spec.get("hostAliases") or ())
    if pod.host_network:
        return _HOST_HEADER + node_hosts + aliases
    name, domain = pod_hostname(pod), pod_domain(pod, cluster_domain)
    names = f"{name}.{domain}\t{name}" if domain else name
    own = "".join(f"{ip}\t{names}\n" for ip in pod_ips)
    return _HEADER + _LOCAL + own + aliases


def write_hosts(path: str, text: str) -> None:
    """Write the file in place: containers that mount it see the change. Raises OSError."""
    with complete_errors(path):
        _write_in_place(path, text.encode("utf-8", "surrogateescape"))


def _write_in_place(path: str, data: bytes) -> None:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    Path(path).parent.mkdir(0o750, exist_ok=True)
    descriptor = os.open(path, flags, MODE)
    try:
        if os.pread(descriptor, len(data) + 1, 0) != data:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, data, 0)
        os.fchmod(descriptor, MODE)  # regardless of the umask
    finally:
        os.close(descriptor)


def _aliases(aliases: Sequence[Mapping[str, Any]]) -> str:
    if not aliases:
        return ""
    lines = (
        "\t".join([alias.get("ip") or "", *(alias.get("hostnames") or ())]) + "\n"
        for alias in aliases
    )
    return _ALIASES_HEADER + "".join(lines)
