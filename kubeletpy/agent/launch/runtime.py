"""Connecting to the runtime at startup, and what it reports it can do."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from kubeletpy.agent.launch.errors import LaunchError
from kubeletpy.base.api import types as api
from kubeletpy.base.api.scrub import scrub
from kubeletpy.node.build import RuntimeInfo
from kubeletpy.remote.client import RemoteRuntime
from kubeletpy.remote.errors import CRIError, IncompatibleRuntime
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.remote.protocol import RuntimeService
from kubeletpy.runtime_manager.names.labels import POD_UID
from kubeletpy.runtime_manager.names.log_paths import pod_uid_of_log_directory

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
    said = False
    while True:
        try:
            version = await runtime.connect(CONNECT_TRY_S)
            return await _info(runtime, version)
        except IncompatibleRuntime as error:
            raise LaunchError(str(error)) from error
        except CRIError as error:
            if not said:
                log.warning("waiting for the container runtime", extra={"why": str(error)})
            said = True
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
    shown = fitting[:MOST_HANDLERS]
    if len(shown) < len(distinct):
        log.warning(
            "the runtime reports more handlers, or longer names of them, than a node can show; "
            "the others are left out: check the runtime's configuration",
            extra={"reported": len(distinct), "shown": len(shown)},
        )
    return [
        {
            "features": {
                "recursiveReadOnlyMounts": each.features.recursive_read_only_mounts,
                "userNamespaces": each.features.user_namespaces,
            },
            "name": each.name,
        }
        for each in shown
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
