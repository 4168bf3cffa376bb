"""Images: access, pulling, garbage collection. A part of the composition root.

Must never decide anything about a pod.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kubeletpy.agent.component import Component
from kubeletpy.agent.context import BuildContext
from kubeletpy.agent.pod_state import PodState
from kubeletpy.base.structs import Struct
from kubeletpy.images.ages import ImageAges
from kubeletpy.images.gc import ImageGarbageCollector
from kubeletpy.images.gc_selection import ImageGCPolicy, pod_images
from kubeletpy.images.image_manager import ImageManager
from kubeletpy.images.node_credentials import NodeCredentials, default_paths
from kubeletpy.images.puller import PullSettings
from kubeletpy.images.records.from_settings import pull_records
from kubeletpy.images.uses import ImageUses
from kubeletpy.volumes.projected.tokens import PodTokens

if TYPE_CHECKING:
    from kubeletpy.images.providers.plugins import Plugins


class Images(Struct, frozen=True):
    """The image objects for the rest of the composition root."""

    manager: ImageManager
    gc: ImageGarbageCollector
    components: list[Component]


def build_images(context: BuildContext, state: PodState, tokens: PodTokens) -> Images:
    """``tokens``: of service accounts, for credential providers.

    Raises:
        ConfigError: the credential providers that the flags name can't be used.
    """
    settings, flags, outside = context.settings, context.flags, context.outside
    root, recorder = context.root, context.recorder
    clock, metrics, components = outside.clock, outside.metrics, list[Component]()
    records = pull_records(settings, root, outside.images, clock, metrics.pull_records)
    if records is not None:
        components.append(Component(records, start=records.start, close=records.close))
    providers: Plugins | None = None
    if flags.image_credential_provider_config or flags.image_credential_provider_bin_dir:
        # most nodes have none and start without loading this
        from kubeletpy.images.providers.from_flags import providers_from_flags
        from kubeletpy.volumes.projected.service_accounts import ClusterAccounts

        accounts = ClusterAccounts(context.kube_api, tokens)
        providers = providers_from_flags(settings, flags, accounts, metrics.credential_providers)
        components.append(Component(providers, close=providers.close))
    uses = ImageUses()
    gc = ImageGarbageCollector(
        outside.images,
        outside.runtime,
        recorder,
        clock,
        metrics.images,
        node_name=context.node_name,
        policy=ImageGCPolicy.from_settings(settings),
        on_remaining=records.prune if records is not None else None,
        ages=ImageAges(root),
        named=lambda: pod_images(state.pods.pods(), state.active()),
        uses=uses,
        tracer=outside.tracer,
    )
    manager = ImageManager(
        outside.images,
        recorder,
        clock,
        metrics.images,
        settings=PullSettings.from_settings(settings),
        node_credentials=NodeCredentials(default_paths(root, Path.home())),
        providers=providers,
        records=records,
        pull_times=state.starts,
        pulled=gc.pulled,
        uses=uses,
    )
    return Images(manager, gc, components)
