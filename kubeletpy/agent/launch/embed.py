"""An agent as a guest of another program, on a machine that is not its own.

The other edge of the composition besides :mod:`kubeletpy.agent.launch.start`: the runtime is an
object of the program, and nothing of the machine is changed. Files are written below the root
directory only.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

from kubeletpy import config
from kubeletpy.agent.agent import Agent
from kubeletpy.agent.context import ApiClients, Machine, Outside
from kubeletpy.agent.errors import LaunchError
from kubeletpy.agent.launch.identity import join
from kubeletpy.agent.launch.runtime import (
    OtherVersion,
    find_node_ips,
    make_for_version,
    query_runtime,
    record_version_choice,
    resolve_version,
)
from kubeletpy.agent.launch.start import (
    api_clients,
    bind_ports,
    clear_unfinished,
    make_root,
    new_metrics,
    start_built,
)
from kubeletpy.base.clock import SystemClock
from kubeletpy.base.host.files import KeyPair, write_private
from kubeletpy.base.structs import Struct, replace
from kubeletpy.config import LoadedConfig
from kubeletpy.config.version_choice import ResolvedVersion
from kubeletpy.kubeapi.kubeconfig import KubeconfigError, read_kubeconfig
from kubeletpy.kubeapi.protocol import KubeApi
from kubeletpy.node.facts import node_name
from kubeletpy.node.machine import read_machine_facts
from kubeletpy.remote.errors import CRIError
from kubeletpy.remote.protocol import ImageService, RuntimeService
from kubeletpy.resources.cgroups.setup import read_kernel_facts
from kubeletpy.resources.plugins.plugin_manager import SocketRegistrations
from kubeletpy.server.health import free_port
from kubeletpy.syncloop.sources.file import PodSource
from kubeletpy.volumes.files.disk import MountRights

_LOOPBACK = "127.0.0.1"
GUEST: dict[str, Any] = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "cgroupsPerQOS": False,
    "enforceNodeAllocatable": [],
    "enableServer": False,
    "eventRecordQPS": 0,
    "evictionHard": {},
    "failCgroupV1": False,
    "failSwapOn": False,
    "imageGCHighThresholdPercent": 100,
    "kubeAPIQPS": 0,
    "localStorageCapacityIsolation": False,
    "makeIPTablesUtilChains": False,
    "maxPods": 10_000,
    "registryPullQPS": 0,
    "resolvConf": "",
    "serializeImagePulls": False,
}
"""Settings of an agent that leaves its machine alone and needs no privileges.

The kubelet's limits protect a machine, a registry and a shared API server. A guest's runtime is an
object of the program, so they have no use here: 0 is no limit."""


def guest_config(
    root_dir: Path,
    node_name: str,
    *,
    kubeconfig: Path | None = None,
    server: bool = False,
    settings: Mapping[str, Any] | None = None,
    flags: Sequence[str] = (),
) -> LoadedConfig:
    """The configuration of an agent that leaves its machine alone and needs no privileges.

    It has no cgroups, kernel settings, cluster DNS or garbage collection of images, and no server
    unless requested. Nothing limits ephemeral storage, image pulls or requests to the API. All
    files are below ``root_dir``.

    Args:
        root_dir: the directory of the agent's state; made at the start. An agent that is started
            again with the same directory continues.
        node_name: the name of the Node object; a DNS subdomain.
        kubeconfig: of the cluster to join; None: static pods only.
        server: serve ``kubectl logs`` and other requests of an API server on this machine. The
            port is a free one of 127.0.0.1, which is then the node's address. Clients need a
            certificate that is signed by the authority of the kubeconfig.
        settings: fields of a KubeletConfiguration (docs/configuration.md), which win; None leaves
            the guest's own value.
        flags: of ``kubeletpy run``, such as ``--node-labels=a=b``; they win, too.

    Raises:
        ConfigError: the name, a field or a flag is invalid or unknown; it names each, and what is
            allowed.
        KubeconfigError: the server needs the kubeconfig, which is missing or names no authority.
        OSError: the authority's certificate can't be written to the root directory.
    """
    if not node_name:
        raise config.ConfigError([config.Problem("node_name", "", "must not be empty")])
    if isinstance(flags, str):
        allowed = "must be a list of flags, not one text"
        raise config.ConfigError([config.Problem("flags", flags, allowed)])
    root = Path(root_dir).absolute()
    own = [
        f"--root-dir={root}",
        f"--cert-dir={root / 'pki'}",
        f"--device-plugins-dir={root / 'device-plugins'}",
        f"--hostname-override={node_name}",
        "--keep-kernel-settings",
        "--no-cluster-dns",
        *([f"--kubeconfig={Path(kubeconfig).absolute()}"] if kubeconfig is not None else ()),
    ]
    served: dict[str, Any] = {}
    if server:
        own.append(f"--node-ip={_LOOPBACK}")
        served = _server_settings(root, kubeconfig)
    chosen = {name: value for name, value in (settings or {}).items() if value is not None}
    document = {**GUEST, "podLogsDir": str(root / "log" / "pods"), **served, **chosen}
    return config.load_document(document, config.parse_flags([*own, *flags]), strict=True)


def _server_settings(root: Path, kubeconfig: Path | None) -> dict[str, Any]:
    if kubeconfig is None:
        raise KubeconfigError("server=True needs a kubeconfig: its authority identifies clients")
    cluster = read_kubeconfig(Path(kubeconfig)).cluster
    authority = cluster.get("certificate-authority")
    if inline := cluster.get("certificate-authority-data"):
        authority = root / "pki" / "client-ca.crt"
        authority.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(authority, b64decode(inline))
    if not authority:
        raise KubeconfigError(f"kubeconfig {kubeconfig}: server=True needs certificate-authority")
    served = {
        "enableServer": True,
        "address": _LOOPBACK,
        "port": free_port(_LOOPBACK),
        "healthzPort": 0,
        "authentication": {"x509": {"clientCAFile": str(authority)}},
    }
    # the embedded API trusts only the pair that it has made for its node
    pair = KeyPair.named(Path(kubeconfig).absolute().parent / "pki", "kubelet-server")
    if pair.certificate.is_file():
        served |= {"tlsCertFile": str(pair.certificate), "tlsPrivateKeyFile": str(pair.key)}
    return served


class Parts(Struct, frozen=True):
    """The parts that the embedding program provides.

    Attributes:
        runtime, images: the container runtime; one object may be both.
        api: the cluster's API; None: that of the configuration's kubeconfig, if it has one.
        pod_sources: sources of pods besides the API and those of the configuration.
        mounts: mount volumes in memory and subPaths, where the kernel allows it.
    """

    runtime: RuntimeService
    images: ImageService
    api: KubeApi | None = None
    pod_sources: Sequence[PodSource] = ()
    mounts: bool = True


async def embed(loaded: LoadedConfig, parts: Parts, stack: AsyncExitStack) -> Agent:
    """Build an agent of the parts and start it; the stack closes all of it.

    Raises:
        ConfigError, KubeconfigError: the configuration can't work here.
        LaunchError: the runtime does not answer, or the root directory can't be used.
    """
    return await make_for_version(loaded, stack, partial(_embed, parts))


async def _embed(
    parts: Parts, loaded: LoadedConfig, stack: AsyncExitStack, resolved: ResolvedVersion | None
) -> Agent:
    settings, flags = loaded.settings, loaded.node
    root, clock, metrics = Path(flags.root_dir), SystemClock(), new_metrics(settings)
    make_root(root)
    # the program's runtime decides about users and ports, also in a user namespace
    facts = replace(read_machine_facts(root), rights=None)
    ports = bind_ports(settings, flags, stack)
    clear_unfinished(flags)
    try:
        info = await query_runtime(parts.runtime)
    except CRIError as error:
        raise LaunchError(f"the given runtime can't be used: {error}") from error
    api, tasks = None, []
    if parts.api is not None:
        api = ApiClients(parts.api, parts.api, parts.api, parts.api)
    else:
        identity = await join(settings, flags, node_name(flags, facts.hostname), metrics, stack)
        if identity is not None:
            api, tasks = api_clients(settings, identity.client), identity.tasks
    resolved = await resolve_version(loaded, api.pods if api is not None else None, resolved)
    if resolved.version != settings.feature_gates.version:
        raise OtherVersion(resolved)
    await record_version_choice(resolved, root)
    outside = Outside(
        machine=Machine(
            facts,
            read_kernel_facts(),
            await find_node_ips(flags, facts),
            container_logs_dir=str(root / "log" / "containers"),
            concurrent_starts=settings.max_pods or None,  # the machine's cores run none of them
        ),
        runtime=parts.runtime,
        images=parts.images,
        runtime_info=info,
        read_runtime_info=partial(query_runtime, parts.runtime),
        clock=clock,
        api=api,
        metrics=metrics,
        credentials=tasks,
        ports=ports,
        pod_sources=parts.pod_sources,
        plugins=SocketRegistrations(),
        notices=loaded.notices,
        kubernetes=resolved,
        mounts=MountRights(required=False, allowed=parts.mounts),
        sockets=False,
    )
    return await start_built(loaded, outside, stack)
