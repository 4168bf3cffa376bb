"""What each room of an agent is made of: parts, settings and the rooms it talks to.

One function a room, called by :class:`kubeletpy.agent.agent.Agent` in the order in which they need
each other. Must never start anything, nor keep state.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kubeletpy.allocation.checkpoint import ResourceState
from kubeletpy.cgroups.limits import KernelPodLimits
from kubeletpy.cgroups.manager import PodCgroups
from kubeletpy.events.recorder import EventRecorder
from kubeletpy.eviction.keeper import LocalStorageKeeper
from kubeletpy.images.gc import ImageGarbageCollector
from kubeletpy.images.manager import ImageManager
from kubeletpy.images.metrics import PullTimes
from kubeletpy.kubeapi.protocol import KubeApi
from kubeletpy.node.build import ImageSummary, new_node, node_status
from kubeletpy.node.conditions import NodeHealth
from kubeletpy.node.manager import NodeManager
from kubeletpy.node.own_node import OwnNode
from kubeletpy.node.startup import NodeStartup
from kubeletpy.parts import AgentParts
from kubeletpy.pods.pod import SOURCE_API, SOURCE_FILE, SOURCE_HTTP
from kubeletpy.pods.pod_manager import PodManager
from kubeletpy.podworkers.status_cache import PodStatusCache
from kubeletpy.podworkers.workers import PodWorkers
from kubeletpy.remote.errors import CRIError
from kubeletpy.runtime_manager.act.hooks_runner import LifecycleHookRunner
from kubeletpy.runtime_manager.hooks import NoHooks
from kubeletpy.runtime_manager.manager import KubeRuntimeManager
from kubeletpy.runtime_manager.seams import Seams
from kubeletpy.syncloop.mirror import ApiMirrorKeeper
from kubeletpy.syncloop.sources.api import ApiSource, Deliveries
from kubeletpy.syncloop.sources.file import FileSource
from kubeletpy.syncloop.sources.http import HttpSource
from kubeletpy.upkeep import Upkeep
from kubeletpy.volumes.protocol import VolumeManager
from kubeletpy.volumes.unsupported import UnsupportedVolumes

log = logging.getLogger(__name__)

NODE_KNOWN_S = 10.0
"""How long pods of the API wait for the node's own object at the start."""

Source = Callable[[], Coroutine[Any, Any, None]]


def runtime_manager(
    parts: AgentParts,
    recorder: EventRecorder,
    cgroups: PodCgroups | None,
    actuated: ResourceState,
    pull_times: PullTimes,
) -> KubeRuntimeManager:
    """What drives the runtime."""
    seams = replace(parts.seams, actuated=actuated)
    if cgroups is not None and parts.cgroups is not None:
        seams = replace(
            seams, cgroup_parent=cgroups.parent, pod_limits=KernelPodLimits(parts.cgroups, cgroups)
        )
    if (namespaces := parts.user_namespaces) is not None:
        seams = replace(
            seams,
            user_namespace=namespaces.of,
            runtime_handler=namespaces.checked(seams.runtime_handler),
        )
    images = ImageManager(
        parts.images,
        recorder,
        parts.clock,
        parts.metrics.images,
        settings=parts.pulls,
        node_credentials=parts.node_credentials,
        providers=parts.credential_providers,
        records=parts.pull_records,
        pull_times=pull_times,
    )
    return KubeRuntimeManager(
        parts.runtime,
        images,
        recorder,
        parts.clock,
        parts.metrics.starts,
        root_dir=str(parts.root_dir),
        settings=parts.runtime_settings,
        seams=_with_hooks(seams, parts, recorder),
        runtime_name=parts.runtime_info.name,
        max_crash_loop_delay=parts.max_crash_loop_delay_s,
        concurrent_starts=parts.concurrent_starts,
        gc_policy=parts.container_gc,
    )


def _with_hooks(seams: Seams, parts: AgentParts, recorder: EventRecorder) -> Seams:
    """The seams with the hooks that run, unless there are some already."""
    if not isinstance(seams.hooks, NoHooks):
        return seams
    hooks = LifecycleHookRunner(parts.runtime, recorder, parts.metrics.hooks, parts.node_ips)
    return replace(seams, hooks=hooks)


def resource_state(parts: AgentParts, name: str) -> ResourceState:
    """What the agent notes of pods' resources across its restarts, by the kubelet's file name."""
    return ResourceState(parts.root_dir / name)


def node_manager(
    parts: AgentParts, recorder: EventRecorder, health: Callable[[], NodeHealth]
) -> NodeManager | None:
    """What registers the node and keeps its status; None without an API."""
    if parts.kube_api is None:
        return None
    return NodeManager(
        parts.heartbeat_api or parts.kube_api,
        parts.clock,
        parts.node,
        parts.facts,
        node_ips=parts.node_ips,
        recorder=recorder,
        health=health,
        runtime_info=lambda: parts.runtime_info,
        list_images=lambda: _image_summaries(parts),
        startup=NodeStartup(
            parts.metrics.node,
            parts.clock,
            booted_at=parts.booted_at,
            started_at=parts.clock.now() if parts.started_at is None else parts.started_at,
        ),
        rng=parts.rng,
    )


async def _image_summaries(parts: AgentParts) -> Sequence[ImageSummary]:
    try:
        images = await parts.images.list_images()
    except CRIError as error:
        log.debug("images not listed", extra={"why": str(error)})
        return ()
    return [ImageSummary([*image.repo_digests, *image.repo_tags], image.size) for image in images]


def own_node(parts: AgentParts, recorder: EventRecorder, manager: NodeManager | None) -> OwnNode:
    """The node's own object, as far as it is known."""
    facts = parts.facts
    status = node_status(
        facts,
        parts.node,
        parts.runtime_info,
        node_ips=parts.node_ips,
        hostname=facts.hostname,
        images=(),
        health=NodeHealth(),
        old={},
        now=parts.clock.now(),
    )
    node = OwnNode(
        parts.node.name,
        parts.kube_api,
        recorder,
        initial=new_node(parts.node, facts.hostname, facts.architecture, status),
        written=lambda: manager.node if manager is not None else None,
        rng=parts.rng,
    )
    if manager is not None:
        manager.newest = node.current
    return node


def mirrors(
    parts: AgentParts, pods: PodManager, node: NodeManager | None
) -> ApiMirrorKeeper | None:
    """What keeps the API's pictures of static pods; None without an API."""
    if parts.kube_api is None or node is None:
        return None
    return ApiMirrorKeeper(
        parts.kube_api,
        parts.node.name,
        lambda: node.uid or None,
        wanted=lambda pod: pods.current(pod.uid) is not None,
        rng=parts.rng,
    )


def recursive_read_only(parts: AgentParts) -> frozenset[str]:
    """Runtime handlers that can mount read-only down to the mounts below."""
    return frozenset(
        handler.get("name") or ""
        for handler in parts.runtime_info.handlers
        if (handler.get("features") or {}).get("recursiveReadOnlyMounts")
    )


def volumes(
    parts: AgentParts, recorder: EventRecorder, changed: Callable[[str], None]
) -> VolumeManager:
    """What mounts; ``changed(uid)`` wakes a pod."""
    if parts.volumes is None:
        return UnsupportedVolumes()
    return parts.volumes(recorder, changed)


def local_storage(
    parts: AgentParts,
    recorder: EventRecorder,
    pods: PodManager,
    cache: PodStatusCache,
    workers: PodWorkers,
) -> LocalStorageKeeper | None:
    """What evicts pods that exceed their limits of local storage; None: nothing does."""
    if parts.storage is None:
        return None
    return LocalStorageKeeper(
        parts.storage(pods, cache),
        pod=pods.get,
        is_over=workers.is_known_terminated,
        kill=workers.kill_pod,
        recorder=recorder,
        evicted=lambda signal: parts.metrics.workers.evictions.labels(signal).inc(),
    )


def sources(
    parts: AgentParts, deliveries: Callable[[], Deliveries], node: OwnNode
) -> dict[str, Source]:
    """Where pods come from, each a task of its own; ``deliveries()`` is where they bring them."""
    static, name, kube_api = parts.static_pods, parts.node.name, parts.kube_api
    made: dict[str, Source] = {}
    if kube_api is not None:
        made[SOURCE_API] = lambda: _follow_pods(parts, kube_api, deliveries(), node)
    if static.path:
        made[SOURCE_FILE] = lambda: FileSource(
            Path(static.path), name, deliveries(), check_frequency=static.file_check_s
        ).run()
    if static.url:
        made[SOURCE_HTTP] = lambda: HttpSource(
            static.url,
            name,
            deliveries(),
            headers=static.url_headers,
            check_frequency=static.http_check_s,
        ).run()
    return made


async def _follow_pods(
    parts: AgentParts, kube_api: KubeApi, deliveries: Deliveries, node: OwnNode
) -> None:
    # the pods that run are admitted anew: not before the node's labels and taints are known
    await node.known(within=NODE_KNOWN_S)
    await ApiSource(kube_api, parts.node.name, deliveries, rng=parts.rng).run()


def upkeep(
    parts: AgentParts,
    runtime: KubeRuntimeManager,
    recorder: EventRecorder,
    *,
    all_sources_ready: Callable[[], bool],
    removable: Callable[[str], bool],
    told: Callable[[str], bool],
) -> Upkeep:
    """Garbage collection of containers and images."""
    images = ImageGarbageCollector(
        parts.images,
        parts.runtime,
        recorder,
        parts.clock,
        parts.metrics.images,
        node_name=parts.node.name,
        policy=parts.image_gc,
        on_remaining=parts.pull_records.prune if parts.pull_records is not None else None,
    )
    return Upkeep(
        runtime,
        images,
        recorder,
        node_name=parts.node.name,
        all_sources_ready=all_sources_ready,
        removable=removable,
        told=told,
    )
