"""Where an agent's pods come from: a part of the composition root.

Must never decide anything about a pod.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kubeletpy.agent.component import Task
from kubeletpy.agent.context import BuildContext
from kubeletpy.config import KubeletSettings
from kubeletpy.kubeapi.protocol import KubeApi
from kubeletpy.node.own_node import OwnNode
from kubeletpy.pods.pod import SOURCE_API, SOURCE_FILE, SOURCE_HTTP
from kubeletpy.syncloop.loop import SyncLoop
from kubeletpy.syncloop.sources.api import ApiSource
from kubeletpy.syncloop.sources.file import FileSource
from kubeletpy.syncloop.sources.ready import ReadySources

if TYPE_CHECKING:
    from kubeletpy.syncloop.sources.given import PodSource
    from kubeletpy.syncloop.sources.static_uids import Decided, StaticUids

NODE_KNOWN_S = 10.0
"""How long pods from the API wait for the node's own object at startup."""


def expected_sources(
    settings: KubeletSettings, kube_api: KubeApi | None, given: Sequence[PodSource]
) -> ReadySources:
    """The sources that must have shown their pods before anything is cleaned up.

    Raises ValueError if two of the given ones have one name: each would take the other's pods away.
    """
    if len({source.name for source in given}) < len(given):
        raise ValueError("each source of pods needs a name of its own")
    return ReadySources(
        [SOURCE_API] * (kube_api is not None)
        + [SOURCE_FILE] * bool(settings.static_pod_path)
        + [SOURCE_HTTP] * bool(settings.static_pod_url)
        + [source.name for source in given]
    )


def source_tasks(
    context: BuildContext, loop: SyncLoop, own_node: OwnNode, decided: Decided
) -> tuple[list[Task], list[Callable[[], str]], list[Callable[[], None]]]:
    """A task for each source, a function that returns which manifests can't be used, for explain,
    and what to call when the API answers again. ``decided`` records a decision about a pod (uid).
    """
    settings, kube_api, name = context.settings, context.kube_api, own_node.name
    tasks: list[Task] = []
    problems: list[Callable[[], str]] = []
    hurry: list[Callable[[], None]] = []
    if kube_api is not None:
        api_source = ApiSource(kube_api, name, loop, rng=context.outside.rng)
        hurry.append(api_source.reflector.hurry)

        async def follow() -> None:
            # running pods are admitted again: not before the node's labels and taints are known
            await own_node.wait_synced(within=NODE_KNOWN_S)
            await api_source.run()

        tasks.append(Task(f"source-{SOURCE_API}", follow))
    uids: StaticUids | None = None
    if settings.static_pod_path or settings.static_pod_url:
        from kubeletpy.syncloop.sources import static_uids  # few nodes have static pods

        record = context.root / static_uids.RECORD
        uids = static_uids.StaticUids(context.outside.runtime, kube_api, record, decided)
    if settings.static_pod_path:
        files = FileSource(
            Path(settings.static_pod_path),
            name,
            loop,
            check_frequency=settings.file_check_frequency,
            uids=uids,
        )
        problems.append(files.problem)
        tasks.append(Task(f"source-{SOURCE_FILE}", files.run))
    if settings.static_pod_url:
        from kubeletpy.syncloop.sources.http import HttpSource  # brings aiohttp; few nodes have one

        url = HttpSource(
            settings.static_pod_url,
            name,
            loop,
            headers=dict(settings.static_pod_url_header),
            check_frequency=settings.http_check_frequency,
            uids=uids,
        )
        tasks.append(Task(f"source-{SOURCE_HTTP}", url.run))
    for source in context.outside.pod_sources:
        from kubeletpy.syncloop.sources.given import GivenSource  # few programs bring one

        tasks.append(Task(f"source-{source.name}", GivenSource(source, name, loop).run))
    return tasks, problems, hurry
