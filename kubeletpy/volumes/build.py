"""Puts this room together for a node: objects, tokens, services, and what uses them.

For the composition root. Must never decide anything about a pod.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from kubeletpy.clock import Clock
from kubeletpy.events.recorder import EventRecorder
from kubeletpy.kubeapi.objects import WatchedObjects
from kubeletpy.kubeapi.protocol import KubeApi
from kubeletpy.kubeapi.services import ServiceList
from kubeletpy.metrics.volumes import VolumeMetrics
from kubeletpy.runtime_manager.seams import Seams
from kubeletpy.volumes.container_mounts import ContainerMounts, RuntimeFeatures
from kubeletpy.volumes.environment import ContainerEnvironment
from kubeletpy.volumes.manager import NodeVolumes
from kubeletpy.volumes.tokens import PodTokens

_IMAGE_VOLUMES_SINCE = {"containerd": (2, 1), "cri-o": (1, 31)}
_IMAGE_SUB_PATHS_SINCE = {"containerd": (2, 2), "cri-o": (1, 33)}


def has_image_volumes(runtime: str, version: str) -> bool:
    """Whether a runtime mounts images; one that is not known is asked to."""
    return _is_since(_IMAGE_VOLUMES_SINCE.get(runtime), version)


def has_image_sub_paths(runtime: str, version: str) -> bool:
    """Whether a runtime mounts parts of images; one that is not known is asked to."""
    return _is_since(_IMAGE_SUB_PATHS_SINCE.get(runtime), version)


def _is_since(since: tuple[int, int] | None, version: str) -> bool:
    found = re.match(r"v?(\d+)\.(\d+)", version)
    if since is None or found is None:
        return True
    return (int(found[1]), int(found[2])) >= since


class PodSurroundings:
    """What pods of this node find when they start. Make it inside a running event loop."""

    def __init__(
        self,
        pods_dir: Path,
        kube_api: KubeApi | None,
        clock: Clock,
        seams: Seams,
        *,
        features: RuntimeFeatures,
        cluster_domain: str = "",
        node_ips: Sequence[str] = (),
        allocatable: Mapping[str, str] | None = None,
        metrics: VolumeMetrics | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """Args:
        pods_dir: ``{root}/pods``.
        kube_api: None: standalone.
        clock: the time of day.
        seams: of the runtime manager; ``self.seams`` has what this room adds.
        features: what the runtime can mount.
        cluster_domain: for names in hosts files.
        node_ips: of the node.
        allocatable: what pods can have, as quantities.
        metrics: None: nobody looks.
        rng: for jitter.
        """
        self._metrics = metrics
        self._pods_dir = pods_dir
        self._clock = clock
        self._allocatable = allocatable
        self.objects = WatchedObjects(kube_api, rng=rng)
        self.tokens = PodTokens(kube_api, clock, rng=rng)
        self._services: asyncio.Task[None] | None = None
        environment = ContainerEnvironment(
            pods_dir, self.objects, host_ips=node_ips, allocatable=allocatable
        )
        if kube_api is not None:
            services = ServiceList(kube_api, rng=rng)
            # static pods start without an API, and so without services
            environment.services = lambda pod: services.of_namespace(
                pod.namespace, wait=not pod.is_static
            )
            loop = asyncio.get_running_loop()
            self._services = loop.create_task(services.run(), name="services")
        mounts = ContainerMounts(
            pods_dir,
            cluster_domain=cluster_domain,
            features=features,
            handler=seams.runtime_handler,
        )
        self.seams = replace(seams, environment=environment.inputs, mounts=mounts.prepare)

    def volumes(self, recorder: EventRecorder, wake: Callable[[str], None]) -> NodeVolumes:
        """The volume manager; ``wake(pod uid)`` is called when a pod's files may have to change."""
        self.objects.on_change(wake)
        self.tokens.on_due(wake)
        return NodeVolumes(
            self._pods_dir,
            self.objects,
            self.tokens,
            recorder,
            self._clock,
            allocatable=self._allocatable,
            metrics=self._metrics,
        )

    async def close(self) -> None:
        """Follow nothing any more. What is mounted stays: containers go on."""
        self.tokens.close()
        await self.objects.close()
        if self._services is not None:
            self._services.cancel()
            await asyncio.wait([self._services])
