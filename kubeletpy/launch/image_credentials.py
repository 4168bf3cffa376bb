"""Who may use which image: pull records and credential providers as settings and flags want them.

Must never read a credential.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

from kubeletpy.clock import Clock
from kubeletpy.config import ConfigError, KubeletSettings, NodeFlags, Problem
from kubeletpy.config.credential_provider_files import (
    BIN_DIR_FLAG,
    FLAG,
    check_programs,
    read_credential_provider_files,
)
from kubeletpy.config.credential_providers import TOKENS_GATE, load_credential_providers
from kubeletpy.images.providers.accounts import ServiceAccounts
from kubeletpy.images.providers.plugins import Plugins
from kubeletpy.images.providers.program import Program, run_program
from kubeletpy.images.providers.provider import Provider
from kubeletpy.images.records.files import RecordFiles
from kubeletpy.images.records.ledger import PullRecords
from kubeletpy.images.records.store import RecordStore
from kubeletpy.images.records.verify import Verification, VerificationPolicy
from kubeletpy.launch.errors import LaunchError
from kubeletpy.metrics.registry import Metrics
from kubeletpy.remote.protocol import ImageService

_RECORDS_PER_POD = 5
_INTENTS_PER_POD = 2


async def open_pull_records(
    settings: KubeletSettings, root: Path, images: ImageService, clock: Clock, metrics: Metrics
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
    return records


def make_providers(
    settings: KubeletSettings,
    flags: NodeFlags,
    accounts: ServiceAccounts,
    metrics: Metrics,
    stack: AsyncExitStack,
) -> Plugins | None:
    """The credential providers that the flags name; None when they name none.

    Raises:
        ConfigError: their configuration, or their programs.
    """
    path, bin_dir = flags.image_credential_provider_config, flags.image_credential_provider_bin_dir
    if not path and not bin_dir:
        return None
    for flag, value, other in ((FLAG, path, BIN_DIR_FLAG), (BIN_DIR_FLAG, bin_dir, FLAG)):
        if not value:
            raise ConfigError([Problem(flag, "", f"is needed with {other}")])
    config = load_credential_providers(
        read_credential_provider_files(path), token_gate=settings.feature_gates.enabled(TOKENS_GATE)
    )
    check_programs(bin_dir, tuple(provider.name for provider in config.providers))
    metrics.credential_providers.configured(config.config_hash)
    directory = Path(bin_dir).resolve()
    plugins = Plugins(
        [
            Provider(
                provider,
                Program(
                    str(directory / provider.name),
                    provider.args,
                    {variable.name: variable.value for variable in provider.env},
                ),
                run_program,
                accounts,
                metrics.credential_providers,
            )
            for provider in config.providers
        ]
    )
    stack.push_async_callback(plugins.close)
    return plugins
