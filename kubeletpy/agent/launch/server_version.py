"""The version that an agent runs as: queried from the API server at the start.

An agent starts without its API server: the query is bounded in time and bytes, and without an
answer the record of the last start applies. Decisions: :mod:`kubeletpy.config.version_choice`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

from kubeletpy.agent.agent import Agent
from kubeletpy.base.kubernetes_version import supported
from kubeletpy.config import ConfigError, LoadedConfig, NodeFlags, in_effect, text_for_log
from kubeletpy.config.files import read_version_record
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
from kubeletpy.node.server_version import query_version, write_version_record

ANSWER_S = 3.0
"""Seconds that a start waits for the API server's version if no earlier start recorded it."""
ANSWER_WITH_RECORD_S = 1.0
"""The same if there is a record: a wrong one is noticed later, as any upgrade is."""

log = logging.getLogger(__name__)

Make = Callable[[LoadedConfig, AsyncExitStack, ResolvedVersion | None], Awaitable[Agent]]
"""Builds an agent. Given no version it resolves one, and may raise OtherVersion."""


class OtherVersion(Exception):
    """The configuration was read for another version than the resolved one."""

    def __init__(self, resolved: ResolvedVersion) -> None:
        """``resolved``: the version to read it for."""
        super().__init__(resolved.why)
        self.resolved = resolved


async def made(loaded: LoadedConfig, stack: AsyncExitStack, make: Make) -> Agent:
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


async def resolve(
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
    asked = supported(loaded.node.kubernetes_version)
    if asked is not None or api is None:
        return decide(asked, None, None)
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


async def settle(resolved: ResolvedVersion, root: Path) -> None:
    """Log the version, and record what an API server has stated for starts without it."""
    level = logging.WARNING if resolved.warning else logging.INFO
    extra = {"version": str(resolved.version), "from": str(resolved.source), "why": resolved.why}
    log.log(level, "Kubernetes version", extra=extra)
    if resolved.source is VersionSource.SERVER:
        await asyncio.to_thread(write_version_record, resolved.version, root)
