"""Queries at a start: the runtime and its features, the node's addresses, and the API's version."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path

from kubeletpy.agent.agent import Agent
from kubeletpy.agent.context import Task
from kubeletpy.agent.errors import LaunchError
from kubeletpy.base.api import types as api
from kubeletpy.base.host.patient_threads import PatientThreads
from kubeletpy.base.kubernetes_version import supported
from kubeletpy.base.text import scrub
from kubeletpy.config import ConfigError, LoadedConfig, NodeFlags, in_effect, text_for_log
from kubeletpy.config.files import read_version_record
from kubeletpy.config.flags import node_addresses
from kubeletpy.config.version_choice import (
    NoVersion,
    ResolvedVersion,
    ServerVersion,
    VersionSource,
    at_least,
    decide,
)
from kubeletpy.kubeapi.client import KubeClient
from kubeletpy.kubeapi.kubeconfig import KubeconfigError
from kubeletpy.kubeapi.protocol import KubeApi
from kubeletpy.node.build import RuntimeInfo
from kubeletpy.node.facts import MachineFacts, NodeAddresses, node_name
from kubeletpy.node.machine import default_route_ip, is_own_address, resolve
from kubeletpy.node.server_version import query_version, write_version_record
from kubeletpy.remote.client import RemoteRuntime
from kubeletpy.remote.errors import CRIError, IncompatibleRuntime
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.remote.protocol import RuntimeService
from kubeletpy.runtime_manager.names import POD_UID, pod_uid_of_log_directory

log = logging.getLogger(__name__)

CONNECT_TRY_S = 3.0
"""For one attempt; after the first one the log states what is being waited for."""

LONGEST_TEXT = 256
"""Characters of the runtime's name and of its version; the rest is cut off."""
MOST_HANDLERS = 256
"""Runtime handlers that the Node object shows: the API limits its size."""
LONGEST_HANDLER = 253
"""Characters of a handler's name, as of a RuntimeClass's."""

DECLARED = ("mount_options", "user_namespaces_host_network")
"""Fields of RuntimeFeatures that features of the node depend on."""


async def wait_for_runtime(runtime: RemoteRuntime) -> RuntimeInfo:
    """Wait until the runtime answers; logs once what it waits for."""
    stated = False
    while True:
        try:
            version = await runtime.connect(CONNECT_TRY_S)
            return await _info(runtime, version)
        except IncompatibleRuntime as error:
            raise LaunchError(str(error)) from error
        except CRIError as error:
            if not stated:
                log.warning("waiting for the container runtime", extra={"why": str(error)})
            stated = True
            await asyncio.sleep(1)


async def query_runtime(runtime: RuntimeService) -> RuntimeInfo:
    """The current runtime info. Raises CRIError."""
    return await _info(runtime, await runtime.version())


async def _info(runtime: RuntimeService, version: cri.VersionResponse) -> RuntimeInfo:
    status = await runtime.status()
    return RuntimeInfo(
        _text(version.runtime_name),
        _text(version.runtime_version),
        _handlers(status),
        status.features.supplemental_groups_policy,
        frozenset(name for name in DECLARED if getattr(status.features, name)),
    )


def _handlers(status: cri.StatusResponse) -> list[api.NodeRuntimeHandler]:
    distinct = {each.name: each for each in status.runtime_handlers}
    fitting = [each for each in distinct.values() if len(each.name) <= LONGEST_HANDLER]
    reported = fitting[:MOST_HANDLERS]
    if len(reported) < len(distinct):
        log.warning(
            "the runtime reports more handlers, or longer names of them, than a node can show; "
            "the others are left out: check the runtime's configuration",
            extra={"reported": len(distinct), "shown": len(reported)},
        )
    return [
        {
            "features": {
                "recursiveReadOnlyMounts": each.features.recursive_read_only_mounts,
                "userNamespaces": each.features.user_namespaces,
            },
            "name": each.name,
        }
        for each in reported
    ]


def _text(reported: str) -> str:
    """A name or version of the runtime, fit for the Node object."""
    return " ".join(scrub(reported)[:LONGEST_TEXT].split())


async def pod_selectors(root: Path, pod_logs_dir: str) -> list[dict[str, str]]:
    """Sandbox labels of each pod for which this node has a directory or logs."""
    uids = await asyncio.to_thread(_pod_uids, root / "pods", Path(pod_logs_dir))
    return [{POD_UID: uid} for uid in sorted(uids)]


def _pod_uids(pods: Path, logs: Path) -> set[str]:
    uids = set(_names(pods)) | set(map(pod_uid_of_log_directory, _names(logs)))
    return uids - {""}


def _names(directory: Path) -> list[str]:
    try:
        return [entry.name for entry in directory.iterdir()]
    except FileNotFoundError:
        return []


# Addresses: from the flag, the node's name, or the machine; re-checked periodically.

PERIOD_S = 30.0
"""How long it may take to notice an address that DHCP has changed."""
RESOLVE_S = 2.0
"""Seconds that the lookup of the node's name may take. Without its uplink a machine waits 6 to 10 s
for its name servers, and no pod would start before."""
_lookups = PatientThreads(1)


async def find_node_ips(flags: NodeFlags, facts: MachineFacts) -> list[str]:
    """--node-ip; else a name that is an address or resolves to one; else the default route's.

    0.0.0.0 and :: request an address of that family, which is preferred. An address of a name
    counts only if it is one of this machine that others can reach. Source: the kubelet's rule
    (docs/reference/flags.csv: node-ip).

    Raises LaunchError if the machine has no address of the requested family.
    """
    supplied = node_addresses(flags.node_ip)
    if supplied and not supplied[0].is_unspecified:
        return [str(address) for address in supplied]
    version = supplied[0].version if supplied else 4
    name = node_name(flags, facts.hostname)
    with suppress(ValueError):  # a name, as usual
        return [str(ipaddress.ip_address(name))]
    known = [each for each in await _addresses(name) if is_own_address(each)]
    preferred = [each for each in known if (":" in each) == (version == 6)]
    if supplied and not preferred:
        known = []  # a requested family is never replaced by another
    if found := [*preferred, *known]:
        return found[:1]
    if found_by_route := default_route_ip(version):
        return [found_by_route]
    if supplied:
        raise LaunchError(
            f"--node-ip {flags.node_ip}: this machine has no IPv{version} address "
            "that leads out of it; name the node's address"
        )
    return [default_route_ip(6) or "127.0.0.1"]


async def _addresses(name: str) -> list[str]:
    """Addresses of the node's name; none if the name servers do not answer within RESOLVE_S."""
    try:
        async with asyncio.timeout(RESOLVE_S):
            return await _lookups.run(resolve, name)
    except TimeoutError:
        log.debug("name servers do not answer: the node's name has no address")
        return []


def follow_addresses(flags: NodeFlags, facts: MachineFacts, addresses: NodeAddresses) -> list[Task]:
    """The task that keeps them up to date; none where they are configured."""
    supplied = node_addresses(flags.node_ip)
    if supplied and not supplied[0].is_unspecified:
        return []

    async def run() -> None:
        while True:
            await asyncio.sleep(PERIOD_S)
            try:
                found = await find_node_ips(flags, facts)
            except LaunchError as error:
                log.debug("node addresses not found", extra={"why": str(error)})
                continue
            if found == ["127.0.0.1"]:
                continue  # no network at the moment: the known addresses may come back
            before = list(addresses)
            if addresses.replace(found):
                log.warning("the node's address has changed", extra={"was": before, "now": found})

    return [Task("node-addresses", run)]


# The version that the agent runs as. A start never waits long for the API server: the query is
# bounded in time and bytes, and without an answer the record of the last start applies.
# Decisions: :mod:`kubeletpy.config.version_choice`.

ANSWER_S = 10.0
"""Seconds that a start waits for the API server's version if no earlier start recorded it. A
machine that boots may be busy, and an agent that does not wait is the oldest version until someone
restarts it. A connection that is refused ends the wait."""
ANSWER_WITH_RECORD_S = 1.0
"""The same if there is a record: a wrong one is noticed later, as any upgrade is."""


Make = Callable[[LoadedConfig, AsyncExitStack, ResolvedVersion | None], Awaitable[Agent]]
"""Builds an agent. Given no version it resolves one, and may raise OtherVersion."""


class OtherVersion(Exception):
    """The configuration was read for another version than the resolved one."""

    def __init__(self, resolved: ResolvedVersion) -> None:
        """``resolved``: the version to read it for."""
        super().__init__(resolved.why)
        self.resolved = resolved


async def make_for_version(loaded: LoadedConfig, stack: AsyncExitStack, make: Make) -> Agent:
    """Make an agent; once more with the settings of another version if ``make`` finds that it
    applies. ``stack`` closes what is made. Raises what ``make`` raises, and ConfigError."""
    resolved = None
    while True:
        async with AsyncExitStack() as own:
            try:
                agent = await make(loaded, own, resolved)
            except OtherVersion as other:
                resolved = other.resolved
            else:
                stack.push_async_exit(own.pop_all())
                return agent
        loaded, resolved = _read_again(loaded, resolved)
        log_settings(loaded)


def log_settings(loaded: LoadedConfig, *, configuration: bool = True) -> None:
    """Log the warnings, and the effective ``configuration``, which is 5 kB on one line."""
    for warning in loaded.warnings:
        log.warning(warning)
    if configuration:
        effective = text_for_log(in_effect(loaded.settings))
        log.info("effective KubeletConfiguration", extra={"config": effective})


def _read_again(
    loaded: LoadedConfig, resolved: ResolvedVersion
) -> tuple[LoadedConfig, ResolvedVersion]:
    """The configuration for a resolved version, and which one. Raises ConfigError."""
    *first, last = at_least(resolved)
    for each in first:
        try:
            return loaded.of_version(each.version), each
        except ConfigError:
            continue  # a later version has what it lacks; the last one's problems are raised
    return loaded.of_version(last.version), last


async def resolve_version(
    loaded: LoadedConfig, api: KubeApi | None, resolved: ResolvedVersion | None
) -> ResolvedVersion:
    """The version to run as.

    Args:
        loaded: read for a version that may turn out to be another one.
        api: with the node's credentials; None: the node has no API server.
        resolved: what was resolved before; it stays.
    """
    if resolved is not None:
        return resolved
    requested = supported(loaded.node.kubernetes_version)
    if requested is not None or api is None:
        return decide(requested, None, None)
    return await resolve_auto(loaded.node, api)


async def resolve_auto(
    flags: NodeFlags, api: KubeApi, seconds: float | None = None
) -> ResolvedVersion:
    """The version that the API server states, else that of the record, else the oldest.

    ``seconds``: how long to wait for the server; None: as long as a start waits.
    """
    record = await asyncio.to_thread(read_version_record, flags.root_dir)
    if seconds is None:
        seconds = ANSWER_S if record is None else ANSWER_WITH_RECORD_S
    return decide(None, await query_joining_version(flags, api, seconds), record)


async def query_joining_version(
    flags: NodeFlags, api: KubeApi, seconds: float
) -> ServerVersion | NoVersion:
    """Query the API server, with the bootstrap credentials until the node has a certificate."""
    if not flags.bootstrap_kubeconfig or not isinstance(api, KubeClient) or api.host:
        return await query_version(api, seconds)
    return await query_kubeconfig_version(flags.bootstrap_kubeconfig, seconds)


async def query_kubeconfig_version(
    path: str, seconds: float = ANSWER_S
) -> ServerVersion | NoVersion:
    """Query the API server of a kubeconfig on a new connection, which is closed afterwards."""
    try:
        client = await KubeClient.from_kubeconfig(path)
    except KubeconfigError as error:
        return NoVersion(str(error))
    try:
        return await query_version(client, seconds)
    finally:
        await client.close()


async def record_version_choice(resolved: ResolvedVersion, root: Path) -> None:
    """Log the version, and record what an API server has stated for starts without it."""
    level = logging.WARNING if resolved.warning else logging.INFO
    extra = {"version": str(resolved.version), "from": str(resolved.source), "why": resolved.why}
    log.log(level, "Kubernetes version", extra=extra)
    if resolved.source is VersionSource.SERVER:
        await asyncio.to_thread(write_version_record, resolved.version, root)
