"""Who may use which image: pull records and credential providers as settings and flags want them.

Must never read a credential.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

from kubeletpy.clock import Clock
from kubeletpy.config import KubeletSettings, NodeFlags
from kubeletpy.images.pod_credentials import CredentialProviders
from kubeletpy.images.records.files import RecordFiles
from kubeletpy.images.records.ledger import PullRecords
from kubeletpy.images.records.store import RecordStore
from kubeletpy.images.records.verify import Verification, VerificationPolicy
from kubeletpy.kubeapi.protocol import KubeApi
from kubeletpy.launch.errors import LaunchError
from kubeletpy.metrics.registry import Metrics
from kubeletpy.remote.protocol import ImageService
from kubeletpy.volumes.tokens import PodTokens

_RECORDS_PER_POD = 5
_INTENTS_PER_POD = 2


async def open_pull_records(
    settings: KubeletSettings,
    root: Path,
    images: ImageService,
    clock: Clock,
    *,
    metrics: Metrics,
    stack: AsyncExitStack,
) -> PullRecords | None:
    """The pull records below ``root``; None when their feature gate is off.

    Raises:
        LaunchError: they can't be read.
    """
    if not settings.feature_gates.enabled("KubeletEnsureSecretPulledImages"):
        return None
    parallel = settings.max_parallel_image_pulls or 0
    store = RecordStore(
        RecordFiles(root),
        clock,
        metrics.pull_records,
        max_intents=_INTENTS_PER_POD * max(settings.max_pods, parallel),
        max_records=_RECORDS_PER_POD * settings.max_pods,
    )
    verification = Verification(
        VerificationPolicy(settings.image_pull_credentials_verification_policy),
        settings.preloaded_images_verification_allowlist,
    )
    records = PullRecords(store, verification, images.list_images, metrics.pull_records)
    try:
        await records.open()
    except OSError as error:
        raise LaunchError(f"{root}/image_manager can't be read: {error}") from error
    stack.push_async_callback(records.close)
    return records


def make_providers(
    settings: KubeletSettings,
    flags: NodeFlags,
    *,
    api: KubeApi | None,
    tokens: PodTokens,
    metrics: Metrics,
    stack: AsyncExitStack,
) -> CredentialProviders | None:
    """The credential providers that the flags name; None when they name none.

    Raises:
        ConfigError: their configuration, or their programs.
    """
    if not flags.image_credential_provider_config and not flags.image_credential_provider_bin_dir:
        return None
    # most nodes have none, and start without loading this
    from kubeletpy.launch.credential_providers import make
    from kubeletpy.launch.service_accounts import ClusterAccounts

    plugins = make(settings, flags, ClusterAccounts(api, tokens), metrics.credential_providers)
    stack.push_async_callback(plugins.close)
    return plugins
